"""The audit of rows with rules: what the app writes is clean whatever a rule names, and a damaged row is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.audit.sent_rows import columns_of, failing
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text, message_class
from tests.unit.tables.test_expectations import BETS, LATER, bet, changed, lake_of, rewrite
from tests.unit.units import test_task_records as carried
from tests.unit.units.test_task_records import inner, wrap

RICH = compile_text(
    PROTO3
    + """
import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto";
enum Color { RED = 0; BLUE = 5; }
message Rich {
  string game_name = 1; map<string, int64> scores = 2; Part part = 3; repeated Part parts = 4;
  map<int32, Part> named = 5; google.protobuf.Struct free = 6; google.protobuf.Timestamp at = 7;
  google.protobuf.Duration took = 8; google.protobuf.Int32Value wrapped = 9; uint64 large = 10; Color color = 11;
  bytes raw = 12; Rich again = 13;
  float rate = 14; None none = 15; repeated google.protobuf.Timestamp moments = 16;
}
message Part { int32 x = 1; repeated float f = 2; map<string, Color> colors = 3; google.protobuf.Value any = 4; }
message None {}
""",
    schema_id=7,
)
FULL: dict[str, Any] = {
    "scores": {"a": 1, "b": 2},
    "part": {"x": 5, "f": [1.5, float("nan")], "colors": {"q": 5}},
    "parts": [{"x": 1}, {}],
    "named": {3: {"x": 9}},
    "at": {"seconds": 5, "nanos": 1500},
    "took": {"seconds": 2},
    "wrapped": {"value": 4},
    "large": 2**64 - 1,
    "color": 5,
    "raw": b"\xff\0",
    "rate": 0.5,
    "none": {},
    "moments": [{"seconds": 1}],
}
CHECKS = [  # true for FULL alone
    "scores['a'] = 1 AND cardinality(scores) = 2",
    "part.x = 5 AND part.f[1] = 1.5 AND isnan(part.f[2])",
    "part.colors['q'] = 'BLUE'",
    "len(parts) = 2 AND list_sum(list_transform(parts, lambda p: p.x)) = 1",
    "named[3].x = 9",
    """free LIKE '%"b": "é"%'""",
    "\"at\" = TIMESTAMPTZ '1970-01-01 00:00:05.000001' AND len(moments) = 1",
    "took = 2000000 AND wrapped = 4",
    "large = 18446744073709551615",
    "color = 'BLUE' AND octet_length(raw) = 2 AND rate = 0.5 AND none",
    "again LIKE '%uno%'",
]
UNO = "silver_uno_events"


def faults(lake: SmallLake) -> dict[tuple[str, str], int]:
    """Discrepancies but for gold, which these lakes have not got."""
    return {key: count for key, count in lake.audit().counts.items() if key[0] != "gold"}


def discrepancies(lake: SmallLake) -> list[tuple[str, str, str]]:
    """(kind, table, reason) of each but those of gold."""
    found = [wrong for wrongs in lake.audit().named.values() for wrong in wrongs if wrong.kind != "gold"]
    return [(wrong.kind, wrong.table, wrong.why) for wrong in found]


def rich() -> list[bytes]:
    """One message with all fields, then one with none."""
    kind = message_class(RICH, "Rich")
    full = kind(game_name="uno", **FULL)
    full.free.update({"b": "é"})  # type: ignore[attr-defined]
    full.again.game_name = "uno"  # type: ignore[attr-defined]
    return [frame(7, message.SerializeToString()) for message in (full, kind(game_name="uno"))]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("action", ["drop", "quarantine"])
def test_an_expectation_may_name_columns_of_every_type(tmp_path: Path, check: str, action: str) -> None:
    lake = SmallLake(tmp_path, RICH, expectations={"one": {"check": check, "action": action}})
    report = lake.take(batch_of(rich()))
    assert (report.silver, faults(lake)) == ({"uno": 1}, {})


@pytest.mark.parametrize("check", CHECKS)
def test_an_expectation_may_keep_every_row_out(tmp_path: Path, check: str) -> None:
    """There is no silver table then, which could say the types."""
    rules = {"one": {"check": f"NOT ({check})", "action": "drop"}, "two": {"check": check, "action": "quarantine"}}
    lake = SmallLake(tmp_path, RICH, expectations=rules)
    report = lake.take(batch_of(rich()))
    assert (report.silver, report.dropped) == ({}, 1)
    assert faults(lake) == {}


@pytest.mark.parametrize("check", ["score > 5", "score > 9", "_wrapper.game = 'uno' AND score > 5"])
def test_what_wrappers_carry(tmp_path: Path, check: str) -> None:
    settings: dict[str, Any] = {
        "event": {"routing": "game"},
        "wrapper": {"payload": "payload", "schema_id": "schema_id"},
        "expectations": {"one": {"check": check, "action": "drop"}},
    }
    lake = SmallLake(tmp_path, carried.OUTER, carried.UNO, **settings)
    lake.take(batch_of([wrap("uno", 11, inner(carried.UNO, "Uno", score=score)) for score in (5, 6)]))
    assert faults(lake) == {}


FAILING = {
    "null": "bet IS NULL OR bet > 0 OR NULL",
    "division by zero": "100 // (bet - 5) > 0",
    "cast": "CAST(level AS INTEGER) > 0",
    "overflow": "bet * 9223372036854775807 > 0",
    "a column of another version": '"limit" IS NULL OR bet > "limit"',
    "a parameter with the name of no column": "len(list_filter([bet], lambda y: y > 3)) = 1",
    "a deep one": "1 + (" * 190 + "bet" + ")" * 190 + " > 194",
}
SENT = [bet("uno", "a", amount, level) for amount in (-1, 0, 1, 5, 105, None) for level in ("1", "x", "")]
SENT += [bet("uno", "b", amount, decodable=LATER, limit=limit) for amount, limit in ((1, 5), (5, 1))]


@pytest.mark.parametrize("check", FAILING.values(), ids=FAILING)
def test_a_row_that_is_null_or_an_error_fails(tmp_path: Path, check: str) -> None:
    rules = {name: {"check": check, "action": name} for name in ("drop", "quarantine", "warn")}
    for action in rules:
        lake = lake_of(tmp_path / action, {action: rules[action]})
        report = lake.take(batch_of(SENT))
        assert faults(lake) == {}
        assert (report.silver.get("uno", 0) < len(SENT)) == (action != "warn")


def test_a_column_that_no_table_has(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"limit": {"check": '"limit" IS NULL OR bet <= "limit"', "action": "drop"}})
    lake.take(batch_of([bet("uno", "a", 5), bet("uno", "b", None)]))
    assert (faults(lake), lake.audit().rows[UNO]) == ({}, 2)


def test_what_is_lacking_is_null_and_what_cannot_be_evaluated_fails() -> None:
    rows = pa.table({"bet": [1, 2]})
    types = {"lacking": pa.int64()}
    chunk: Any = SimpleNamespace(
        snapshot=SimpleNamespace(types=types, projected=frozenset()), expected=SimpleNamespace(types={})
    )
    checks = ["lacking IS NULL", "bet > 1", "bet > 'x'", "(SELECT true FROM other)", "true"]
    found = [failed.tolist() for failed in failing(chunk, rows, checks)]
    assert found == [[False, False], [True, False], [True, True], [True, True], [False, False]]
    assert columns_of(["Bet > 1 AND list_filter(a.b, lambda X, i: x > y.z)[1] = i"]) == {"bet", "a", "y", "i"}


def with_decode(lake: SmallLake, **values: Any) -> None:
    """From now on the audit reads other settings than the app had."""
    decode = lake.settings.decode.model_copy(update=values)
    lake.settings = lake.settings.model_copy(update={"decode": decode})


def defaults(root: Path) -> tuple[SmallLake, str]:
    lake = lake_of(root, {"one": {"check": "level IS NULL", "action": "drop"}})
    lake.take(batch_of([bet("uno", "a", 5, level="")]))
    with_decode(lake, defaults=False)
    return lake, "decode.defaults"


def keys(root: Path) -> tuple[SmallLake, str]:
    key = compile_text(PROTO3 + "message Key { int64 id = 1; string name = 2; }", schema_id=2)
    text = frame(2, message_class(key, "Key")(id=5, name="é").SerializeToString())
    check = """_key IS NULL OR _key <> '{"id": "5", "name": "é"}'"""
    rules = {"one": {"check": check, "action": "quarantine"}}
    lake = SmallLake(root, BETS, key, decode={"framed_keys": True}, expectations=rules)
    lake.take(batch_of([bet("uno", "a", 5)], key=pa.array([text], pa.binary())))
    assert (faults(lake), lake.audit().notes) == ({}, {})
    with_decode(lake, framed_keys=False)
    return lake, "decode.framed_keys"


def bare(root: Path) -> tuple[SmallLake, str]:
    rules = {"one": {"check": "bet > 9", "action": "drop"}}
    lake = SmallLake(root, BETS, decode={"unframed_schema_id": 7}, expectations=rules)
    lake.take(batch_of([bet("uno", "a", 5)[6:]]))
    with_decode(lake, unframed_schema_id=0)
    return lake, "decode.unframed_schema_id"


def no_schema(root: Path) -> tuple[SmallLake, str]:
    lake = lake_of(root, {"one": {"check": "bet > 9", "action": "drop"}})
    lake.take(batch_of([bet("uno", "a", 5)]))
    lake.lake.storage.replace(lake.lake.ledger, b"[]")
    return lake, "the ledger cannot decode"


def lenient(root: Path) -> tuple[SmallLake, str]:
    """As if the fast decoder had read the first of two values, and not the last one."""
    rules = {"one": {"check": "bet > 9", "action": "drop"}, "two": {"check": "bet > 3", "action": "drop"}}
    lake = SmallLake(root, BETS, decode={"strict": False}, expectations=rules)
    lake.take(batch_of([bet("uno", "a", 5) + b"\x18\x01"]))
    rewrite(lake, "dropped_events", changed(0, rules=["one"]))
    return lake, "decode.strict"


@pytest.mark.parametrize("make", [defaults, keys, bare, no_schema, lenient])
def test_other_settings_are_reported(tmp_path: Path, make: Callable[[Path], tuple[SmallLake, str]]) -> None:
    lake, words = make(tmp_path)
    verdict = lake.audit()
    assert {key for key in verdict.counts if key[0] != "gold"} == set()
    assert any(words in note for note in verdict.notes)


RULES: dict[str, Any] = {
    "known": {"check": "gamer_id <> ''", "action": "quarantine"},
    "positive": {"check": "bet > 0", "action": "drop"},
    "small": {"check": "bet < 100", "action": "warn"},
}
FOUR = [bet("uno", "a", 5), bet("uno", "", 0), bet("uno", "b", 0), bet("uno", "c", 500)]  # 1 quarantined, 2 dropped


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    made = lake_of(tmp_path / "lake", RULES)
    report = made.take(batch_of(FOUR))
    assert (report.silver, report.quarantine, report.dropped) == ({"uno": 2}, {"expect_failed": 1}, 1)
    assert faults(made) == {}
    return made


def table(lake: SmallLake, name: str) -> pa.Table:
    return pa.table(DeltaTable(str(lake.lake.path(name))).to_pyarrow_table())


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("quarantine_events", changed(1, cause="route_cap", hop="route"), "cause"),
        ("quarantine_events", changed(1, rules=["positive"]), "rules: it fails known, positive"),
        ("quarantine_events", changed(1, rules=None), "rules: it fails known, positive"),
        ("quarantine_events", changed(1, table="silver_hearts_events"), "table"),
        ("quarantine_events", changed(1, definition=7), "definition"),
        ("dropped_events", changed(2, definition=7), "definition"),
        ("dropped_events", changed(2, definition=None), "definition"),
        ("dropped_events", changed(2, table=None), "table"),
        ("dropped_events", changed(2, rules=["positive", "small"]), "rules: it fails positive"),
        ("dropped_events", changed(2, schema_id=8), "schema_id"),
        (UNO, changed(0, _definition=7), "_definition"),
    ],
)
def test_each_column_is_compared(lake: SmallLake, name: str, change: Any, why: str) -> None:
    rewrite(lake, name, change)
    assert discrepancies(lake) == [("altered", name, why)]


def move(lake: SmallLake, root: Path, offset: int, definition: int | None) -> None:
    """Add the record to silver, as an app without rules would have written it."""
    other = SmallLake(root, BETS)
    other.take(batch_of(FOUR))
    own, rows = table(lake, UNO), table(other, UNO).to_pylist()
    row = next(row for row in rows if row["_offset"] == offset)
    landed = own["_landed_at"][0].as_py()
    new = pa.Table.from_pylist([row | {"_definition": definition, "_landed_at": landed}], own.schema)
    write_deltalake(str(lake.lake.path(UNO)), new, mode="append")


def remove(lake: SmallLake, name: str, offset: int) -> None:
    DeltaTable(str(lake.lake.path(name))).delete(f"offset = {offset}")


def resolve(lake: SmallLake, name: str, offset: int) -> None:
    """Say that a replay added the record to silver."""
    rows = [row for row in table(lake, name).to_pylist() if row["offset"] == offset]
    columns = ("topic", "topic_id", "partition", "offset", "schema_id")
    new = pa.table(
        {column: [row[column] for row in rows] for column in columns} | {"cause": ["dropped"] * len(rows)},
        pa.schema([table(lake, name).schema.field(column) for column in columns] + [("cause", pa.string())]),
    )
    write_deltalake(str(lake.lake.path("resolved_events")), new, mode="append")


@pytest.mark.parametrize(
    ("name", "offset", "rule"), [("quarantine_events", 1, "known"), ("dropped_events", 2, "positive")]
)
def test_a_failing_row_in_silver_is_misplaced(
    lake: SmallLake, tmp_path: Path, name: str, offset: int, rule: str
) -> None:
    move(lake, tmp_path / "other", offset, 1)
    assert faults(lake) == {("misplaced", UNO): 1, ("doubled", name): 1}
    remove(lake, name, offset)
    said = f"fails the expectation {rule} of definition 1"
    assert discrepancies(lake) == [("misplaced", UNO, said)]


@pytest.mark.parametrize(("name", "offset"), [("quarantine_events", 1), ("dropped_events", 2)])
def test_a_row_that_a_replay_added_is_clean_and_its_expectations_are_proven(
    lake: SmallLake, tmp_path: Path, name: str, offset: int
) -> None:
    move(lake, tmp_path / "other", offset, None)
    assert faults(lake) == {("doubled", name): 1}
    resolve(lake, name, offset)
    assert faults(lake) == {}
    rewrite(lake, name, changed(offset, rules=["small"]))
    assert faults(lake) == {("altered", name): 1}
    resolve(lake, name, offset)
    assert faults(lake)["phantom", "resolved_events"] == 1


def test_a_resolved_record_that_no_expectation_kept_out_is_a_phantom(lake: SmallLake) -> None:
    resolve(lake, "bronze_events", 0)
    assert faults(lake)["phantom", "resolved_events"] == 1


@pytest.mark.parametrize("name", ["quarantine_events", "dropped_events"])
def test_a_row_that_passes_does_not_belong_among_those_kept_out(lake: SmallLake, name: str) -> None:
    own, bronze = table(lake, name), table(lake, "bronze_events").to_pylist()
    first = next(row for row in bronze if row["offset"] == 0)
    row = own.to_pylist()[0] | {column: first[column] for column in own.column_names if column in first}
    write_deltalake(str(lake.lake.path(name)), pa.Table.from_pylist([row], own.schema), mode="append")
    DeltaTable(str(lake.lake.path(UNO))).delete("_offset = 0")
    said = f"passes the expectations of definition 1, and belongs in {UNO}"
    assert discrepancies(lake) == [("misplaced", name, said)]


def test_a_dropped_row_that_fails_an_expectation_of_quarantine_is_misplaced(lake: SmallLake) -> None:
    row = table(lake, "quarantine_events").to_pylist()[0]
    dropped = table(lake, "dropped_events")
    new = pa.Table.from_pylist([{n: row.get(n) for n in dropped.column_names}], dropped.schema)
    write_deltalake(str(lake.lake.path("dropped_events")), new, mode="append")
    remove(lake, "quarantine_events", 1)
    assert discrepancies(lake) == [("misplaced", "dropped_events", "the action is quarantine")]


def test_dropped_records_that_are_missing_or_unknown(lake: SmallLake) -> None:
    rewrite(lake, "dropped_events", changed(2, partition=3))
    assert faults(lake) == {("lost", UNO): 1, ("phantom", "dropped_events"): 1}
    remove(lake, "dropped_events", 2)
    assert faults(lake) == {("lost", UNO): 1}


def test_a_row_is_counted_once_however_many_expectations_it_fails(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"a": {"check": "bet > 3", "action": "drop"}, "b": {"check": "bet > 4", "action": "drop"}})
    lake.take(batch_of([bet("uno", "a", 5)] * 2))
    file = lake.lake.storage.get(lake.lake.definitions)
    lake.lake.storage.replace(lake.lake.definitions, file.replace(b"bet > ", b"bet < "))
    assert faults(lake) == {("misplaced", UNO): 2}
