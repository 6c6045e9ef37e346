"""What the page says of runs: events of the table and of spools, starts, units, and pending requests."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_app.followers.events import spool
from spark_app.followers.events.events_table import SCHEMA
from spark_app.followers.events.spool import EventLog, SpoolWriter
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from spark_app.model.events import Event, EventRow
from spark_app.page import context as page_context
from spark_app.page.context import PageContext, RepeatedJob
from spark_app.page.format import utc
from spark_app.page.job import do
from spark_app.page.observations import Observations
from spark_app.page.requests import cancel, pending_requests
from spark_app.page.views.runs.events import ENDS, GROUPS, LEVELS, QUIET, EventFeed, ShownEvent, details_text, runs_of
from spark_app.page.views.runs.view import by_minute, steps_text
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from spark_app.settings.models import Settings
from tests.support.event_lakes import follow, lake_of, take
from tests.support.lakes import SmallLake
from tests.support.projections import GROWN

ROOT = Path(__file__).parents[3]


def ask(lake: Lake, since: float | None = None, groups: Any = QUIET, **more: Any) -> dict[str, Any]:
    """As the page asks, in this process."""
    settings = Settings(lake={"path": str(lake.root)}).model_dump_json()
    arguments = {"since": since, "groups": list(groups)} | more
    answer = do({"job": "runs", "arguments": arguments, "settings": settings})
    assert "failed" not in answer, answer
    return json.loads(json.dumps(answer))  # type: ignore[no-any-return]


def tell(lake: Lake, run: str, kind: str, at: float, level: Any = "INFO", **details: Any) -> None:
    """An event of another process, or of another time."""
    row = EventRow.of(Event(kind, f"{kind} of {run}", level, details=details), f"{run}/{at}", int(at * 1e6), run, None)
    SpoolWriter(lake, "app").add(row)


def kinds(answer: dict[str, Any]) -> set[str]:
    return {event["kind"] for event in answer["events"]}


def small_lake(root: Path) -> SmallLake:
    lake = lake_of(root / "lake")
    events = follow(lake)
    take(lake, 2)
    take(lake, decodable=GROWN)
    take(lake, game="poker", latency=13)
    events.call()
    return lake


def test_the_table_gives_events_of_the_chosen_groups_and_units(tmp_path: Path) -> None:
    small = small_lake(tmp_path)
    tell(small.lake, "r1", "start", time.time())
    follow(small).call()
    answer = ask(small.lake)
    assert kinds(answer) == {"table_admitted", "columns_added", "paused", "start"}
    assert kinds(ask(small.lake, groups=["units and upkeep"])) == {"unit", "table_rows", "start"}
    assert kinds(ask(small.lake, levels=["ERROR"])) == {"paused", "start"}
    assert kinds(ask(small.lake, since=time.time() + 60)) == set()
    assert answer["sums"].popitem()[1] == {"units": 4, "records": 8}
    assert [unit["unit"] for unit in answer["newest"]] == [4, 3, 2, 1]
    assert answer["newest"][0]["details"]["range"] == {"t/0": [6, 8]}
    longest = [unit["details"]["seconds"] for unit in answer["slowest"]]
    assert longest == sorted(longest, reverse=True)
    assert sum(units for _, _, units, *_ in answer["minutes"]) == 4
    assert {step for _, step, _ in answer["steps"]} >= {"decode", "write"}  # reading from memory may take no time


def test_steps_are_summed_by_minute(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    now = int(time.time()) // 60 * 60
    units = [
        {"kind": "ingest", "records": 5, "seconds": 2.0, "steps": {"read": 0.5, "write": 1}},
        {"kind": "ingest", "records": 6, "seconds": 1.0, "steps": {"read": 0.25, "odd": "text"}},
        {"kind": "ingest", "records": "many", "seconds": None, "steps": 5},
    ]
    told = [*map(json.dumps, units), "no JSON"]
    rows = [
        {"id": f"u{n}", "happened_at": now * 10**6, "kind": "unit", "unit": n, "run": "r", "details": text}
        for n, text in enumerate(told)
    ]
    rows.append({"id": "new", "happened_at": now * 10**6, "kind": "a kind of a later release", "level": "INFO"})
    write_deltalake(str(lake.path("pipeline_events")), pa.Table.from_pylist(rows, SCHEMA))
    answer = ask(lake)
    assert answer["steps"] == [[now, "read", 0.75], [now, "write", 1.0]]
    assert answer["minutes"] == [[now, "?", 1, None, None, None], [now, "ingest", 3, 11, 3.0, 2.0]]
    assert answer["sums"] == {"r": {"units": 4, "records": 11}}
    assert kinds(answer) == {"a kind of a later release"}
    assert kinds(ask(lake, groups=["starts"])) == set()
    assert [unit["details"] for unit in answer["slowest"]][-1] == {}


def test_a_lake_without_the_table_tells_what_is_in_the_spools(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    assert ask(lake)["events"] == []
    tell(lake, "r1", "start", 5.0)
    feed = EventFeed(lake)
    assert feed.read_spools()
    assert not feed.read_spools()
    assert [event.kind for event in feed.events()] == ["start"]


def test_no_event_is_shown_twice(tmp_path: Path) -> None:
    small = small_lake(tmp_path)
    told = EventLog(small.lake)
    told.add(Event("waiting", "The app waits", "WARN"))
    feed = EventFeed(small.lake)
    feed.read_spools()
    follow(small).call()  # moves it into the table, and its line stays in the newest file
    assert spool.ids(small.lake, "app")
    told.add(Event("stop", "The app stops"))
    feed.read_spools()
    feed.set_table(ask(small.lake)["events"])
    shown = [event.kind for event in feed.shown(QUIET, LEVELS, None)]
    assert (shown.count("waiting"), shown.count("stop"), shown[0]) == (1, 1, "stop")
    other = EventFeed(small.lake)
    other.set_table(ask(small.lake)["events"])
    other.read_spools()
    assert other.events() == feed.events()
    assert {event.kind for event in feed.shown(["starts"], ["WARN"], None)} == {"waiting"}
    assert feed.shown(QUIET, LEVELS, time.time() + 60) == []


BROKEN = [
    b"5\n",
    b"[]\n",
    b'{"number": "x"}\n',
    b'{"number": 7}\n',
    b"null\n",
    b'"text"\n',
    b"\xff\xfe\n",
    b'{"number": 9',
]


def test_broken_lines_of_a_spool_hide_no_other_event(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    odd = {"id": 7, "happened_at": "soon", "kind": None, "level": "LOUD", "run": [], "unit": "x", "table": 1}
    odd |= {"message": {"a": 1}, "details": 5, "number": 3}
    good = EventRow.of(Event("stop", "The app stops"), "r/1", 10, "r", None)
    fine = json.dumps({"number": 1, **vars(good)}).encode() + b"\n"
    lake.storage.append(f"{Lake.spool}/app/{0:020d}.jsonl", b"".join([json.dumps(odd).encode() + b"\n", *BROKEN[:-1]]))
    lake.storage.append(f"{Lake.spool}/other/{0:020d}.jsonl", fine + BROKEN[-1])
    for name in ("a", "b"):  # which no release writes
        lake.storage.append(f"{Lake.spool}/strange/{name}.jsonl", fine)
    feed = EventFeed(lake)
    assert feed.read_spools()
    found = {event.id: event for event in feed.events()}
    assert found["r/1"].message == "The app stops"
    assert (found["7"].at, found["7"].level, found["7"].unit) == (None, "INFO", None)
    assert set(feed.troubles) == {"strange"}
    assert len(found) == 2


def test_a_line_that_is_no_object_does_not_stop_the_events(tmp_path: Path) -> None:
    small = small_lake(tmp_path)
    small.lake.storage.append(f"{Lake.spool}/app/{0:020d}.jsonl", b"".join(BROKEN[:-1]))
    EventLog(small.lake, "page").add(Event("alert", "alert x fires"))
    follow(small).call()
    assert "alert" in kinds(ask(small.lake))


def event(run: str, kind: str, at: float, **details: Any) -> ShownEvent:
    level = "ERROR" if details.get("exit_code") in (65, 70) else "INFO"
    return ShownEvent(f"{run}/{at}", at, kind, level, run, None, "", kind, json.dumps(details))


def test_runs_show_how_they_ended() -> None:
    told = [
        event("a", "start", 10.0),
        event("a", "bump", 20.0, exit_code=75),
        event("b", "start", 21.0),
        event("c", "start", 40.0),
        event("c", "held", 60.0, exit_code=65),
        event("d", "start", 70.0),
        event("old", "stop", 5.0, exit_code=0),
        event("page", "alert", 6.0),
    ]
    runs = runs_of(told, {"a": {"units": 3, "records": 30}}, is_up=True)
    assert [(run.id, run.how, run.lasted(100.0)) for run in runs] == [
        ("d", "runs", 30.0),
        ("c", "records were lost, or files contradict each other (65)", 20.0),
        ("b", "killed or crashed, without a message", None),
        ("a", "a bump: it restarts for new columns (75)", 10.0),
        ("old", "stopped, or had no more records (0)", None),
    ]
    assert (runs[3].units, runs[3].records, runs[3].is_bump) == (3, 30, True)
    assert runs_of(told, {}, is_up=False)[0].how.startswith("killed or crashed")


@pytest.mark.parametrize("details", ["", "5", "[]", '{"exit_code": "x"}', '{"exit_code": true}'])
def test_an_end_without_its_code_is_shown_all_the_same(details: str) -> None:
    end = ShownEvent("r/1", 2.0, "stop", "INFO", "r", None, "", "", details)
    [run] = runs_of([end], {"r": {"units": "x"}}, is_up=True)
    assert (run.how, run.units) == ("stop", 0)


def test_every_exit_code_has_words() -> None:
    assert {*ENDS} == {int(code) for code in ExitCode}


def test_every_kind_of_the_docs_is_in_a_group() -> None:
    text = (ROOT / "docs" / "events.md").read_text().partition("## Kinds")[2].partition("## Examples")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {kind.strip(" `") for cell in cells for kind in cell.split(",")}
    assert documented == {kind for group in GROUPS.values() for kind in group}


def test_details_are_a_line_per_value() -> None:
    details = {"a": 1, "changed": {"x": [1, None], "y": [["a"], "b\n"]}, "range": {"t/0": [0, 2]}, "none": None}
    details["findings"] = [{"said": "one"}, {"said": "two"}]
    assert details_text(json.dumps(details)).splitlines() == [
        "a: 1",
        "x: 1 -> null",
        r'y: ["a"] -> b\n',
        "range.t/0: 0, 2",
        "findings.1.said: one",
        "findings.2.said: two",
    ]
    assert details_text("no JSON\x1b") == r"no JSON\x1b"
    assert details_text("[" * 100_000)
    assert details_text(json.dumps({str(n): n for n in range(500)})).endswith("...")
    assert details_text("{}") == ""


def test_pending_requests_have_progress_and_can_be_cancelled(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    one = Request("replay", {"causes": ["frame_magic"], "topic": None}, dry_run=True, asked_at=1e9, asked_by="a@b")
    requests.submit(lake, one)
    lake.storage.replace(f"{Lake.requests}/broken.json", b"[")
    [found] = pending_requests(lake, is_up=False)
    assert (
        found.description == "replay (it only counts): causes frame_magic, requested by a@b at 2001-09-09 01:46:40 UTC"
    )
    assert "app is down" in found.progress
    progress = {"unit": 3, "value": {"resolved": 12, "after": "x"}}
    lake.storage.replace(requests.key_of(one, "progress"), json.dumps(progress).encode())
    assert pending_requests(lake, is_up=True)[0].progress == "The app works on it: resolved 12 so far."
    assert "another one's" in cancel(lake, one.id, "ann")
    assert "is cancelled" in cancel(lake, one.id, "a@b")
    assert requests.pending(lake) == []
    assert not lake.storage.exists(requests.key_of(one, "progress"))
    assert "is done" in cancel(lake, one.id)
    lake.storage.replace(f"{Lake.requests}/odd.json", b'{"kind": "replay", "arguments": {}, "asked_at": 1e300}')
    assert pending_requests(lake, is_up=True)[0].description.startswith("replay, requested by")


def test_a_job_runs_again_when_something_changed_or_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    context = PageContext(lake, Settings(lake={"path": str(lake.root)}), Observations(lake))
    answers: list[dict[str, Any]] = []

    async def answer(*_: Any, **__: Any) -> dict[str, Any]:
        return answers.pop()

    monkeypatch.setattr(PageContext, "run_job", answer)
    now, version = 100.0, 1
    monkeypatch.setattr(page_context.time, "monotonic", lambda: now)
    reads = RepeatedJob(context, "schemas", lambda: version)

    def look(at: float, of: int, *said: dict[str, Any]) -> bool:
        """Whether the job was run."""
        nonlocal now, version
        now, version, answers[:] = at, of, said
        return asyncio.run(reads.run_if_due()) is not None

    failed = {"failed": "why"}
    assert look(100, 1, {})
    assert not look(200, 1)
    assert look(201, 2, {})
    assert not look(205, 3)  # too soon
    assert look(206, 3, failed)
    assert not look(215, 3)
    assert look(217, 3, failed)
    assert look(228, 3, {})
    assert not look(300, 3)


def test_bars_that_stand_on_each_other_have_the_same_minutes() -> None:
    assert by_minute([(60, "read", 1.0), (120, "write", 3.0), (180, "read", None)]) == {
        "read": [(60, 1.0), (120, 0.0), (180, 0.0)],
        "write": [(60, 0.0), (120, 3.0), (180, 0.0)],
    }


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"read": 1, "decode": 3}, "decode 75%, read 25%"),
        ({"read": "x", "write": True}, ""),
        ({}, ""),
        (None, ""),
        ([1], ""),
    ],
)
def test_steps_are_shares(steps: Any, said: str) -> None:
    assert steps_text(steps) == said


def test_a_moment_is_shown_whatever_it_is() -> None:
    assert [utc(value) for value in (0, 1e300, None, "x", True, float("nan"))] == ["1970-01-01 00:00:00", *["-"] * 5]
