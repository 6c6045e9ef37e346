"""Evaluates the expressions of projections, in DuckDB: one statement for all expressions of some rows.

They may call `hmac(x)`: the HMAC-SHA256 of a text or an integer, as hex; NULL of NULL. Of a whole column it is computed
by Python, once for each distinct value. Inside of other expressions DuckDB computes it from the two padded keys, which
are variables of its connection that no expression can read.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.tables.sql.engine import ROWS, open_database, short_message, type_of_expression
from spark_app.tables.sql.names import calls, columns_in
from spark_app.tables.sql.types import NotWritable, Written, bounded, written_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HMAC = "hmac"
BARE = re.compile(r'\s*hmac\s*\(\s*"?([A-Za-z_]\w*)"?\s*\)\s*', re.IGNORECASE)
BLOCK = 64  # bytes of a block of SHA-256
PADS = {"inner pad": 0x36, "outer pad": 0x5C}
BODY = "sha256(getvariable('outer pad') || unhex(sha256(getvariable('inner pad') || encode(x::VARCHAR))))"
TYPES = ("VARCHAR", "HUGEINT", "DECIMAL(38, 0)")


class NoType(ValueError):
    """An expression has no type for the columns of these rows, or one that no column can have."""


@functools.cache
def connection() -> DuckDBPyConnection:
    """The connection of this process for expressions, which has `hmac()`; see `engine.open_database`."""
    made = open_database()
    made.sql(f"CREATE MACRO {HMAC}{', '.join(f'(x {kind}) AS {BODY}' for kind in TYPES)}")
    return made


def calls_hmac(text: str) -> bool:
    """Whether an expression needs the key."""
    return calls(text, HMAC)


@functools.lru_cache(maxsize=4096)
def type_of(text: str, fields: pa.Schema) -> Written | str:
    """The type of an expression's column; or, as a text, why it has none.

    Args:
        fields: the columns of the rows.
    """
    import duckdb

    try:
        return written_type(type_of_expression(connection(), text, fields))
    except (duckdb.Error, pa.ArrowException) as error:
        return short_message(str(error))
    except NotWritable as error:
        return str(error)


def evaluate(rows: pa.Table, columns: Mapping[str, str], key: bytes | None) -> dict[str, pa.ChunkedArray]:
    """The columns of expressions, by name. A value whose expression is an error is NULL.

    Args:
        rows: with every column that an expression names, and at least one.
        columns: name -> expression.
        key: of `hmac()`; None if no expression calls it.

    Raises:
        NoType: the text names the column.
    """
    if key is not None:
        _set_key(key)
    hashed: dict[str, pa.ChunkedArray] = {}
    left: dict[str, tuple[str, Written]] = {}
    for name, text in columns.items():
        kind = type_of(text, rows.schema)
        if isinstance(kind, str):
            raise NoType(f"{name}: {kind}")
        bare = _bare_hmac(text, rows)
        if bare is not None and key is not None:
            hashed[name] = _hmac_column(bare, key)
        else:
            left[name] = text, kind
    found = hashed | _select(rows, left)
    return {name: found[name] for name in columns}


def _set_key(key: bytes) -> None:
    block = (hashlib.sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    for name, pad in PADS.items():
        connection().sql(f'SET VARIABLE "{name}" = $1::BLOB', params=[bytes(byte ^ pad for byte in block)])


def _bare_hmac(text: str, rows: pa.Table) -> pa.ChunkedArray | None:
    """The column of an expression that is only the `hmac()` of a column."""
    bare = BARE.fullmatch(text)
    if bare is None or columns_in(text) != {bare[1]}:
        return None
    column = rows.column(next(name for name in rows.column_names if name.lower() == bare[1].lower()))
    return column if _is_hashable(column.type) else None


def _is_hashable(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_string(kind.value_type))
    return bool(pa.types.is_string(kind) or kind == pa.int64() or (pa.types.is_decimal(kind) and not kind.scale))


def _hmac_column(column: pa.ChunkedArray, key: bytes) -> pa.ChunkedArray:
    encoded = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
    return pa.chunked_array([_hmac_chunk(chunk, key) for chunk in encoded.chunks], pa.string())


def _hmac_chunk(chunk: pa.DictionaryArray, key: bytes) -> pa.Array:
    texts = chunk.dictionary.to_pylist()
    values = [None if text is None else hmac.digest(key, text.encode(), hashlib.sha256).hex() for text in texts]
    return pc.take(pa.array(values, pa.string()), chunk.indices)


def _select(rows: pa.Table, columns: Mapping[str, tuple[str, Written]]) -> dict[str, pa.ChunkedArray]:
    """The columns by name. If the statement fails although errors of expressions are caught, as without memory for a
    huge text, each half of the rows and then each column has a statement of its own, down to one NULL."""
    import duckdb

    if not columns:
        return {}
    try:
        found = _run(rows, list(columns.values()))
        return {name: _finish(found.column(i), kind) for i, (name, (_, (_, kind))) in enumerate(columns.items())}
    except (duckdb.Error, pa.ArrowException) as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            connection.cache_clear()  # all later statements would fail too
            raise
    if rows.num_rows > 1:
        half = rows.num_rows // 2
        parts = [_select(part, columns) for part in (rows.slice(0, half), rows.slice(half))]
        return {name: pa.chunked_array([c for part in parts for c in part[name].chunks]) for name in columns}
    if len(columns) > 1:
        return {n: column for name, one in columns.items() for n, column in _select(rows, {name: one}).items()}
    [(name, (_, (_, kind)))] = columns.items()
    return {name: pa.chunked_array([pa.nulls(rows.num_rows, kind)])}


def _run(rows: pa.Table, columns: Sequence[tuple[str, Written]]) -> pa.Table:
    # The line breaks end a comment at the end of an expression.
    parts = [f"TRY(CAST((\n{text}\n) AS {sql})) AS c{i}" for i, (text, (sql, _)) in enumerate(columns)]
    con = connection()
    con.register(ROWS, rows)
    try:
        return con.sql(f'SELECT {", ".join(parts)} FROM "{ROWS}"').to_arrow_table()
    finally:
        con.unregister(ROWS)


def _finish(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return bounded(column if column.type == kind else column.cast(kind))
