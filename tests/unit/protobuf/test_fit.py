"""A version with another type for a column: each value fits exactly, or its row is refused; nothing raises."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.merged_columns import merge_columns
from spark_app.lake.files.local import LocalStorage
from spark_app.protobuf.columns.conversions import CONVERSIONS
from spark_app.protobuf.columns.fit import fit
from tests.support.cost import least_cpu
from tests.support.examples import examples

TIMESTAMP = pa.timestamp("us", "UTC")
OLD = pa.struct([("a", pa.int64()), ("c", pa.int64())])
NEW = pa.struct([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
MOMENT = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 3),
    (pa.float64(), 1.5),
    (pa.decimal128(20, 0), Decimal(2**64 - 1)),
    (pa.bool_(), True),
    (pa.string(), "x"),
    (pa.binary(), b"\xff"),
    (TIMESTAMP, MOMENT),
    (OLD, {"a": 1, "c": 3}),
    (pa.list_(pa.int64()), [1]),
    (pa.list_(OLD), [{"a": 1, "c": 3}]),
    (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
]


def fit_one(kind: pa.DataType, value: Any, column: pa.DataType) -> tuple[list[Any], int]:
    """(what landed, how many rows were refused)."""
    table, rows, rejects = fit(pa.table({"f": pa.array([value, None], kind)}), pa.schema([("f", column)]))
    table.validate(full=True)
    assert len(rows) + len(rejects) == 2
    return table["f"].to_pylist(), len(rejects)


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@pytest.mark.parametrize("column", [kind for kind, _ in VALUES], ids=str)
def test_every_pair_of_types_routes_every_row(kind: pa.DataType, value: Any, column: pa.DataType) -> None:
    landed, refused = fit_one(kind, value, column)
    assert len(landed) + refused == 2


INT, REAL, BIG, FLAG = pa.int64(), pa.float64(), pa.decimal128(20, 0), pa.bool_()
FLAT = {INT: 1, REAL: 1.0, BIG: Decimal(1), FLAG: True, pa.string(): "1", pa.binary(): b"1"}
# What decoding.md says is converted; each of these values could be.
CONVERTED = {(INT, BIG), (BIG, INT), (INT, FLAG), (FLAG, INT), (INT, REAL), (REAL, INT), (INT, pa.string())}
CONVERTED |= {(pa.string(), pa.binary()), (pa.binary(), pa.string())}


@pytest.mark.parametrize("kind", FLAT, ids=str)
@pytest.mark.parametrize("column", FLAT, ids=str)
def test_only_what_the_documentation_says_is_converted(kind: pa.DataType, column: pa.DataType) -> None:
    landed, refused = fit_one(kind, FLAT[kind], column)
    if kind == column or (kind, column) in CONVERTED:
        assert (landed, refused) == ([FLAT[column], None], 0)
    else:
        assert (landed, refused) == ([None], 1)


@pytest.mark.parametrize(
    "nest",
    [
        (lambda kind: pa.struct([("a", kind)]), lambda value: {"a": value}),
        (pa.list_, lambda value: [value]),
        (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    ],
    ids=["struct", "list", "map"],
)
@pytest.mark.parametrize(("kind", "column"), sorted(CONVERTED, key=str), ids=str)
def test_the_same_is_converted_inside_another_type(nest: Any, kind: pa.DataType, column: pa.DataType) -> None:
    of, hold = nest
    assert fit_one(of(kind), hold(FLAT[kind]), of(column)) == ([hold(FLAT[column]), None], 0)


@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        (pa.float64(), 1.5, pa.decimal128(20, 0)),
        (pa.decimal128(20, 0), Decimal(2**64 - 1), pa.float64()),
        (pa.int64(), 2, pa.bool_()),
        (pa.float64(), 0.5, pa.bool_()),
        (pa.int64(), 2**53 + 1, pa.float64()),
        (pa.float64(), 0.5, pa.int64()),
        (pa.float64(), float("nan"), pa.int64()),
        (pa.float64(), 1e300, pa.int64()),
    ],
)
def test_a_value_is_never_changed_to_fit(kind: pa.DataType, value: Any, column: pa.DataType) -> None:
    assert fit_one(kind, value, column) == ([None], 1)


@pytest.mark.parametrize(
    ("kind", "value", "column", "due"),
    [
        (pa.int64(), 2**53, pa.float64(), 2.0**53),
        (pa.float64(), -2.0, pa.int64(), -2),
        (pa.int64(), 5, pa.string(), "5"),
        (pa.string(), "é", pa.binary(), "é".encode()),
    ],
)
def test_a_value_that_survives_the_change_lands(kind: pa.DataType, value: Any, column: pa.DataType, due: Any) -> None:
    assert fit_one(kind, value, column) == ([due, None], 0)


@pytest.mark.parametrize(
    ("wrap", "put"),
    [(lambda k: k, lambda v: v), (pa.list_, lambda v: [v]), (lambda k: pa.map_(pa.string(), k), lambda v: [("k", v)])],
    ids=["struct", "list", "map"],
)
@pytest.mark.parametrize(
    ("kind", "value"), [(NEW, {"a": 1, "b": 2, "c": 3}), (OLD, {"a": 1, "c": 3})], ids=["new", "old"]
)
def test_nested_fields_keep_their_names_whatever_their_order(
    kind: pa.DataType, value: Any, wrap: Any, put: Any
) -> None:
    column = merge_columns(pa.schema([("f", wrap(OLD))]), pa.schema([("f", wrap(NEW))])).field("f").type
    assert fit_one(wrap(kind), put(value), column) == ([put({"a": 1, "c": 3, "b": value.get("b")}), None], 0)


@pytest.mark.parametrize("value", [2**62, 5])
def test_integer_does_not_become_a_timestamp(value: int) -> None:
    assert fit_one(pa.int64(), value, TIMESTAMP) == ([None], 1)


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_file_says_itself_what_type_a_column_has(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    rows = pa.table({"f": pa.array([value, None], kind)})
    files.write_file(LocalStorage(tmp_path), "new/folder", "a.parquet", rows, "zstd")
    found = pq.read_table(tmp_path / "new" / "folder" / "a.parquet")
    assert found.equals(rows)
    assert found.schema.metadata is None


def test_statistics_of_a_timestamp_beyond_the_calendar_do_not_crash(tmp_path: Path) -> None:
    rows = pa.table({"t": pa.array([2**62], pa.int64()).cast(TIMESTAMP)})
    assert (
        "t" not in files.write_file(LocalStorage(tmp_path), ".", "a.parquet", rows, "zstd").stats.split("nullCount")[0]
    )


@pytest.mark.parametrize(
    ("micros", "bound"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
        (-30_610_224_000_000_000, "1000-01-01T00:00:00.000000Z"),
        (-30_610_224_000_000_001, None),
        (253_370_764_799_999_999, "9998-12-31T23:59:59.999999Z"),
        (253_370_764_800_000_000, None),
    ],
)
def test_bound_of_a_timestamp_is_exact_or_none(tmp_path: Path, micros: int, bound: str | None) -> None:
    rows = pa.table({"t": pa.array([micros], pa.int64()).cast(TIMESTAMP)})
    stats = json.loads(files.write_file(LocalStorage(tmp_path), ".", "a.parquet", rows, "zstd").stats)
    assert (stats["minValues"].get("t"), stats["maxValues"].get("t")) == (bound, bound)


def test_text_that_is_not_utf8_leaves_no_bounds(tmp_path: Path) -> None:
    buffers = [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
    rows = pa.table({"s": pa.Array.from_buffers(pa.string(), 1, buffers)})
    stats = json.loads(files.write_file(LocalStorage(tmp_path), ".", "a.parquet", rows, "zstd").stats)
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({}, {}, {"s": 0})


def test_nan_leaves_no_upper_bound(tmp_path: Path) -> None:
    entry = files.write_file(LocalStorage(tmp_path), ".", "a.parquet", pa.table({"x": [1.0, float("nan")]}), "zstd")
    assert '"maxValues": {}' in entry.stats


ODD: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 2, 2**53, 2**53 + 1, -(2**53), -(2**53) - 1]),
    pa.float64(): st.floats() | st.sampled_from([2.0**53, 2.0**53 + 2, -0.0, 2.0**63, -(2.0**63)]),
    pa.decimal128(20, 0): st.integers(-(2**63) - 2, 2**64 - 1).map(Decimal) | st.sampled_from([Decimal(2**63)]),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3) | st.text(max_size=3).map(str.encode),
}


def survives(value: pa.Array, kind: pa.DataType) -> bool:
    """Whether one value can be changed back into itself, by Arrow's own casts, which refuse what they would change."""
    try:
        return bool(value.cast(kind).cast(value.type).equals(value))
    except pa.ArrowException:
        return False


