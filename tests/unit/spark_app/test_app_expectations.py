"""Rows that fail an expectation: where they end, how they are counted, and what the tables say about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spark_app.model.definitions import Definition, Definitions, Rule
from spark_app.model.errors import ContractError
from spark_app.settings.models import Expectation
from spark_app.storage.lake import Lake
from spark_app.store.definitions import record
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text, message_class

BETS = compile_text(
    PROTO3 + "message Bet { string game_name = 1; string gamer_id = 2; optional int64 bet = 3; string level = 4; }",
    schema_id=7,
)
LATER = compile_text(
    PROTO3 + "message Bet { string game_name = 1; string gamer_id = 2; optional int64 bet = 3; string level = 4;"
    " optional int64 limit = 5; }",
    schema_id=8,
)
RULES: dict[str, Any] = {
    "high": {"check": "bet < 1000", "action": "warn"},
    "known": {"check": "gamer_id <> ''", "action": "quarantine"},
    "level": {"check": "CAST(level AS INTEGER) BETWEEN 1 AND 9", "action": "quarantine", "tables": ["uno"]},
    "positive": {"check": "bet > 0", "action": "drop"},
}


def bet(game: str, gamer: str, amount: int | None, level: str = "1", decodable: Any = BETS, **more: int) -> bytes:
    given = {} if amount is None else {"bet": amount}
    kind = message_class(decodable, "Bet")
    values = {"game_name": game, "gamer_id": gamer, "level": level} | given | more
    return frame(decodable.key, kind(**values).SerializeToString())


def rows(lake: SmallLake, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return pl.read_delta(str(lake.lake.path(table))).sort(columns[0]).select(columns).rows()


def lake_of(root: Path, rules: dict[str, Any] = RULES) -> SmallLake:
    return SmallLake(root, BETS, LATER, expectations=rules)


def test_each_action(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    sent = [
        bet("uno", "a", 5),
        bet("uno", "", 5),  # known
        bet("uno", "b", 0),  # positive
        bet("uno", "c", 5000),  # high
        bet("uno", "d", 5, level="x"),  # level: the cast fails
        bet("uno", "", None, level="10"),  # all but high and ... NULL is a failure
        bet("hearts", "e", 5, level="x"),  # level is uno's only
        bet("hearts", "f", None),  # positive and high
    ]
    report = lake.take(batch_of(sent))
    assert rows(lake, "silver_uno_events", "_offset", "gamer_id", "_definition") == [(0, "a", 2), (3, "c", 2)]
    assert rows(lake, "silver_hearts_events", "_offset", "gamer_id", "_definition") == [(6, "e", 1)]
    assert rows(lake, "quarantine_events", "offset", "cause", "hop", "table", "rules", "definition", "detail") == [
        (1, "expect_failed", "expect", "silver_uno_events", ["known"], 2, "fails known"),
        (4, "expect_failed", "expect", "silver_uno_events", ["level"], 2, "fails level"),
        (5, "expect_failed", "expect", "silver_uno_events", ["known", "level", "positive"], 2,
         "fails known, level, positive"),
    ]  # fmt: skip
    assert rows(lake, "dropped_events", "offset", "table", "rules", "definition", "schema_id") == [
        (2, "silver_uno_events", ["positive"], 2, 7),
        (7, "silver_hearts_events", ["positive"], 1, 7),
    ]
    assert (report.silver, report.quarantine, report.dropped) == ({"uno": 2, "hearts": 1}, {"expect_failed": 3}, 2)
    assert report.expectations == {
        "uno": {"high": [4, 2], "known": [4, 2], "level": [4, 2], "positive": [4, 2]},
        "hearts": {"high": [1, 1], "known": [2, 0], "positive": [1, 1]},
    }
    counts = lake.opened.units.manifests.read(1).counts
    assert (counts["dropped"], counts["expectations"]) == (2, report.expectations)


def test_a_lake_without_rules_has_no_trace_of_them(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {})
    lake.take(batch_of([bet("uno", "", None), b"junk"]))
    assert "_definition" not in pl.read_delta(str(lake.lake.path("silver_uno_events"))).columns
    assert not {"rules", "table", "definition"} & set(pl.read_delta(str(lake.lake.path("quarantine_events"))).columns)
    assert "dropped" not in lake.opened.units.manifests.read(1).counts
    assert not lake.lake.storage.exists(Lake.definitions)


def test_a_column_that_the_rows_version_lacks_is_null(tmp_path: Path) -> None:
    rules = {"limit": {"check": '"limit" IS NULL OR bet <= "LIMIT"', "action": "drop"}}
    lake = lake_of(tmp_path, rules)
    lake.take(batch_of([bet("uno", "a", 9), bet("uno", "b", 9, decodable=LATER, limit=8)]))
    assert rows(lake, "silver_uno_events", "_offset") == [(0,)]
    assert rows(lake, "dropped_events", "offset") == [(1,)]


def test_a_rule_names_the_columns_about_the_record(tmp_path: Path) -> None:
    rules = {"first": {"check": "_partition = 0 AND _offset < 1 AND _topic = 't' AND _schema_id = 7", "action": "drop"}}
    lake = lake_of(tmp_path, rules)
    lake.take(batch_of([bet("uno", "a", 9), bet("uno", "b", 9), bet("uno", "c", 9, decodable=LATER)]))
    assert rows(lake, "silver_uno_events", "_offset") == [(0,)]


def test_a_rule_without_columns(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"never": {"check": "1 = 2", "action": "quarantine"}})
    lake.take(batch_of([bet("uno", "a", 9)] * 3))
    assert lake.lake.tables() == ["bronze_events", "quarantine_events"]


def test_definitions_are_numbered_once_and_for_ever(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    one = {"a": Expectation(check="x > 1", action="drop")}
    two = one | {"b": Expectation(check="y > 1", action="warn", tables=("uno", "spades"))}
    first, both = Definition(1, (Rule("a", "x > 1", "drop"),)), (Rule("a", "x > 1", "drop"), Rule("b", "y > 1", "warn"))
    assert record(lake, {}) == Definitions()
    assert record(lake, one) == Definitions(first)
    later = record(lake, two)
    assert later == Definitions(first, {"uno": Definition(2, both), "spades": Definition(2, both)})
    assert (later.of("uno"), later.of("hearts")) == (Definition(2, both), first)
    assert record(lake, {"a": Expectation(check="x > 2", action="drop")}).usual.number == 3  # type: ignore[union-attr]
    assert record(lake, one | {"a": Expectation(check="x > 1", action="drop", description="words")}).usual == first
    lake.storage.replace(Lake.definitions, b"{")
    with pytest.raises(ContractError, match=r"definitions\.json is damaged"):
        record(lake, one)


def test_rules_that_change_apply_to_later_rows(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"positive": {"check": "bet > 0", "action": "drop"}})
    lake.take(batch_of([bet("uno", "a", 0), bet("uno", "b", 1)]))
    lake.units._definitions = record(lake.lake, {"positive": Expectation(check="bet >= 0", action="drop")})
    lake.take(batch_of([bet("uno", "a", 0), bet("uno", "b", -1)], first=2))
    lake.units._definitions = record(lake.lake, {})
    lake.take(batch_of([bet("uno", "b", -1)], first=4))
    assert rows(lake, "silver_uno_events", "_offset", "_definition") == [(1, 1), (2, 2), (4, None)]
