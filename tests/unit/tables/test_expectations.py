"""Rows that fail an expectation: where they end, how they are counted, and what the tables say about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.lake.lake import Lake
from spark_app.model.definitions import Definition, Definitions, Expectation
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.settings.models import ExpectationSettings
from spark_app.tables.definitions import record
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text, message_class, renamed

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
    assert report.by_action == {"uno": {"quarantine": 3, "drop": 1, "warn": 1}, "hearts": {"drop": 1}}
    counts = lake.opened.units.manifests.read(1).counts
    assert (counts["dropped"], counts["expectations"]) == (2, report.expectations)


def test_a_lake_without_expectations_has_no_trace_of_them(tmp_path: Path) -> None:
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


def test_an_expectation_names_the_columns_about_the_record(tmp_path: Path) -> None:
    rules = {"first": {"check": "_partition = 0 AND _offset < 1 AND _topic = 't' AND _schema_id = 7", "action": "drop"}}
    lake = lake_of(tmp_path, rules)
    lake.take(batch_of([bet("uno", "a", 9), bet("uno", "b", 9), bet("uno", "c", 9, decodable=LATER)]))
    assert rows(lake, "silver_uno_events", "_offset") == [(0,)]


@pytest.mark.parametrize("column", ["_key", "_schema_guid"])
def test_a_column_of_the_lineage_that_no_row_has_is_null(tmp_path: Path, column: str) -> None:
    lake = lake_of(tmp_path, {"none": {"check": f"{column} IS NULL OR {column} <> ''", "action": "drop"}})
    report = lake.take(batch_of([bet("uno", "a", 9), bet("uno", "b", 9)]))
    assert (report.silver, report.dropped) == ({"uno": 2}, 0)


def test_an_expectation_without_columns(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"never": {"check": "1 = 2", "action": "quarantine"}})
    lake.take(batch_of([bet("uno", "a", 9)] * 3))
    assert lake.lake.tables() == ["bronze_events", "quarantine_events"]


def test_definitions_are_numbered_once_and_for_ever(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    one = {"a": ExpectationSettings(check="x > 1", action="drop")}
    two = one | {"b": ExpectationSettings(check="y > 1", action="warn", tables=("uno", "spades"))}
    both = Expectation("a", "x > 1", "drop"), Expectation("b", "y > 1", "warn")
    first = Definition(1, both[:1])
    assert record(lake, {}) == Definitions()
    assert record(lake, one) == Definitions(first)
    later = record(lake, two)
    assert later == Definitions(first, {"uno": Definition(2, both), "spades": Definition(2, both)})
    assert (later.of("uno"), later.of("hearts")) == (Definition(2, both), first)
    assert record(lake, {"a": ExpectationSettings(check="x > 2", action="drop")}).usual.number == 3  # type: ignore[union-attr]
    described = ExpectationSettings(check="x > 1", action="drop", description="words")
    assert record(lake, one | {"a": described}).usual == first
    lake.storage.replace(Lake.definitions, b"{")
    with pytest.raises(ContractError, match=r"definitions\.json is damaged"):
        record(lake, one)


def test_expectations_that_change_apply_to_later_rows(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"positive": {"check": "bet > 0", "action": "drop"}})
    lake.take(batch_of([bet("uno", "a", 0), bet("uno", "b", 1)]))
    lake.opened.expectations.of_settings = record(
        lake.lake, {"positive": ExpectationSettings(check="bet >= 0", action="drop")}
    )
    lake.take(batch_of([bet("uno", "a", 0), bet("uno", "b", -1)], first=2))
    lake.opened.expectations.of_settings = record(lake.lake, {})
    lake.take(batch_of([bet("uno", "b", -1)], first=4))
    assert rows(lake, "silver_uno_events", "_offset", "_definition") == [(1, 1), (2, 2), (4, None)]


SENT = [
    bet("uno", "a", 5),
    bet("uno", "", 5),
    bet("uno", "b", 0),
    bet("uno", "d", 5, level="x"),
    bet("uno", "", 0, level="10"),
    bet("hearts", "e", 5, level="x"),
    bet("hearts", "f", None),
    bet("hearts", "g", 9, decodable=LATER, limit=8),
]


def test_the_audit_finds_nothing_wrong(tmp_path: Path) -> None:
    rules = RULES | {"limit": {"check": '"limit" IS NULL OR bet <= "limit"', "action": "drop", "tables": ["hearts"]}}
    rules |= {"own": {"check": "_topic = 't' AND _offset < 5000 AND _landed_at > _kafka_timestamp", "action": "drop"}}
    lake = lake_of(tmp_path, rules)
    lake.take(batch_of(SENT))
    lake.opened.expectations.of_settings = record(
        lake.lake, {"odd": ExpectationSettings(check="_offset % 2 = 1", action="quarantine")}
    )
    lake.take(batch_of([*SENT, b"junk"], first=8))
    verdict = lake.audit()
    assert {name: found for name, found in verdict.faults().items() if name[0] != "gold"} == {}
    assert {name: rows for name, rows in verdict.rows.items() if name.startswith(("d", "q"))} == {
        "dropped_events": 3, "quarantine_events": 8
    }  # fmt: skip


def rewrite(lake: SmallLake, table: str, change: Any) -> None:
    """Replace the rows of a table by changed ones."""
    path = str(lake.lake.path(table))
    rows = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, pa.Table.from_pylist(change(rows.to_pylist()), rows.schema), mode="overwrite")


def changed(at: int, **values: Any) -> Any:
    """The row of an offset with other values."""
    return lambda rows: [row | values if at in (row.get("offset"), row.get("_offset")) else row for row in rows]


def without(offset: int) -> Any:
    return lambda rows: [row for row in rows if row["offset"] != offset]


@pytest.mark.parametrize(
    ("table", "change", "kind"),
    [
        ("silver_uno_events", changed(0, gamer_id=""), "misplaced"),
        ("silver_uno_events", changed(0, _definition=9), "altered"),
        ("silver_hearts_events", changed(5, _definition=2), "misplaced"),  # by uno's rules it fails
        ("quarantine_events", changed(1, rules=["level"]), "altered"),
        ("quarantine_events", changed(1, rules=["known", "level"]), "altered"),
        ("quarantine_events", changed(1, table="silver_hearts_events"), "altered"),
        ("quarantine_events", changed(1, definition=9), "altered"),
        ("quarantine_events", changed(1, definition=None), "altered"),
        ("quarantine_events", without(3), "lost"),
        ("quarantine_events", lambda rows: [*rows, rows[0]], "doubled"),
        ("dropped_events", changed(2, rules=["known"]), "altered"),
        ("dropped_events", without(2), "lost"),
        ("dropped_events", changed(2, offset=0), "doubled"),
        ("dropped_events", changed(2, offset=1), "doubled"),
        ("dropped_events", changed(2, partition=3), "phantom"),
    ],
)
def test_the_audit_finds_what_was_tampered_with(tmp_path: Path, table: str, change: Any, kind: str) -> None:
    lake = lake_of(tmp_path)
    lake.take(batch_of(SENT))
    rewrite(lake, table, change)
    assert kind in {found for found, name in lake.audit().counts}


def test_the_audit_finds_a_good_row_that_was_kept_out(tmp_path: Path) -> None:
    """As if the app had checked the row by other rules than those that it names."""
    lake = lake_of(tmp_path, {"none": {"check": "bet > 100", "action": "quarantine"}})
    lake.take(batch_of(SENT))
    file = lake.lake.storage.get(Lake.definitions)
    lake.lake.storage.replace(Lake.definitions, file.replace(b"bet > 100", b"bet > 4"))
    counts = lake.audit().counts
    assert counts["misplaced", "quarantine_events"] == 5  # 0, 1, 3, 5, 7 pass


def test_the_audit_finds_another_action(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"none": {"check": "bet > 100", "action": "drop"}})
    lake.take(batch_of(SENT))
    file = lake.lake.storage.get(Lake.definitions)
    lake.lake.storage.replace(Lake.definitions, file.replace(b'"drop"', b'"quarantine"'))
    assert lake.audit().counts["misplaced", "dropped_events"] == len(SENT)


@pytest.mark.parametrize(
    "failing", [(), (0,), (9,), (0, 2, 4, 6, 8), (0, 2, 4, 5, 6, 8), tuple(range(9)), tuple(range(10))]
)
@pytest.mark.parametrize("action", ["drop", "quarantine"])
def test_rows_land_however_many_fail_beside_them(tmp_path: Path, failing: tuple[int, ...], action: str) -> None:
    """Even offsets are of one table and odd ones of the other; each version of the schema has half of the rows."""
    lake = lake_of(tmp_path, {"positive": {"check": "bet > 0", "action": action}})
    games, versions = ("uno", "rummy"), (BETS, LATER)
    sent = [bet(games[n % 2], "a", int(n not in failing), decodable=versions[n // 5]) for n in range(10)]
    lake.take(batch_of(sent))
    landed = [n for n in range(10) if n not in failing]
    for parity, game in enumerate(games):
        own = [(n, 1, 1) for n in landed if n % 2 == parity]
        there = DeltaTable.is_deltatable(str(lake.lake.path(f"silver_{game}_events")))
        assert own == (rows(lake, f"silver_{game}_events", "_offset", "bet", "_definition") if there else [])
    kept_out = {"drop": "dropped_events", "quarantine": "quarantine_events"}[action]
    if failing:
        assert rows(lake, kept_out, "offset") == [(n,) for n in failing]
    assert not lake.audit().counts


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"check": "bett > 0", "action": "warn"}, r"expectations\.one\.check: no column .* did you mean bet\?"),
        ({"check": "bet", "action": "warn"}, r"expectations\.one\.check: is of the type BIGINT"),
        ({"check": "bet > 0 AND", "action": "warn", "tables": ["uno"]}, r"expectations\.one\.check: is not one SQL"),
        ({"check": "weight > 0", "action": "warn", "tables": ["uno"]}, r"expectations\.one\.check: .*"),
    ],
)
def test_an_expectation_that_cannot_be_is_refused(tmp_path: Path, rule: dict[str, Any], said: str) -> None:
    text = "message Horse { string game_name = 1; bytes weight = 2; }"
    lake = SmallLake(tmp_path, BETS, compile_text(PROTO3 + text, schema_id=9), expectations={"one": rule})
    with pytest.raises(ConfigurationError, match=said):
        lake.units.check_expectations()


def test_an_expectation_only_has_to_fit_its_own_tables(tmp_path: Path) -> None:
    horses = compile_text(
        PROTO3 + "message Bet { string game_name = 1; string bet = 3; string breed = 5; }", schema_id=9
    )
    horses = renamed(horses, 9, "races")
    rules = {
        "positive": {"check": "bet % 2 = 1", "action": "drop", "tables": ["uno"]},
        "bred": {"check": "breed IS NULL", "action": "warn"},
    }
    lake = SmallLake(tmp_path, BETS, horses, expectations=rules)
    lake.units.check_expectations()
    lake.take(batch_of([bet("uno", "a", 5), bet("uno", "b", 4)]))
    lake.units.check_expectations()
    assert rows(lake, "silver_uno_events", "_offset") == [(0,)]


def test_expectations_are_read_before_there_is_a_schema(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, expectations={"one": {"check": "random() > 0.5", "action": "drop"}})
    with pytest.raises(ConfigurationError, match=r"expectations\.one\.check: random\(\)"):
        lake.units.check_expectations()
    SmallLake(tmp_path, expectations={"one": {"check": "anything > 0.5", "action": "drop"}}).units.check_expectations()
