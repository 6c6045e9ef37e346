"""Records that a rule keeps out of silver come back by a replay once the rule is mended, and only once; a rebuild keeps
each row by its own rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.spark.parts import Parts, events
from tests.spark.test_spark_rebuild import ask, counts
from tests.spark.test_spark_replay import landed, replay

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", ""), ("uno", ""), ("rummy", "bot"), ("uno", "bot"), ("uno", "c")]
KNOWN = {"check": "gamer_id <> ''", "action": "quarantine"}
HUMAN = {"check": "gamer_id <> 'bot'", "action": "drop"}
RUMMY, UNO = "silver_rummy_events", "silver_uno_events"


def refuse(new_parts: NewParts) -> Parts:
    """2 and 3 are quarantined, 4 and 5 dropped."""
    parts = new_parts(expectations={"known": KNOWN, "human": HUMAN})
    parts.learn(1)
    report = parts.take([*events(1, PLAYERS), b"no frame"])
    assert (report.quarantine, report.dropped) == ({"expect_failed": 2, "frame_magic": 1}, 2)
    return parts


def offsets(parts: Parts, table: str) -> list[tuple[int, int | None]]:
    """(offset, definition) of each row of silver."""
    return sorted(parts.read(table).select("_offset", "_definition").rows())


def test_a_replay_by_rule_moves_its_rows_once(new_parts: NewParts) -> None:
    refuse(new_parts)
    parts = new_parts(expectations={"human": HUMAN})
    assert replay(parts, rules=["human"])["candidates"] == {}
    first = replay(parts, rules=["known"])
    assert (first["candidates"], first["resolved"]) == ({"expect_failed": 2}, {RUMMY: 1, UNO: 1})
    assert landed(parts) == {RUMMY: [0, 2], UNO: [1, 3, 6], "resolved": [2, 3], "open": [7]}
    assert offsets(parts, UNO) == [(1, 1), (3, 2), (6, 1)]
    assert replay(parts, rules=["known"])["candidates"] == {}


@pytest.mark.nightly
def test_dropped_rows_come_back_only_on_request(new_parts: NewParts) -> None:
    refuse(new_parts)
    parts = new_parts(expectations={"known": KNOWN})
    assert replay(parts)["resolved"] == {}
    assert replay(parts, dropped=True, dry_run=True) == {"candidates": {"dropped": 2}}
    assert replay(parts, dropped=True, rules=["other"])["candidates"] == {}
    assert replay(parts, dropped=True, rules=["human"])["resolved"] == {RUMMY: 1, UNO: 1}
    assert replay(parts, dropped=True)["candidates"] == {}
    assert sorted(parts.read(UNO)["_offset"].to_list()) == [1, 5, 6]
    assert sorted(parts.read("resolved_events").select("offset", "cause").rows()) == [(4, "dropped"), (5, "dropped")]


@pytest.mark.nightly
def test_what_still_fails_stays_where_it_is(new_parts: NewParts) -> None:
    parts = refuse(new_parts)
    before = sorted(parts.files())
    assert replay(parts, dropped=True)["refused"] == {"dropped": 2}
    assert replay(parts, rules=["known"])["refused"] == {"expect_failed": 2}
    stricter = new_parts(expectations={"known": KNOWN, "human": HUMAN | {"action": "quarantine"}})
    assert replay(stricter, dropped=True)["refused"] == {"expect_failed": 2}
    assert sorted(stricter.files()) == before


def test_a_rebuild_leaves_rows_by_their_own_rules(new_parts: NewParts) -> None:
    refuse(new_parts)
    now: dict[str, Any] = {"nobody": {"check": "false", "action": "quarantine"}}
    parts = new_parts(expectations=now)
    result = ask(parts)
    assert counts(result) == {
        RUMMY: {"expected": 1, "present": 1},
        UNO: {"expected": 2, "present": 2},
        "quarantine_events": {"expected": 1, "present": 1},
    }
    assert (result["exit_code"], result["replayable"]) == (0, 0)


@pytest.mark.nightly
def test_a_rebuild_checks_missing_rows_by_the_rules_in_force(new_parts: NewParts) -> None:
    parts = refuse(new_parts)
    for table in (UNO, "dropped_events"):
        parts.lake.storage.delete_all(table)
    parts = new_parts(
        expectations={"known": KNOWN, "human": HUMAN, "early": {"check": "_offset < 6", "action": "drop"}}
    )
    ask(parts)
    assert offsets(parts, UNO) == [(1, 2)]
    assert sorted(parts.read("dropped_events").select("offset", "rules").rows()) == [
        (4, ["human"]), (5, ["human"]), (6, ["early"])
    ]  # fmt: skip
