"""Rows of many tables, told apart by a column: each gets its own and no other's."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.units.worker.table_rows import split_by_value

NAMES = [f"silver_game_{number}_events" for number in range(40)]


@given(
    st.lists(st.lists(st.sampled_from(NAMES), max_size=400), max_size=6),
)
def test_each_value_gets_its_rows(chunks: list[list[str]]) -> None:
    check(chunks)


@pytest.mark.parametrize("rows", [0, 1, 1_000, 40_000])
def test_each_value_gets_its_rows_however_many(rows: int) -> None:
    """Arrow's groups come in no order that one could rely on, as soon as there are hundreds of rows."""
    drawn = [NAMES[number * 7919 % 40] for number in range(rows)]
    check([drawn[: rows // 3], drawn[rows // 3 :]])


def check(chunks: list[list[str]]) -> None:
    flat = [name for chunk in chunks for name in chunk]
    names = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())
    rows = pa.table({"name": names, "row": pa.array(range(len(flat)), pa.int64())})
    found = {name: part["row"].to_pylist() for name, part in split_by_value(rows, "name")}
    expected = {name: [row for row, owner in enumerate(flat) if owner == name] for name in set(flat)}
    assert {name: sorted(found_rows) for name, found_rows in found.items()} == expected
