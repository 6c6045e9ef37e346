"""Events that belong to no unit: stored at once, moved into the table once, whatever crashes."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from spark_app.app.lifecycle import ProcessLifecycle
from spark_app.followers.events import spool
from spark_app.followers.events.settings_event import keep_settings, settings_event
from spark_app.followers.events.spool import EventLog
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.lake.spool import PER_FILE
from spark_app.model.causes import Cause
from spark_app.model.errors import ExitCode
from spark_app.model.events import Event
from spark_app.protobuf.schemas.ledger_text import KINDS, SchemaEvents
from spark_app.recovery.requests import Request, done_event, start_event
from spark_app.settings.models import Settings
from spark_app.units.driver.status import Status
from tests.support.event_lakes import follow, lake_of, take
from tests.unit.followers.test_events_table import rows, unit_numbers

APP = Path(__file__).parents[3] / "spark_app"


def said(root: Path) -> list[str]:
    found = pl.read_delta(str(root / "pipeline_events")).filter(pl.col("kind") == "note")
    return sorted(found["message"].to_list())


def note(text: str) -> Event:
    return Event("note", text)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.prepare()
    return made


def test_an_event_is_stored_at_once_and_moved_once(tmp_path: Path) -> None:
    small = lake_of(tmp_path)
    events, told = follow(small), EventLog(small.lake)
    told.add(Event("note", "one", "WARN", "silver_uno_events", {"a": [1, "\u00e4"]}))
    (row,) = spool.read(small.lake, "app", 0).values()
    assert (row.message, json.loads(row.details)) == ("one", {"a": [1, "\u00e4"]})
    take(small)
    for _ in range(2):
        events.call()
    told.add(note("two"))
    events.call()
    again = follow(small)
    again.call()
    assert said(tmp_path) == ["one", "two"]
    (one,) = [row for row in rows(small, "note") if row["message"] == "one"]
    assert (one["level"], one["table"], one["unit"]) == ("WARN", "silver_uno_events", None)
    assert unit_numbers(small) == [1]


def test_each_writer_has_a_spool_and_a_cursor_of_its_own(tmp_path: Path) -> None:
    small = lake_of(tmp_path)
    events = follow(small)
    for name in ("app", "page"):
        for number in range(3):
            EventLog(small.lake, name).add(note(f"{name} {number}"))
        events.call()
    assert said(tmp_path) == [f"{name} {number}" for name in ("app", "page") for number in range(3)]


def test_files_of_moved_events_are_removed_except_the_newest(tmp_path: Path) -> None:
    small = lake_of(tmp_path)
    events, told = follow(small), EventLog(small.lake)
    for number in range(2 * PER_FILE + 1):
        told.add(note(f"{number:03}"))
    assert len(list(tmp_path.glob("_protolake/spool/app/*"))) == 3
    events.call()
    assert len(said(tmp_path)) == 2 * PER_FILE + 1
    events.flush()
    assert len(list(tmp_path.glob("_protolake/spool/app/*"))) == 1
    EventLog(small.lake).add(note("later"))
    events.call()
    assert said(tmp_path)[-1] == "later"


def test_a_line_that_a_crash_has_cut_is_left_out(lake: Lake) -> None:
    told = EventLog(lake)
    for text in ("one", "two"):
        told.add(note(text))
    (file,) = lake.path(lake.spool).glob("app/*.jsonl")
    file.write_bytes(file.read_bytes()[:-3])
    EventLog(lake).add(note("three"))
    found = spool.read(lake, "app", 0)
    assert [row.message for row in found.values()] == ["one", "three"]
    assert list(found) == sorted(found)


def test_events_wait_in_memory_while_the_disk_is_full(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    told = EventLog(lake)
    told.add(note("one"))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalStorage, "append", full)
    told.add(note("two"))
    monkeypatch.undo()
    told.add(note("three"))
    assert [row.message for row in spool.read(lake, "app", 0).values()] == ["one", "two", "three"]


def test_a_clock_that_goes_back_hides_no_event(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    EventLog(lake).add(note("one"))
    last = max(spool.read(lake, "app", 0))
    monkeypatch.setattr(spool.time, "time", lambda: 1.0)
    EventLog(lake).add(note("two"))
    assert [row.message for row in spool.read(lake, "app", last).values()] == ["two"]


def test_settings_are_emitted_with_what_differs_and_without_secrets(lake: Lake) -> None:
    first = Settings(kafka={"sasl_username": "Okapi"})
    event = settings_event(lake, first)
    assert (event.details["changed"], len(event.details["digest"])) == ({}, 64)
    keep_settings(lake, first)
    assert settings_event(lake, first).message == "0 settings differ from those of the last start"
    changed = Settings(
        kafka={"sasl_username": "Zebra"},
        gold={"interval_s": 7},
        expectations={"a": {"check": "x > 0", "action": "warn"}},
        alerts={"webhook": "https://hooks.example/Zebra"},
    )
    event = settings_event(lake, changed)
    assert event.message == f"{len(event.details['changed'])} settings differ from those of the last start"
    assert event.details["changed"]["gold.interval_s"] == [5.0, 7.0]
    assert event.details["changed"]["expectations.a.check"] == [None, "x > 0"]
    keep_settings(lake, changed)
    every = json.dumps(dict(event.details)) + lake.path(lake.settings).read_text()
    assert "Okapi" not in every
    assert "Zebra" not in every


@pytest.mark.parametrize(
    ("code", "kind", "level"),
    [
        (ExitCode.DONE, "stop", "INFO"),
        (ExitCode.BUMP, "bump", "INFO"),
        (ExitCode.LOSS, "held", "ERROR"),
        (ExitCode.BUG, "stop", "ERROR"),
    ],
)
def test_each_end_is_emitted(lake: Lake, code: ExitCode, kind: str, level: str) -> None:
    told: list[Event] = []
    settings = Settings()
    life = ProcessLifecycle(lake, settings.run, Status(lake, settings.layout), lambda: None, told.append)
    life.end(code, "why")
    assert told == []  # another process has the lake
    life._begun = True
    life.end(code, "why")
    (event,) = told
    assert (event.kind, event.level, event.details["exit_code"]) == (kind, level, int(code))
    assert ("why" in event.message) == (code is not ExitCode.BUG)


def test_waiting_is_emitted_once(lake: Lake) -> None:
    told: list[Event] = []
    status = Status(lake, Settings().layout, emit=told.append)
    for reason in ("broker x: down", "broker x: down", None):
        status.waiting(reason)
    assert [event.message for event in told] == ["The app waits: broker x: down", "The app goes on"]


def test_a_request_is_emitted_with_its_sender_and_numbers_of_the_result() -> None:
    request = Request("replay", {"causes": ["frame_short"]})
    assert "@" in request.asked_by
    started = start_event(request)
    assert started.details["asked_by"] == request.asked_by
    assert request.id in started.message
    done = done_event(request, {"records": 7, "named": ["Zebra"]})
    assert (done.level, done.details["result"]) == ("INFO", {"records": 7})
    assert "Zebra" not in json.dumps(dict(done.details))
    failed = done_event(request, {"error": "Zebra", "exit_code": 70})
    assert (failed.level, failed.details["result"]) == ("ERROR", {"exit_code": 70})
    assert "Zebra" not in failed.message


def test_each_kind_is_explained() -> None:
    page = (APP.parent / "docs" / "events.md").read_text()
    table = page.partition("## Kinds")[2].partition("## Examples")[0]
    explained = {
        kind
        for row in table.splitlines()
        if row.startswith("| `")
        for kind in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    calls = [
        node
        for path in APP.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    made = [call.args[0] for call in calls if ast.unparse(call.func) == "Event" and call.args]
    used = {ast.literal_eval(kind) for kind in made if isinstance(kind, ast.Constant)}
    assert explained == used | {*KINDS.values()} | {"alert", "bump", "stop", "held"}


def test_the_queries_of_the_page_run(tmp_path: Path) -> None:
    small = lake_of(tmp_path)
    events = follow(small)
    take(small, 2)
    events.call()
    page = (APP.parent / "docs" / "events.md").read_text()
    duck = duckdb.connect()
    duck.register("events", DeltaTable(str(tmp_path / "pipeline_events")).to_pyarrow_table())
    queries = page.partition("```sql\n")[2].partition("```")[0].strip().split("\n\n")
    found = [duck.sql(query).fetchall() for query in queries]
    assert len(found[0]) == 1
    assert found[1:] == [[("silver_uno_events", 2)], [("frame_magic", 2, "t/0@1")], []]


def test_what_becomes_of_schemas_is_emitted(tmp_path: Path) -> None:
    small = lake_of(tmp_path)
    ledger = small.opened.resolver.ledger
    told: list[Event] = []
    schemas = SchemaEvents(ledger, told.append)
    schemas.step()
    assert told == []
    ledger.add_waiting(99, "the registry is away", 0.0)
    ledger.add_refused(98, Cause.SCHEMA_UNKNOWN, "no such id", 0.0)
    for _ in range(2):
        schemas.step()
    kinds = [(event.kind, event.details["schema"], event.level) for event in told]
    assert kinds == [("schema_waiting", 99, "WARN"), ("schema_refused", 98, "WARN")]
    ledger.add_stopped(99, "pause", "field a was renamed to b", 0.0, ["rename"], b"")
    schemas.step()
    ledger.accept(99, "alias")
    schemas.step()
    paused, accepted = told[2:]
    assert paused.message == "Schema 99 is kept out until a person decides: field a was renamed to b"
    assert paused.details["stopped_by"] == ["rename"]
    assert (accepted.message, accepted.details["accepted"]) == ("Schema 99 is waited for", "alias")
