"""Converts decoded values of `confluent.type.Decimal` to DECIMAL columns.

A value is an integer of any number of bytes, big-endian in two's complement, and its own scale. It fits if the column
has exactly its number, and if the integer has at most 38 digits.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.protobuf.columns.decimals import MOST_DIGITS

WIDTH = 16  # bytes of an integer in Arrow's decimals
WIDEST = pa.decimal128(MOST_DIGITS, 0)
MOST = 10**MOST_DIGITS - 1


def convert_decimals(values: pa.StructArray, kind: pa.Decimal128Type) -> tuple[pa.Array, np.ndarray]:
    """The values in the type `kind`, NULL if one does not fit; for each whether it fits. An absent part is zero."""
    integers, fits = _integers(pc.struct_field(values, "value"))
    scales = pc.struct_field(values, "scale").fill_null(0).to_numpy()
    shifts = np.clip(kind.scale - scales, -MOST_DIGITS - 1, MOST_DIGITS + 1)
    shifts[np.asarray(pc.equal(integers, pa.scalar(0, WIDEST)))] = 0
    made, places = [pa.nulls(0, kind)], [np.arange(0)]
    for shift in np.unique(shifts).tolist():
        own = np.flatnonzero(shifts == shift)
        shifted, exact = _shifted(integers.take(pa.array(own)), shift, kind)
        fits[own] &= exact
        made.append(shifted)
        places.append(own)
    ordered = pa.concat_arrays(made).take(pa.array(np.argsort(np.concatenate(places))))
    return pc.if_else(pc.and_(pa.array(fits), values.is_valid()), ordered, pa.scalar(None, kind)), fits


def _integers(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(the integers, and 0 for NULL or too many digits; for each whether it has not too many)."""
    values = values.fill_null(b"")
    long = pc.greater(pc.binary_length(values), WIDTH)
    if pc.any(long, min_count=0).as_py():
        short = pa.array(map(_shorten, values.filter(long).to_pylist()), pa.binary())
        values = pc.replace_with_mask(values, long, short)
    fits = np.asarray(values.is_valid())
    integers = _read(values.fill_null(b"").take(pa.array(np.arange(len(values)))))
    few = _within(integers, MOST)
    return pc.if_else(pa.array(few), integers, pa.scalar(0, WIDEST)), fits & few


def _shorten(value: bytes) -> bytes | None:
    """The same integer in `WIDTH` bytes; None if it has too many digits."""
    integer = int.from_bytes(value, "big", signed=True)
    return integer.to_bytes(WIDTH, "big", signed=True) if abs(integer) <= MOST else None


def _read(values: pa.BinaryArray) -> pa.Array:
    """The integers of at most `WIDTH` bytes each; `values` is no slice of another array and has no NULL."""
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int32, len(values) + 1)
    bytes_ = np.frombuffer(data or b"", np.uint8, offsets[-1])
    lengths = np.diff(offsets)
    negative = np.zeros(len(values), bool)
    negative[lengths > 0] = bytes_[offsets[:-1][lengths > 0]] >= 0x80
    little = np.where(negative, 0xFF, 0).astype(np.uint8)[:, None].repeat(WIDTH, axis=1)  # the sign's bits in front
    rows = np.repeat(np.arange(len(values)), lengths)
    little[rows, offsets[1:][rows] - 1 - np.arange(len(bytes_))] = bytes_
    return pa.Array.from_buffers(WIDEST, len(values), [None, pa.py_buffer(little.tobytes())])


def _shifted(integers: pa.Array, shift: int, kind: pa.Decimal128Type) -> tuple[pa.Array, np.ndarray]:
    """The integers, none of more than 38 digits, with `shift` more digits behind, or fewer, as those of the type;
    whether each has this form."""
    if abs(shift) > MOST_DIGITS:
        return pa.nulls(len(integers), kind), np.zeros(len(integers), bool)
    largest = 10**kind.precision - 1
    fits = _within(integers, largest // 10**shift if shift > 0 else min(MOST, largest * 10**-shift))
    given = pc.if_else(pa.array(fits), integers, pa.scalar(0, WIDEST))
    given = given.view(pa.decimal128(MOST_DIGITS, kind.scale - shift))
    made = given.cast(kind, safe=False)
    return made, fits & np.asarray(pc.equal(made.cast(given.type), given)) if shift < 0 else fits


def _within(integers: pa.Array, most: int) -> np.ndarray:
    low, high = pa.scalar(-most, WIDEST), pa.scalar(most, WIDEST)
    return np.asarray(pc.and_(pc.greater_equal(integers, low), pc.less_equal(integers, high)))
