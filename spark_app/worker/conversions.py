"""Conversions of a value to a column of another type, each with the test of which values survive it unchanged.

These are the changes that a registry takes for compatible, and numbers, which message types of one table may disagree
on. A value survives where it can be changed back into itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

INTEGER, BIG, FLAG, TEXT, BYTES = pa.int64(), pa.decimal128(20, 0), pa.bool_(), pa.string(), pa.binary()
REAL = pa.float64()
EXACT = 2**53  # up to here each whole number is a double of its own

Survives = Callable[[pa.ChunkedArray], pa.ChunkedArray]  # values -> whether each survives; NULL where that says nothing


def _always(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.true_unless_null(column)


def _between(low: object, high: object) -> Survives:
    def fits(column: pa.ChunkedArray) -> pa.ChunkedArray:
        first, last = pa.scalar(low, column.type), pa.scalar(high, column.type)
        return pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last))

    return fits


def _is_whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A number without a fraction that a double tells apart from its neighbours."""
    return pc.and_(_between(-EXACT, EXACT)(column), pc.equal(pc.trunc(column), column))


def _is_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow says of a whole array only whether it is UTF-8: the values are looked at one by one where it is not."""
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
