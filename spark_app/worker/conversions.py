"""Conversions of values to a column of another type, each with a test for lossless values.

They cover the type changes that a registry accepts as compatible, and conversions between numbers, because the message
types of one table may have different number types. A conversion is lossless if converting back gives the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

INTEGER, BIG, FLAG, TEXT, BYTES = pa.int64(), pa.decimal128(20, 0), pa.bool_(), pa.string(), pa.binary()
REAL = pa.float64()
EXACT = 2**53  # up to here a double represents every whole number exactly

Survives = Callable[[pa.ChunkedArray], pa.ChunkedArray]  # values -> whether each is lossless; NULL for a NULL value


def _always(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.true_unless_null(column)


def _between(low: object, high: object) -> Survives:
    def fits(column: pa.ChunkedArray) -> pa.ChunkedArray:
        first, last = pa.scalar(low, column.type), pa.scalar(high, column.type)
        return pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last))

    return fits


def _is_whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether a double is a whole number that doubles represent exactly."""
    return pc.and_(_between(-EXACT, EXACT)(column), pc.equal(pc.trunc(column), column))


def _is_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether bytes are UTF-8. Arrow can check only a whole array; if that fails, each value is checked by itself."""
    try:
        return _always(column.cast(TEXT))
    except pa.ArrowInvalid:
        return pa.chunked_array([[value is None or _decodes(value) for value in column.to_pylist()]], pa.bool_())


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


CONVERSIONS: Mapping[tuple[pa.DataType, pa.DataType], Survives] = {  # (the message's type, the column's)
    (INTEGER, BIG): _always,
    (BIG, INTEGER): _between(-(2**63), 2**63 - 1),
    (FLAG, INTEGER): _always,
    (INTEGER, FLAG): _between(0, 1),
    (INTEGER, TEXT): _always,
    (TEXT, BYTES): _always,
    (BYTES, TEXT): _is_text,
    (INTEGER, REAL): _between(-EXACT, EXACT),
    (REAL, INTEGER): _is_whole,
}


def fits_always(kind: pa.DataType, column: pa.DataType) -> bool:
    """Whether each value of a type is converted to the column's type; False also if none is."""
    return CONVERSIONS.get((kind, column)) is _always
