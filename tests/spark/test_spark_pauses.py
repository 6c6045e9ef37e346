"""Tables that a rule pauses, in real Spark jobs: beside replay, rebuild, gold and a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from tests.spark.parts import Killed, Parts, events
from tests.spark.test_spark_rebuild import ask, counts
from tests.spark.test_spark_replay import landed, replay

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
SANE = {"check": "gamer_id <> 'bot'", "action": "pause"}
KNOWN = {"check": "gamer_id <> ''", "action": "quarantine"}
RUMMY, UNO = "silver_rummy_events", "silver_uno_events"
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "bot"), ("uno", "c"), ("uno", ""), ("rummy", "d")]


def pause(new_parts: NewParts, **rules: Any) -> Parts:
    """Rummy is paused by offset 2; 4 is quarantined."""
    parts = new_parts(expectations={"sane": SANE, "known": KNOWN} | rules, batch={"single_task_below": 1})
    parts.learn(1)
    report = parts.take(events(1, PLAYERS))
    assert (report.silver, report.waiting, report.quarantine) == ({"uno": 2}, {"rummy": 3}, {"expect_failed": 1})
    return parts


def resume(parts: Parts, table: str, failing: str) -> dict[str, Any]:
    request = Request("resume", {"table": table, "failing": failing})
    requests.submit(parts.lake, request)
    while requests.pending(parts.lake):
        assert parts.service.step()
    return requests.take_result(parts.lake, request) or {}


def waiting(parts: Parts) -> dict[str, int]:
    return {name: one.rows for name, one in parts.opened.paused.pauses.items()}


def test_several_tasks_find_the_failing_row(new_parts: NewParts) -> None:
    parts = new_parts(expectations={"sane": SANE})
    parts.learn(1)
    players = [("rummy" if n % 2 else "uno", "bot" if n in (2_001, 5_001) else "a") for n in range(6_000)]
    report = parts.take(events(1, players))
    assert (report.silver, report.waiting) == ({"uno": 3_000}, {"rummy": 3_000})
    assert parts.opened.paused.pauses["rummy"].record.endswith("/0@2001")


def test_rows_are_let_in_once_although_the_app_ends_in_between(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = pause(new_parts)
    assert resume(parts, RUMMY, "quarantine") == {"table": "rummy", "rule": "sane", "rows": 3, "failing": "quarantine"}
    parts.kill_at_commit("deferred_events", monkeypatch)
    with pytest.raises(Killed):
        parts.deferred.step()
    monkeypatch.undo()
    parts = new_parts(expectations={"sane": SANE, "known": KNOWN})
    assert parts.redone_units == 1
    assert (parts.deferred.step(), waiting(parts)) == (None, {})
    assert landed(parts) == {RUMMY: [0, 5], UNO: [1, 3], "resolved": [], "open": [2, 4]}
    parts.gold.run()
    assert sorted(parts.read("gold_rummy_player_agg")["gamer_id"].to_list()) == ["a", "d"]


@pytest.mark.nightly
def test_resume_of_a_table_that_is_not_paused(new_parts: NewParts) -> None:
    parts = pause(new_parts)
    result = resume(parts, "uno", "land")
    assert result == {"error": "no paused table is named uno; paused: rummy", "exit_code": 64}
    assert waiting(parts) == {"rummy": 3}


@pytest.mark.nightly
def test_a_replay_leaves_rows_of_a_paused_table_where_they_are(new_parts: NewParts) -> None:
    parts = new_parts(expectations={"sane": SANE, "known": KNOWN})
    parts.learn(1)
    parts.take(events(1, [("rummy", ""), ("uno", ""), ("rummy", "bot")]))
    assert waiting(parts) == {"rummy": 3 - 1}
    parts = new_parts(expectations={"sane": SANE})
    assert replay(parts)["resolved"] == {UNO: 1}
    assert waiting(parts) == {"rummy": 2}


@pytest.mark.nightly
def test_a_replay_does_not_pause_a_table(new_parts: NewParts) -> None:
    parts = new_parts(expectations={"known": KNOWN})
    parts.learn(1)
    parts.take(events(1, [("rummy", ""), ("uno", "a")]))
    strict: dict[str, Any] = {"sane": {"check": "gamer_id <> ''", "action": "pause"}}
    parts = new_parts(expectations=strict)
    assert replay(parts)["refused"] == {"expect_failed": 1}
    assert waiting(parts) == {}


@pytest.mark.nightly
def test_a_rebuild_leaves_waiting_rows_alone(new_parts: NewParts) -> None:
    parts = pause(new_parts)
    result = ask(parts)
    assert counts(result) == {RUMMY: {"expected": 3}, UNO: {"expected": 2, "present": 2}}
    assert result["exit_code"] == 0
    parts.lake.storage.delete_all(UNO)
    parts = new_parts(expectations={"sane": SANE, "known": KNOWN})
    ask(parts)
    assert landed(parts)[UNO] == [1, 3]
    assert waiting(parts) == {"rummy": 3}
