"""The types that silver's columns have: each type of DuckDB becomes one of them, or cannot be written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
