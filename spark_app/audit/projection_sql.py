"""Evaluates the expressions of projections in a database of its own, with its own `hmac()`."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.audit.expectation_sql import ROWS, SETTINGS, columns_of, with_missing

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# RFC 2104: H(K xor opad, H(K xor ipad, text)), where `outer` and `inner` are the two keys of one block.
DIGEST = "sha256(getvariable('outer') || unhex(sha256(getvariable('inner') || encode(CAST(x AS VARCHAR)))))"
MOMENT = pa.timestamp("us", "UTC")
YEARS_1_TO_9999 = {MOMENT: (-62_135_596_800_000_000, 253_402_300_799_999_999), pa.date32(): (-719_162, 2_932_896)}


@functools.cache
def _connection() -> DuckDBPyConnection:
    import duckdb  # most audits have no projections

    made = duckdb.connect(config={"threads": "1", "enable_external_access": "false"})
    for setting in SETTINGS:
        made.sql(setting)
    overloads = (f"(x {kind}) AS {DIGEST}" for kind in ("VARCHAR", "HUGEINT", "DECIMAL(38, 0)"))
    made.sql(f"CREATE MACRO hmac{', '.join(overloads)}")
    return made


@functools.cache
def calls_hmac(text: str) -> bool:
    """Whether an expression calls `hmac()`."""
    rows = _connection().sql("SELECT json_serialize_sql($1::VARCHAR)", params=[f"SELECT {text}"]).fetchall()
    return _has_call(json.loads(rows[0][0]))


def _has_call(tree: Any) -> bool:
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict) and str(node.get("function_name", "")).lower() == "hmac":
            return True
        left += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return False


def use_key(key: bytes) -> None:
    """The key of all `hmac()` from now on."""
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key) + bytes(64)
    for name, pad in (("inner", b"\x36"), ("outer", b"\x5c")):
        padded = bytes(one ^ pad[0] for one in block[:64])
        _connection().sql(f'SET VARIABLE "{name}" = $1::BLOB', params=[padded])


def computed(rows: pa.Table, text: str, kind: pa.DataType, type_of: Callable[[str], pa.DataType]) -> pa.Array:
    """The values of an expression in the type of their column; NULL where it is an error.

    Args:
        type_of: as for `expectation_sql.failing`.

    Raises:
        ValueError: the expression has no value of this type.
    """
    import duckdb

    rows = with_missing(rows, columns_of(text), type_of)
    connection = _connection()
    connection.register(ROWS, rows)
    try:
        found = connection.sql(f'SELECT TRY((\n{text}\n)) AS made FROM "{ROWS}"')
        # HUGEINT has values of 39 digits, and a decimal has not; Arrow cuts nanoseconds off, which DuckDB rounds.
        given = str(found.types[0])
        written = given.replace("HUGEINT", "DECIMAL(38, 0)").replace("TIMESTAMP_NS", "TIMESTAMP")
        if written != given:
            found = connection.sql(f'SELECT TRY(CAST((\n{text}\n) AS {written})) AS made FROM "{ROWS}"')
        return _as_written(found.to_arrow_table()["made"].combine_chunks(), kind)
    except (duckdb.Error, pa.ArrowException) as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _connection.cache_clear()
        raise ValueError(type(error).__name__) from None
    finally:
        connection.unregister(ROWS)


def with_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in place of times and dates, at any depth."""
    if kind in YEARS_1_TO_9999:
        return pa.int64() if kind == MOMENT else pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(with_numbers(kind.field(i).type)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(with_numbers(kind.key_type), with_numbers(kind.item_type))
    return pa.list_(with_numbers(kind.value_type)) if pa.types.is_list(kind) else kind


def known_times(value: Any, kind: pa.DataType) -> Any:
    """A value in Python's form, its times as numbers, without those outside of the years 1 to 9999. `kind` is the type
    of before."""
    if value is None:
        return None
    if kind in YEARS_1_TO_9999:
        first, last = YEARS_1_TO_9999[kind]
        return value if first <= value <= last else None
    if pa.types.is_struct(kind):
        return {name: known_times(part, kind.field(name).type) for name, part in value.items()}
    if pa.types.is_map(kind):
        pairs = [(known_times(k, kind.key_type), known_times(v, kind.item_type)) for k, v in value]
        return None if any(key is None for key, _ in pairs) else pairs
    return [known_times(item, kind.value_type) for item in value] if pa.types.is_list(kind) else value


def _as_written(values: pa.Array, kind: pa.DataType) -> pa.Array:
    values = values.cast(kind, safe=False)
    if kind not in YEARS_1_TO_9999 or not len(values):
        return values
    first, last = YEARS_1_TO_9999[kind]
    numbers = values.view(pa.int64() if kind == MOMENT else pa.int32())
    there = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(there, values, pa.scalar(None, kind))
