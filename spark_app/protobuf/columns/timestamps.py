"""Timestamps and durations in microseconds, with their valid range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIRST_MICROSECOND = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
LAST_MICROSECOND = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
LONGEST_DURATION = 315_576_000_000_999_999  # microseconds: ten thousand years, the most google.protobuf.Duration allows
OUT_OF_RANGE = "a timestamp or duration is outside the years 1 to 9999"


class OutOfRange(ValueError):
    """A timestamp or duration is outside its valid range."""


def timestamp(value: Any) -> int:
    """Microseconds since 1970; nanoseconds are truncated towards zero.

    Raises:
        OutOfRange: it is outside the years 1 to 9999.
    """
    micros: int = value.seconds * 1_000_000 + int(value.nanos / 1_000)
    if not FIRST_MICROSECOND <= micros <= LAST_MICROSECOND:
        raise OutOfRange(f"timestamp of {value.seconds} s is outside the years 1 to 9999")
    return micros


def duration(value: Any) -> int:
    """Microseconds; nanoseconds are truncated towards zero.

    Raises:
        OutOfRange: it is longer than ten thousand years.
    """
    micros: int = value.seconds * 1_000_000 + int(value.nanos / 1_000)
    if abs(micros) > LONGEST_DURATION:
        raise OutOfRange(f"duration of {value.seconds} s is longer than ten thousand years")
    return micros


def any_out_of_range(batch: pa.RecordBatch) -> np.ndarray:
    """Boolean array: True for each row with a timestamp or duration that is out of range, at any depth."""
    bad = np.zeros(batch.num_rows, bool)
    for column in batch.columns:
        if _has_timestamps(column.type):
            bad |= out_of_range(column)
    return bad


def _has_timestamps(kind: pa.DataType) -> bool:
    moment = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    return moment or any(_has_timestamps(kind.field(i).type) for i in range(kind.num_fields))


def out_of_range(array: pa.Array) -> np.ndarray:
    """Boolean array: True for each row with a timestamp outside the years 1 to 9999 or a duration over ten thousand
    years, at any depth.

    ptars clamps values that do not fit in 64 bits; a clamped value is outside this range.
    """
    if pa.types.is_timestamp(array.type):
        return _outside(array, FIRST_MICROSECOND, LAST_MICROSECOND)
    if pa.types.is_duration(array.type):
        return _outside(array, -LONGEST_DURATION, LONGEST_DURATION)
    bad = np.zeros(len(array), bool)
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            bad |= out_of_range(child)
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        offsets = array.offsets.to_numpy()
        values = array.items if pa.types.is_map(array.type) else array.values
        parents = np.repeat(np.arange(len(array)), np.diff(offsets))
        bad[parents[out_of_range(values.slice(offsets[0], offsets[-1] - offsets[0]))]] = True
    return bad


def _outside(array: pa.Array, low: int, high: int) -> np.ndarray:
    micros = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    outside: np.ndarray = (micros < low) | (micros > high)
    return outside
