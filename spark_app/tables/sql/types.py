"""The types that silver's columns have: each type of DuckDB becomes one of them, or cannot be written.

Times and dates outside of the years 1 to 9999, which no reader knows, become NULL.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

TIMESTAMP = pa.timestamp("us", "UTC")
Written = tuple[str, pa.DataType]  # the name of the type in DuckDB's SQL, and in Arrow

INTEGER: Written = ("BIGINT", pa.int64())
LARGE: Written = ("DECIMAL(20, 0)", pa.decimal128(20, 0))
MOMENT: Written = ("TIMESTAMP WITH TIME ZONE", TIMESTAMP)
FLAT: dict[str, Written] = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"), INTEGER),
    "ubigint": LARGE,
    "hugeint": ("DECIMAL(38, 0)", pa.decimal128(38, 0)),
    "float": ("DOUBLE", pa.float64()),
    "double": ("DOUBLE", pa.float64()),
    "varchar": ("VARCHAR", pa.string()),
    "blob": ("BLOB", pa.binary()),
    "boolean": ("BOOLEAN", pa.bool_()),
    "date": ("DATE", pa.date32()),
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"), MOMENT),
}
# The first and the last of those that readers know.
RANGES = {
    TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),  # microseconds since 1970
    pa.date32(): (-719_162, 2_932_896),  # days
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # of a field in a struct: other names need a newer Delta protocol


class NotWritable(ValueError):
    """No column of silver can have the type; the text says what to do."""


def written_type(kind: DuckDBPyType) -> Written:
    """The type in which a value of DuckDB's type is written.

    Raises:
        NotWritable: Delta's lowest protocol has no such type.
    """
    if kind.id in FLAT:
        return FLAT[kind.id]
    inner: dict[str, Any] = dict(kind.children) if kind.id in ("decimal", "list", "array", "map", "struct") else {}
    if kind.id == "decimal":
        precision, scale = int(inner["precision"]), int(inner["scale"])
        return f"DECIMAL({precision}, {scale})", pa.decimal128(precision, scale)
    if kind.id in ("list", "array"):
        sql, arrow = written_type(inner["child"])
        return f"{sql}[]", pa.list_(arrow)
    if kind.id == "map":
        (key, arrow_key), (value, arrow_value) = written_type(inner["key"]), written_type(inner["value"])
        return f"MAP({key}, {value})", pa.map_(arrow_key, arrow_value)
    if kind.id == "struct" and all(NAME.fullmatch(name) for name in inner):
        fields = {name: written_type(child) for name, child in inner.items()}
        sql = _struct((name, one) for name, (one, _) in fields.items())
        return sql, pa.struct([(name, arrow) for name, (_, arrow) in fields.items()])
    raise NotWritable(f"has the type {kind}, which no column can have: cast it, such as (...)::VARCHAR")


def _struct(fields: Iterable[tuple[str, str]]) -> str:
    parts = ", ".join(f'"{name}" {kind}' for name, kind in fields)
    return f"STRUCT({parts})"


def null_of(kind: pa.DataType) -> str:
    """An expression that is NULL, of a type that silver has."""
    return f"CAST(NULL AS {_sql_of(kind)})"


def _sql_of(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"{_sql_of(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({_sql_of(kind.key_type)}, {_sql_of(kind.item_type)})"
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return _struct((field.name, _sql_of(field.type)) for field in fields)
    return next(sql for sql, arrow in FLAT.values() if arrow == kind)


def bounded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without times and dates that no reader knows, at any depth: they are NULL, and so is a map with such a
    key."""
    if not _has_times(column.type):
        return column
    return pa.chunked_array([_bounded(chunk) for chunk in column.chunks], column.type)


@functools.lru_cache(maxsize=4096)
def _has_times(kind: pa.DataType) -> bool:
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return kind in RANGES or any(_has_times(one) for one in inner)


def _bounded(array: pa.Array) -> pa.Array:
    kind = array.type
    if kind in RANGES:
        return _within(array, *RANGES[kind])
    if not _has_times(kind):
        return array
    array = array.take(pa.array(np.arange(len(array))))  # so that its parts begin where it does
    if pa.types.is_struct(kind):
        parts = [_bounded(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        return _bounded_map(array)
    return pa.ListArray.from_arrays(array.offsets, _bounded(array.values), type=kind, mask=array.is_null())


def _bounded_map(array: pa.MapArray) -> pa.MapArray:
    keys, items, mask = _bounded(array.keys), _bounded(array.items), array.is_null()
    if keys.null_count:
        lost_before = np.concatenate([[0], np.cumsum(keys.is_null().to_numpy(zero_copy_only=False))])
        mask = pc.or_(mask, pa.array(np.diff(lost_before[array.offsets.to_numpy()]) > 0))
        keys = pc.fill_null(keys, pa.scalar(0, keys.type))
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=array.type, mask=mask)


def _within(array: pa.Array, low: int, high: int) -> pa.Array:
    numbers = array.view(pa.int64() if array.type == TIMESTAMP else pa.int32())
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (low <= bounds["min"] and bounds["max"] <= high):
        return array
    inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(inside, array, pa.scalar(None, array.type))
