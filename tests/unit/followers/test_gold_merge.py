"""Small gold tables are folded in memory, large ones merged by delta-rs: nobody must see a difference."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spark_app.followers.gold import tables as gold_tables
from spark_app.followers.gold.merging import fold
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.tables import GoldTables
from spark_app.model.gold_functions import GOLD_FUNCTIONS
from spark_app.settings.gold import Aggregate, Window
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from tests.chaos.units import open_lake

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "count": (pa.int64(), st.integers(0, 1 << 40)),
    "sum_integer": (pa.int64(), st.integers(-(1 << 40), 1 << 40)),
    "sum_double": (pa.float64(), st.sampled_from([1.5, -2.0, 0.0, math.nan, math.inf])),
    "sum_decimal": (pa.decimal128(38, 2), st.decimals(-1000, 1000, places=2)),
    "min_double": (pa.float64(), st.sampled_from([1.5, -2.0, math.nan, math.inf, -math.inf])),
    "max_double": (pa.float64(), st.sampled_from([1.5, -2.0, math.nan, math.inf, -math.inf])),
    "max_float": (pa.float32(), st.sampled_from([1.5, -2.0, math.nan])),
    "min_text": (pa.string(), st.text("ab", max_size=2)),
    "max_bytes": (pa.binary(), st.binary(max_size=2)),
    "max_decimal": (pa.decimal128(20, 3), st.decimals(-9, 9, places=3)),
    "min_moment": (pa.timestamp("us", "UTC"), st.integers(0, 9).map(lambda n: MOMENT + timedelta(seconds=n))),
    "max_day": (pa.date32(), st.dates()),
}
assert {name.split("_")[0] for name in KINDS} == {name for name, function in GOLD_FUNCTIONS.items() if function.merge}
COLUMNS = pa.schema([("gamer", pa.string()), *((name, kind) for name, (kind, _) in KINDS.items())])
Rows = dict[str | None, dict[str, Any]]
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()})
PARTS = st.lists(
    st.dictionaries(st.none() | st.sampled_from("abcd"), ROW, min_size=1, max_size=4), min_size=2, max_size=3
)


def part_of(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([{"gamer": gamer, **row} for gamer, row in rows.items()], schema=COLUMNS)


def gold_after(folder: str, parts: list[Rows], function: str | None) -> dict[str | None, dict[str, str]]:
    """The rows by key, as text: NaN is equal to itself there. With a function all columns have that one."""
    columns = {name: {"function": function or name.split("_")[0], "field": "x"} for name in KINDS}
    settings = Settings.model_validate(
        {"lake": {"path": folder}, "event": {"key": "gamer"}, "gold": {"aggregates": columns}}
    )
    gold = GoldTables(OpenLake.of(open_lake(Path(folder)), settings), GoldSpec.all_of(settings)[0])
    for number, rows in enumerate(parts, 1):
        gold.merge("a", part_of(rows), number)
    assert gold.cursor("a") == len(parts)
    table = gold.get("a")
    assert table is not None
    assert pa.schema(table.schema().to_arrow()) == COLUMNS
    found = table.to_pyarrow_table().to_pylist()
    return {row["gamer"]: {name: repr(value) for name, value in row.items()} for row in found}


@pytest.mark.parametrize("function", [None, "median"], ids=["folded", "taken over"])
@hypothesis_settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=PARTS)
def test_in_memory_as_by_merge(monkeypatch: pytest.MonkeyPatch, parts: list[Rows], function: str | None) -> None:
    with TemporaryDirectory() as small, TemporaryDirectory() as large:
        monkeypatch.setattr(gold_tables, "SMALL_BYTES", 1 << 20)
        here = gold_after(small, parts, function)
        monkeypatch.setattr(gold_tables, "SMALL_BYTES", -1)
        assert here == gold_after(large, parts, function)


def test_what_is_folded_is_the_aggregate_of_all(tmp_path: Path) -> None:
    one = dict.fromkeys(KINDS) | {"count": 2, "sum_decimal": Decimal("1.25"), "max_double": math.nan}
    two = one | {"count": 3, "min_text": "b", "max_double": 5.0, "min_double": math.nan}
    three = two | {"min_text": "a", "min_double": 7.0}
    found = gold_after(str(tmp_path), [{"x": one, None: one}, {"x": two, "new": two}, {"x": three}], None)
    assert found.keys() == {"x", "new", None}
    assert {name: found["x"][name] for name in ("count", "max_double", "min_double", "min_text")} == {
        "count": "8",
        "max_double": "nan",
        "min_double": "7.0",
        "min_text": "'a'",
    }
    assert found["x"]["sum_decimal"] == "Decimal('3.75')"
    assert (found[None]["count"], found["new"]["count"]) == ("2", "3")


KEY_VALUES = st.tuples(st.sampled_from(["x", "y", "", None]), st.sampled_from([0, 1, -1, None]))


@pytest.mark.parametrize("key", [("a", "b"), ("b",), ()])
@given(st.lists(st.dictionaries(KEY_VALUES, st.integers(1, 9), max_size=6), min_size=1, max_size=4))
@hypothesis_settings(deadline=None)
def test_keys_of_several_columns_or_none(key: tuple[str, ...], parts: list[dict[Any, int]]) -> None:
    declared = {"n": Aggregate(function="count"), "most": Aggregate(function="max", field="v")}
    spec, total = GoldSpec(key, "t", declared), dict[Any, list[int]]()
    columns = pa.schema([("a", pa.string()), ("b", pa.int64()), ("n", pa.int64()), ("most", pa.int64())])
    columns = pa.schema([field for field in columns if field.name in (*key, "n", "most")])
    rows = columns.empty_table()
    for part in parts:
        own: dict[Any, int] = {}
        for values, number in part.items():
            own[tuple(dict(zip("ab", values, strict=True))[name] for name in key)] = number
        made = {name: [values[at] for values in own] for at, name in enumerate(key)}
        rows = fold(rows, pa.table(made | {"n": [1] * len(own), "most": list(own.values())}, columns), spec)
        for values, number in own.items():
            total.setdefault(values, []).append(number)
    found = {tuple(row[name] for name in key): (row["n"], row["most"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    assert found == {values: (len(numbers), max(numbers)) for values, numbers in total.items()}


def test_a_session_replaces_those_of_its_key() -> None:
    spec = GoldSpec(("k",), "t", {"n": Aggregate(function="count")}, window=Window(gap="1 h"))
    kind = pa.timestamp("us", "UTC")
    columns = pa.schema(
        [("k", pa.string()), ("window_start", kind), ("window_end", kind), ("n", pa.int64()), ("_watermark", kind)]
    )

    def sessions(*rows: tuple[str, int, int]) -> pa.Table:
        made = ({"k": k, "window_start": at, "window_end": at, "n": n, "_watermark": at} for k, at, n in rows)
        return pa.Table.from_pylist(list(made), columns)

    old, part = sessions(("a", 1, 1), ("a", 5, 1), ("b", 1, 1)), sessions(("a", 1, 3), ("c", 2, 1))
    assert fold(old, part, spec).sort_by("k") == sessions(("a", 1, 3), ("b", 1, 1), ("c", 2, 1))
