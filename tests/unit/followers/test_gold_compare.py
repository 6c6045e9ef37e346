"""A gold table next to what it should be: each key that differs is named, in memory that Arrow's columns take."""

import math
import tracemalloc
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spark_app.followers.gold.tables import differing_keys

COLUMNS = pa.schema(
    [
        ("gamer", pa.string()),
        ("total", pa.int64()),
        ("top", pa.float64()),
        ("text", pa.string()),
        ("all", pa.list_(pa.int64())),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "total": st.none() | st.integers(0, 2),
        "top": st.none() | st.sampled_from([1.0, 1.0 + 1e-12, 2.0, math.nan, math.inf, -math.inf]),
        "text": st.none() | st.sampled_from("ab"),
        "all": st.none() | st.lists(st.integers(0, 1), max_size=2),
    }
)
ROWS = st.dictionaries(st.none() | st.sampled_from("abcd"), ROW, max_size=4)


def table_of(rows: dict[str | None, dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"gamer": gamer, **row} for gamer, row in rows.items()], schema=COLUMNS)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


@hypothesis_settings(max_examples=200, deadline=None)
@given(found=ROWS, due=ROWS)
def test_each_key_with_another_row_is_named(
    found: dict[str | None, dict[str, Any]], due: dict[str | None, dict[str, Any]]
) -> None:
    wrong = {
        gamer
        for gamer in found.keys() | due.keys()
        if gamer not in found or gamer not in due or not all(same(found[gamer][n], due[gamer][n]) for n in due[gamer])
    }
    named = differing_keys(table_of(found), table_of(due), ["gamer"])
    assert (set(named), len(named)) == (wrong, len(wrong))


def test_a_key_that_is_there_twice_differs() -> None:
    row = {"total": 1, "top": 1.0, "text": "a", "all": []}
    due = table_of({"x": row, "y": row})
    assert differing_keys(pa.concat_tables([due, due.slice(0, 1)]), due, ["gamer"]) == ["x"]


@pytest.mark.parametrize(
    ("found", "due", "differs"),
    [
        (pa.array([5]), pa.array([Decimal(5)], pa.decimal128(38, 0)), False),
        (pa.array([Decimal(2**63)], pa.decimal128(38, 0)), pa.array([5]), True),
        (pa.array(["5"]), pa.array([5]), True),
        (pa.array([[5]]), pa.array([5]), True),
        (pa.array([5]), pa.array([5.0]), False),
    ],
    ids=str,
)
def test_values_of_other_types_are_compared_where_they_can_be(found: pa.Array, due: pa.Array, differs: bool) -> None:
    tables = [pa.table({"gamer": ["x"], "v": values}) for values in (found, due)]
    assert differing_keys(*tables, ["gamer"]) == (["x"] if differs else [])


def test_other_columns_make_every_key_differ() -> None:
    assert differing_keys(pa.table({"gamer": ["x"], "a": [1]}), pa.table({"gamer": ["x"], "b": [1]}), ["gamer"]) == [
        "x"
    ]


def test_equal_rows_never_become_python_objects() -> None:
    keys = [str(number) for number in range(100_000)]
    table = pa.table({"gamer": keys, **{name: range(100_000) for name in "abcd"}})
    tracemalloc.start()
    try:
        assert differing_keys(table, table, ["gamer"]) == []
        assert tracemalloc.get_traced_memory()[1] < 20_000_000  # as dicts it is 100 MB
    finally:
        tracemalloc.stop()
