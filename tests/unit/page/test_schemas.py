"""What the page says of schemas: the jobs on real lakes, and the texts of the views."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.app.cli.recovering import Decided
from spark_app.lake.lake import Lake
from spark_app.model.causes import Cause
from spark_app.model.schema_changes import Policy
from spark_app.page.job import do
from spark_app.page.metrics.reading import Reading
from spark_app.page.views.schemas.view import (
    POLICIES,
    STATES,
    difference_rows,
    kept_out_text,
    list_row,
    pending_decisions,
    rows_by_schema,
)
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from tests.support.answers import Answers
from tests.support.cost import least_cpu
from tests.support.games import Game
from tests.support.protos import PROTO3, compile_text, renamed
from tests.support.statuses import status_of

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"
SCORE, POINTS = "int32 score = 3;", "int32 points = 3; string more = 4;"


def ask(game: Game, job: str, **arguments: Any) -> dict[str, Any]:
    """As the page asks, in this process."""
    settings = game.lake.settings.model_dump_json()
    return do({"job": job, "arguments": arguments, "settings": settings})


def game_of(answers: Answers, root: Path, **more: Any) -> Game:
    game = Game(answers, root / "lake", SCORE, POINTS, **more)
    game.send(1, {"score": 1})
    game.send(2, {"points": 2}, {"points": 3})
    game.lake.opened.resolver.comparer.step(threading.Lock())
    return game


def test_the_list_has_the_newest_first_with_its_findings(answers: Answers, tmp_path: Path) -> None:
    game = game_of(answers, tmp_path)
    ledger = game.lake.opened.resolver.ledger
    ledger.add_refused(20, Cause.SCHEMA_INVALID, HOSTILE, time.time() + 9)
    ledger.add_refused(21, Cause.SCHEMA_UNKNOWN, "not in the registry", 0.0)
    ledger.add_waiting("guid", "fetching takes long", 5.0)
    ledger.save()
    answer = ask(game, "schemas")
    found = [(one["schema"], one["state"], one["warnings"], one["infos"]) for one in answer["schemas"]]
    assert found == [
        ("20", "refused", 0, 0),
        ("12", "decodable", 1, 1),
        ("11", "decodable", 0, 0),
        ("guid", "waiting", 0, 0),
    ]
    assert (answer["unknown"], answer["more"], answer["kept_out"]) == (1, 0, {})
    second = answer["schemas"][1]
    assert (second["subjects"], second["messages"]) == ({"t-value": 2}, ["Event"])
    row = list_row(second, {"uno": 2, "poker": 3})
    assert (row["subjects"], row["findings"], row["rows"]) == ("v2 of t-value", "1 warning, 1 info", 5)


def test_records_that_a_change_keeps_out_are_counted(answers: Answers, tmp_path: Path) -> None:
    game = game_of(answers, tmp_path, rename="pause")
    answer = ask(game, "schemas")
    [stopped] = [one for one in answer["schemas"] if one["state"] == "paused"]
    assert stopped["schema"] == "12"
    assert answer["kept_out"] == {"12": 2}
    assert kept_out_text("paused", 2) == "2 records wait."


def test_records_in_quarantine_are_counted_for_a_schema_that_a_policy_refuses(answers: Answers, tmp_path: Path) -> None:
    game = game_of(answers, tmp_path, rename="quarantine")
    answer = ask(game, "schemas")
    assert [one["schema"] for one in answer["schemas"] if one["state"] == "quarantined"] == ["12"]
    assert answer["kept_out"] == {"12": 2}
    quarantine = DeltaTable(str(game.lake.lake.path("quarantine_events"))).to_pyarrow_table()
    coordinates = quarantine.select(["topic", "topic_id", "partition", "offset"])
    write_deltalake(str(game.lake.lake.path("resolved_events")), coordinates.slice(0, 1))  # as a replay does
    assert ask(game, "schemas")["kept_out"] == {"12": 1}
    next(game.lake.lake.path("resolved_events").glob("*.parquet")).unlink()
    assert ask(game, "schemas")["kept_out"] is None


def test_one_schema_has_the_difference_the_columns_and_the_text(answers: Answers, tmp_path: Path) -> None:
    game = game_of(answers, tmp_path, rename="alias")
    answer = ask(game, "schema", schema="12")
    assert [one["severity"] for one in answer["findings"]] == ["info", "info"]
    assert answer["findings"][0]["said"].startswith("field score was renamed to points")
    assert answer["columns"] == [("Event", "points", "score")]
    [part] = answer["difference"]
    assert ("|", "  int32 score = 3;", "  int32 points = 3;") in part
    assert (">", "", "  string more = 4;") in part
    assert answer["lines"][0] == "message Event {"
    assert (answer["before"], answer["is_compared"]) == (1, True)


@pytest.mark.parametrize(
    ("policy", "state", "outcome"),
    [("pause", "paused", "waits until a person decides"), ("quarantine", "quarantined", "goes to quarantine")],
)
def test_a_schema_that_is_kept_out_shows_what_a_person_decides_about(
    answers: Answers, tmp_path: Path, policy: str, state: str, outcome: str
) -> None:
    game = game_of(answers, tmp_path, rename=policy)
    answer = ask(game, "schema", schema="12")
    assert (answer["state"], answer["subjects"], answer["messages"]) == (state, {"t-value": 2}, ["Event"])
    [renamed] = [one for one in answer["findings"] if one["severity"] == "warning"]
    assert renamed["said"].startswith("field score was renamed to points")
    assert outcome in renamed["said"]
    [part] = answer["difference"]
    assert ("|", "  int32 score = 3;", "  int32 points = 3;") in part
    assert answer["lines"][0] == "message Event {"
    [listed] = [one for one in ask(game, "schemas")["schemas"] if one["schema"] == "12"]
    assert (listed["subjects"], listed["warnings"]) == ({"t-value": 2}, 1)


def test_a_schema_that_is_not_there_or_damaged_is_reported(answers: Answers, tmp_path: Path) -> None:
    game = game_of(answers, tmp_path)
    assert ask(game, "schema", schema="99") == {"missing": True}
    entry = game.lake.opened.resolver.ledger.entries[12]
    game.lake.lake.path(f"{Lake.schemas}/{entry.digest}.fds").write_bytes(b"other")
    answer = ask(game, "schema", schema="12")
    assert "was altered" in answer["damaged"]
    assert answer["findings"]
    listed = {one["schema"]: one["messages"] for one in ask(game, "schemas")["schemas"]}
    assert listed == {"11": ["Event"], "12": []}
    game.lake.lake.path(Lake.ledger).write_bytes(b"no list")
    assert "damaged" in ask(game, "schemas")["failed"]


def test_a_decision_that_waits_for_the_app_is_known(answers: Answers, tmp_path: Path) -> None:
    game = game_of(answers, tmp_path, rename="pause")
    lake = game.lake.lake
    assert pending_decisions(lake, "12") == []
    requests.submit(lake, Request("accept", {"schema": "12", "policy": "alias"}))
    requests.submit(lake, Request("accept", {"schema": "13", "policy": "warn"}))
    requests.submit(lake, Request("replay", {"schema": "12"}))
    assert pending_decisions(lake, "12") == ["alias"]


def test_a_lake_without_schemas_has_an_empty_list(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path / "lake", SCORE)
    assert ask(game, "schemas") == {"schemas": [], "more": 0, "unknown": 0, "kept_out": {}}


def test_a_thousand_schemas_take_seconds_at_most(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path / "lake", SCORE)
    ledger = Ledger(game.lake.lake)
    event = compile_text(f"{PROTO3}package p; message Event {{ string a = 1; }}")
    for number in range(1000):
        one = renamed(event, number, f"p{number}")
        ledger.add_decodable(number, one.descriptor_set, float(number), "text", 1, subjects={f"s{number}": 1})
    ledger.save()
    assert least_cpu(lambda: ask(game, "schemas")) < 5
    answer = ask(game, "schemas")
    assert [one["schema"] for one in answer["schemas"][:2]] == ["999", "998"]
    assert answer["schemas"][0]["messages"] == ["p999.Event"]


def test_every_state_and_every_policy_of_the_command_is_explained() -> None:
    assert {*POLICIES} == {*get_args(Decided)}
    assert {*POLICIES} == {*get_args(Policy)} - {"pause"}
    assert {"decodable", "refused", "waiting"} < {*STATES}


def test_rows_by_schema_are_those_of_the_status() -> None:
    status = status_of(tables=2)
    status["tables"]["t0"]["schema_ids"] = {"12": 3, "11": "many"}
    status["tables"]["t1"]["schema_ids"] = {"12": 4}
    assert rows_by_schema(Reading(status, 0.0)) == {"12": {"t0": 3, "t1": 4}}
    assert rows_by_schema(Reading({"tables": {"t0": 5, "t1": {"schema_ids": []}}}, 0.0)) == {}


def test_a_line_that_is_gone_or_new_has_a_mark() -> None:
    parts = [[["|", "a", "b"], [">", "", "c"], ["<", "d", ""], [" ", "e", "e"]], [["|", "\x1b", "y"]]]
    assert [(row["old"], row["new"]) for row in difference_rows(parts)] == [
        ("- a", "+ b"),
        ("", "+ c"),
        ("- d", ""),
        ("  e", "  e"),
        ("…", "…"),
        (r"- \x1b", "+ y"),
    ]
