"""Decoded columns into the columns of the tables.

A table's column keeps the type the first version gave it. A version that has another type for the field fits where
each of its values does; a row with a value that does not is refused.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.records import Cause, Reject


def fit(table: pa.Table, columns: pa.Schema) -> tuple[pa.Table, np.ndarray, list[Reject]]:
    """(fitted rows, their row numbers, the refused rows)."""
    bad: dict[int, str] = {}
    fitted = []
    for field in table.schema:
        column, misfits = _fit_column(table.column(field.name), columns.field(field.name).type)
        fitted.append(column)
        for row in misfits:
            bad.setdefault(int(row), f"{field.name}: {field.type} does not fit {columns.field(field.name).type}")
    result = pa.table(fitted, schema=pa.schema([columns.field(name) for name in table.schema.names]))
    rows = np.arange(table.num_rows)
    if bad:
        rows = np.setdiff1d(rows, list(bad))
        result = result.take(pa.array(rows))
    return result, rows, [(row, Cause.DECODE_TYPE, detail) for row, detail in sorted(bad.items())]


def _fit_column(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, list[int]]:
    if column.type == kind:
        return column, []
    try:
        return column.cast(kind), []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = column.to_pylist()
        good = [_fits(value, column.type, kind) for value in values]
    kept = pa.array([value if ok else None for value, ok in zip(values, good, strict=True)], column.type)
    misfits = [row for row, ok in enumerate(good) if not ok]
    return pa.chunked_array([_cast_or_nulls(kept, kind)], kind), misfits


def _cast_or_nulls(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.nulls(len(array), kind) if array.null_count == len(array) else array.cast(kind)


def _fits(value: object, kind: pa.DataType, target: pa.DataType) -> bool:
    if value is None:
        return True
    try:
        pc.cast(pa.scalar(value, kind), target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
