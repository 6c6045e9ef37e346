"""Joined columns in gold, and in the commands that decode records again: each row keeps to its own version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.parts import Parts
from tests.spark.test_spark_projections import gold_faults, take
from tests.spark.test_spark_rebuild import ask, counts
from tests.spark.test_spark_renewal import renew
from tests.spark.test_spark_replay import replay
from tests.support.references import section, write

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("uno", "c"), ("uno", "b"), ("rummy", "")]
RUMMY, UNO, GOLD = "silver_rummy_events", "silver_uno_events", "gold_uno_player_agg"


@pytest.fixture
def players(tmp_path: Path) -> dict[str, Any]:
    return section(write(tmp_path, ("a", "FR", 1), ("b", "IT", 2)), keep_versions=2)


def joined(parts: Parts, table: str = UNO) -> list[tuple[Any, ...]]:
    return sorted(parts.read(table).select("gamer_id", "country", "tier").rows(), key=str)


def test_gold_aggregates_and_groups_by_joined_columns(new_parts: NewParts, players: dict[str, Any]) -> None:
    aggregates = {"games": {"function": "count"}, "best": {"function": "max", "field": "tier"}}
    parts = new_parts(reference=players, event={"key": "country"}, gold={"aggregates": aggregates})
    take(parts, *PLAYERS)
    take(parts, ("uno", "b"))
    assert sorted(parts.read(GOLD).select("country", "games", "best").rows(), key=str) == [
        ("IT", 3, 2),
        (None, 1, None),
    ]
    assert gold_faults(parts) == {}


def test_a_rebuild_compares_each_row_by_its_own_version(
    new_parts: NewParts, players: dict[str, Any], tmp_path: Path
) -> None:
    take(new_parts(), *PLAYERS)
    for tier in range(4):  # the copies of the first versions are gone then
        write(tmp_path, ("a", "FR", tier), ("b", "DE", tier))
        parts = new_parts(reference=players, silver={"columns": {"place": "gamer_id || country"}})
        take(parts, *PLAYERS)
    result = ask(parts)
    assert counts(result) == {RUMMY: {"expected": 10, "present": 10}, UNO: {"expected": 15, "present": 15}}


@pytest.mark.nightly
def test_a_rebuild_gives_missing_rows_the_version_in_force(
    new_parts: NewParts, players: dict[str, Any], tmp_path: Path
) -> None:
    parts = new_parts(reference=players)
    take(parts, *PLAYERS)
    parts.lake.storage.delete_all(UNO)
    write(tmp_path, ("b", "DE", 7))
    parts = new_parts(reference=players)
    assert counts(ask(parts))[UNO] == {"expected": 3, "added": 3}
    assert joined(parts) == [("b", "DE", 7), ("b", "DE", 7), ("c", None, None)]


@pytest.mark.nightly
def test_a_replay_joins_the_version_in_force(new_parts: NewParts, players: dict[str, Any], tmp_path: Path) -> None:
    rules = {"known": {"check": "gamer_id <> 'b'", "action": "quarantine"}}
    take(new_parts(reference=players, expectations=rules), *PLAYERS)
    write(tmp_path, ("b", "DE", 7))
    parts = new_parts(reference=players)
    assert replay(parts, rules=["known"])["resolved"] == {UNO: 2}
    assert joined(parts) == [("b", "DE", 7), ("b", "DE", 7), ("c", None, None)]


@pytest.mark.nightly
def test_a_table_that_is_made_anew_takes_columns_of_another_type(
    new_parts: NewParts, players: dict[str, Any], tmp_path: Path
) -> None:
    parts = new_parts(reference=players)
    take(parts, *PLAYERS)
    path = write(tmp_path / "other", ("b", "DE", "gold"), kind=pa.string())
    renamed = {"others": section(path)["players"]}
    parts = new_parts(reference=renamed)
    assert renew(parts, "uno", "rummy")["rows"] == {UNO: 3, RUMMY: 2}
    assert joined(parts) == [("b", "DE", "gold"), ("b", "DE", "gold"), ("c", None, None)]
    take(new_parts(reference=renamed), *PLAYERS)
    assert len(joined(parts)) == 6
