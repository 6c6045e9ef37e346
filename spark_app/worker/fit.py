"""Decoded columns into the columns of the tables.

A table's column keeps the type the first version gave it. A version that has another type for the field fits where the
value survives the change: it can be changed back into itself. A row with a value that does not is refused.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_app.records import Cause, Reject
from spark_app.schemas.columns import grows

INTEGER, BIG, FLAG, TEXT, BYTES = pa.int64(), pa.decimal128(20, 0), pa.bool_(), pa.string(), pa.binary()
# What the registry takes for compatible, as (the version's type, the column's).
CHANGES = frozenset(
    {(INTEGER, BIG), (BIG, INTEGER), (FLAG, INTEGER), (INTEGER, FLAG), (INTEGER, TEXT), (TEXT, BYTES), (BYTES, TEXT)}
)


def fit(table: pa.Table, columns: pa.Schema) -> tuple[pa.Table, np.ndarray, list[Reject]]:
    """(fitted rows, their row numbers, the refused rows). Every field of `table` must be one of `columns`."""
    bad: dict[int, str] = {}
    fitted = []
    for field in table.schema:
        column, misfits = _fit_column(table.column(field.name), columns.field(field.name).type)
        fitted.append(column)
        for row in misfits:
            bad.setdefault(row, f"{field.name}: {field.type} does not fit {columns.field(field.name).type}")
    result = pa.table(fitted, schema=pa.schema([columns.field(name) for name in table.schema.names]))
    rows = np.arange(table.num_rows)
    if bad:
        rows = np.setdiff1d(rows, list(bad))
        result = result.take(pa.array(rows))
    return result, rows, [(row, Cause.DECODE_TYPE, detail) for row, detail in sorted(bad.items())]


def _fit_column(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, list[int]]:
    if column.type == kind:
        return column, []
    if grows(column.type, kind):
        return column.cast(kind), []
    values = [column.slice(row, 1) for row in range(len(column))]
    fits = (column.type, kind) in CHANGES
    good = [value.null_count == 1 or (fits and _survives(value, kind)) for value in values]
    kept = pa.chunked_array(
        [v if ok else pa.nulls(1, v.type) for v, ok in zip(_flat(values), good, strict=True)], column.type
    )
    misfits = [row for row, ok in enumerate(good) if not ok]
    return (kept.cast(kind) if fits else pa.chunked_array([pa.nulls(len(column), kind)])), misfits


def _survives(value: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        return bool(value.cast(kind).cast(value.type).equals(value))
    except pa.ArrowException:
        return False


def _flat(values: list[pa.ChunkedArray]) -> list[pa.Array]:
    return [value.combine_chunks() for value in values]
