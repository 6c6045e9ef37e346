"""Sums beyond 64 bits, tables that cannot be computed, and every function of every type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.followers.gold import tables as gold_tables
from spark_app.model.gold_functions import GOLD_FUNCTIONS
from tests.spark.parts import Parts
from tests.spark.silver import add, check_audited, rows_of
from tests.spark.test_spark_gold import ONE, TWO, NewParts, opened
from tests.support.protos import PROTO3, compile_text

pytestmark = pytest.mark.spark

MOST = 2**63 - 1
SUMS = {"total": {"function": "sum", "field": "score"}, "games": {"function": "count"}}
SUMS_AND_MIDDLE = SUMS | {"middle": {"function": "median", "field": "score"}}


def totals(parts: Parts, name: str) -> dict[str | None, tuple[int | None, int]]:
    """Gamer -> (sum, count) as gold has them."""
    rows = parts.read(f"gold_{name}_player_agg").iter_rows(named=True)
    return {r["gamer_id"]: (None if r["total"] is None else int(r["total"]), r["games"]) for r in rows}


def type_of_total(parts: Parts, name: str) -> pa.DataType:
    return pa.schema(DeltaTable(parts.lake.path(f"gold_{name}_player_agg")).schema().to_arrow()).field("total").type


@pytest.mark.parametrize("aggregates", [SUMS, SUMS_AND_MIDDLE], ids=["merged", "recomputed"])
@pytest.mark.parametrize("small", [True, False], ids=["in memory", "by merge"])
def test_a_sum_beyond_64_bits_is_exact_and_stops_nobody(
    new_parts: NewParts,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    aggregates: dict[str, Any],
    small: bool,
) -> None:
    monkeypatch.setattr(gold_tables, "SMALL_BYTES", gold_tables.SMALL_BYTES if small else -1)
    parts = opened(new_parts, aggregates)
    add(parts, a=rows_of([("x", 1, MOST), ("y", 1, 5)]), b=ONE)
    parts.gold.run()
    assert type_of_total(parts, "a") == pa.int64()
    add(parts, a=rows_of([("x", 2, MOST), ("z", 2, -7)]), b=TWO)
    parts.gold.run()
    assert totals(parts, "a") == {"x": (2 * MOST, 2), "y": (5, 1), "z": (-7, 1)}
    assert totals(parts, "b") == {"x": (5, 3), "y": (3, 2), "z": (1, 1), None: (2, 2)}
    assert (type_of_total(parts, "a"), type_of_total(parts, "b")) == (pa.decimal128(38, 0), pa.int64())
    [line] = [line for line in capsys.readouterr().err.splitlines() if "exceed 64 bits" in line]
    assert "table=gold_a_player_agg column=total keys=1" in line
    add(parts, a=rows_of([("x", 3, -MOST), ("x", 3, -MOST), ("x", 3, 1)]))
    parts.gold.run()
    assert totals(parts, "a") == {"x": (1, 5), "y": (5, 1), "z": (-7, 1)}
    assert parts.gold.failed() == {}
    check_audited(parts)
    assert parts.gold.renew({"a", "b"}, dry_run=True)["gold_a_player_agg"]["differing"] == 0


def test_a_sum_that_passes_64_bits_and_comes_back_is_exact(new_parts: NewParts) -> None:
    parts = opened(new_parts, SUMS)
    add(parts, a=rows_of([("x", 1, MOST), ("x", 1, MOST), ("x", 1, -MOST), ("y", 1, None)]), b=ONE)
    assert parts.gold.run() == {"a": 2, "b": 3}
    assert totals(parts, "a") == {"x": (MOST, 3), "y": (None, 1)}
    assert type_of_total(parts, "a") == pa.int64()
    check_audited(parts)


@pytest.mark.parametrize("aggregates", [SUMS, SUMS_AND_MIDDLE], ids=["merged", "recomputed"])
def test_a_table_whose_silver_cannot_be_read_costs_the_others_nothing(
    new_parts: NewParts, aggregates: dict[str, Any]
) -> None:
    parts = opened(new_parts, aggregates)
    add(parts, a=ONE, b=ONE, c=ONE)
    parts.gold.run()
    add(parts, a=TWO, b=TWO, c=TWO)
    file = max(parts.lake.path("silver_b_events").glob("*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(b"damaged" * 9)
    assert parts.gold.run().keys() == {"a", "c"}
    assert list(parts.gold.failed()) == ["gold_b_player_agg"]
    assert parts.gold.cursor() == 2
    assert totals(parts, "a") == totals(parts, "c") == {"x": (5, 3), "y": (3, 2), "z": (1, 1), None: (2, 2)}
    assert totals(parts, "b") == {"x": (10, 2), "y": (3, 1), None: (2, 1)}  # as it was
    file.write_bytes(whole)
    add(parts, a=ONE)
    assert parts.gold.run().keys() == {"a"}  # the damaged one is tried again after a pause, or by the next process
    parts = opened(new_parts, aggregates)
    assert parts.gold.run().keys() == {"b"}
    assert parts.gold.failed() == {}
    assert totals(parts, "b") == totals(parts, "c")
    check_audited(parts)


def test_gold_that_a_rebuild_has_made_waits_for_no_pause(new_parts: NewParts) -> None:
    parts = opened(new_parts, SUMS)
    add(parts, a=ONE, b=ONE)
    [file] = parts.lake.path("silver_b_events").glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(b"damaged" * 9)
    assert parts.gold.run().keys() == {"a"}
    assert list(parts.gold.failed()) == ["gold_b_player_agg"]
    file.write_bytes(whole)
    assert parts.gold.renew({"b"}, dry_run=False)["gold_b_player_agg"]["rows"] == 3
    assert parts.gold.failed() == {}
    add(parts, a=TWO, b=TWO)
    assert parts.gold.run().keys() == {"a", "b"}
    assert totals(parts, "a") == totals(parts, "b")
    check_audited(parts)


ANY_TYPE = f"""{PROTO3} import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";
message Point {{ int64 x = 1; }} enum Suit {{ CLUBS = 0; HEARTS = 1; }}
message Event {{
  string game_name = 1; string gamer_id = 2; google.protobuf.Timestamp event_timestamp = 3; int64 score = 4;
  double d = 5; uint64 u = 6; bool b = 7; string s = 8; bytes y = 9; Suit e = 10; Point m = 11;
  repeated int64 l = 12; map<string, int64> p = 13; repeated Point r = 14; google.protobuf.Struct j = 15;
}}"""
FUNCTIONS = tuple(GOLD_FUNCTIONS)
MERGED = tuple(name for name, function in GOLD_FUNCTIONS.items() if function.merge)
ABOUT = tuple(f"about {name}" for name, function in GOLD_FUNCTIONS.items() if function.sketch)
FIELDS = ("event_timestamp", "score", "d", "u", "b", "s", "y", "e", "m", "l", "p", "r", "j", "nothing")


def declared(function: str, field: str) -> dict[str, Any]:
    """Of `about median` the approximate one."""
    plain = function.removeprefix("about ")
    q = {"q": 0.5} if GOLD_FUNCTIONS[plain].has_q else {}
    return {"function": plain, "field": field, "approximate": plain != function, **q}


@pytest.mark.parametrize("functions", [MERGED, (*MERGED, *ABOUT), FUNCTIONS], ids=["merged", "about", "recomputed"])
def test_every_function_of_every_type_gives_a_gold_table(new_parts: NewParts, functions: tuple[str, ...]) -> None:
    aggregates = {f"{f}_{name}".replace(" ", "_"): declared(f, name) for f in functions for name in FIELDS}
    parts = new_parts(gold={"aggregates": aggregates})
    parts.ledger.add_decodable(1, compile_text(ANY_TYPE).descriptor_set, 0.0)
    parts.tables.admit({key: ["Event"] for key in "ab"})
    columns = parts.tables.columns("a", parts.ledger.catalog().columns)
    values: dict[str, Any] = {
        "gamer_id": "x", "event_timestamp": 1, "score": MOST, "d": float("inf"), "u": 2**64 - 1, "b": True, "s": "5",
        "y": b"z", "e": "CLUBS", "m": {"x": 1}, "l": [1], "p": [("k", 1)], "r": [{"x": 1}], "j": "{}", "game_name": "a",
    }  # fmt: skip
    kept = [field for field in columns if field.name in values]
    rows = pa.table({f.name: pa.array([values[f.name]] * 2 + [None], f.type) for f in kept})
    for _ in range(2):
        add(parts, a=rows, b=ONE)
        assert parts.gold.run().keys() == {"a", "b"}
    assert parts.gold.failed() == {}
    found = {row["gamer_id"]: row for row in parts.read("gold_a_player_agg").iter_rows(named=True)}["x"]
    assert int(found["sum_score"]) == 4 * MOST
    assert int(found["sum_u"]) == 4 * (2**64 - 1)
    assert found["max_d"] == float("inf")
