"""Makes times and dates NULL that no reader knows: those outside of the years 1 to 9999, at any depth of a column."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.tables.projections.written_types import TIMESTAMP

RANGES = {
    TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),  # microseconds since 1970
    pa.date32(): (-719_162, 2_932_896),  # days
}


def bounded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with NULL in place of such values; a map with such a key is NULL."""
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