@pytest.mark.parametrize(("kind", "column"), CONVERSIONS, ids=lambda kind: str(kind))
@given(data=st.data())
@examples(0.3)
def test_each_value_lands_if_it_can_be_changed_back_into_itself(
    kind: pa.DataType, column: pa.DataType, data: st.DataObject
) -> None:
    values = pa.array(data.draw(st.lists(st.none() | ODD[kind], max_size=8)), kind)
    table, rows, rejects = fit(pa.table({"f": values}), pa.schema([("f", column)]))
    due = [row for row in range(len(values)) if not values[row].is_valid or survives(values.slice(row, 1), column)]
    assert rows.tolist() == due
    assert sorted([*rows, *(row for row, *_ in rejects)]) == list(range(len(values)))
    assert table["f"].combine_chunks().equals(values.take(pa.array(due, pa.int64())).cast(column))


def test_one_bad_value_costs_no_slice_of_each_other() -> None:
    values = pa.chunked_array([pa.array([*range(1, 50_000), 2**53 + 1], pa.int64())])
    columns = pa.schema([("f", pa.float64())])
    clean, one_bad = pa.table({"f": values.slice(0, 49_999)}), pa.table({"f": values})
    usual = least_cpu(lambda: fit(clean, columns), times=5)
    # A slice of the column for each value would take 20,000 times as long.
    assert least_cpu(lambda: fit(one_bad, columns), times=5) < 200 * usual
