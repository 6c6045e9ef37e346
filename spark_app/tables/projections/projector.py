"""Makes the columns of a projection, in DuckDB: one statement for all expressions of the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from spark_app.model.projections import Projection
from spark_app.tables.expectations.checks import LINEAGE
from spark_app.tables.expectations.needed_columns import fields_named, select_fields
from spark_app.tables.projections import keyed_hash
from spark_app.tables.projections.expressions import columns_of, connection, type_of
from spark_app.tables.projections.time_bounds import bounded
from spark_app.tables.projections.written_types import Written
from spark_app.tables.sql.engine import ROWS

BARE = re.compile(r'\s*hmac\s*\(\s*"?([A-Za-z_]\w*)"?\s*\)\s*', re.IGNORECASE)


class NoType(ValueError):
    """An expression has no type for the columns of these rows, or one that no column can have."""


def project(rows: pa.Table, projection: Projection, types: pa.Schema, key: bytes | None) -> pa.Table:
    """The rows of silver with the columns of the projection. New columns stand before those of the lineage.

    Args:
        rows: of one table, with the columns of the message and of the lineage.
        types: the types of columns that the rows may lack; such a column is NULL.
        key: of `hmac()`; None if no expression calls it.

    Raises:
        NoType: the text names the column.
    """
    made = dict(zip((name for name, _ in projection.columns), evaluate(rows, projection, types, key), strict=True))
    by_name = {name.casefold(): name for name in made}
    dropped = {name.casefold() for name in projection.drops}
    fields: dict[str, pa.ChunkedArray] = {}
    for name in rows.column_names:
        own = by_name.pop(name.casefold(), None)
        if name == LINEAGE.names[0]:
            fields |= {new: made[new] for folded, new in by_name.items() if not folded.startswith("_")}
        if own is not None:
            fields[own] = made[own]
        elif name.casefold() not in dropped:
            fields[name] = rows.column(name)
    return pa.table(fields | {new: made[new] for new in by_name.values()})


def evaluate(rows: pa.Table, projection: Projection, types: pa.Schema, key: bytes | None) -> list[pa.ChunkedArray]:
    """The columns of the expressions, in their order. A value whose expression is an error is NULL.

    Raises:
        NoType: see `project`.
    """
    names = {name for _, text in projection.columns for name in columns_of("", text)}
    needed = select_fields(rows, fields_named(names, rows.schema, types))
    if key is not None:
        keyed_hash.set_key(connection(), key)
    found: dict[str, pa.ChunkedArray] = {}
    left: dict[str, tuple[str, Written]] = {}
    for name, text in projection.columns:
        kind = type_of(text, needed.schema)
        if isinstance(kind, str):
            raise NoType(f"{name}: {kind}")
        hashed = _bare_hmac(text, needed)
        if hashed is not None and key is not None:
            found[name] = keyed_hash.hmac_column(hashed, key)
        else:
            left[name] = text, kind
    found |= _select(needed, left)
    return [found[name] for name, _ in projection.columns]


def _bare_hmac(text: str, rows: pa.Table) -> pa.ChunkedArray | None:
    """The column of an expression that is only the `hmac()` of a column."""
    bare = BARE.fullmatch(text)
    if bare is None or columns_of("", text) != {bare[1]}:
        return None
    column = rows.column(next(name for name in rows.column_names if name.lower() == bare[1].lower()))
    return column if keyed_hash.is_hashable(column.type) else None


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
