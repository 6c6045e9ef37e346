"""The columns of `confluent.type.Decimal`.

A decoded value is the struct of the message's fields, because each value has its own scale. A field may declare the
precision and scale of its values, with `confluent.field_meta`: then the column of a new table is a DECIMAL.

A value is an integer of any number of bytes, big-endian in two's complement, and its own scale. It fits into a DECIMAL
column if the column has exactly its number, and if the integer has at most 38 digits.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

MESSAGE = "confluent.type.Decimal"
DECODED = pa.struct([("value", pa.binary()), ("precision", pa.int64()), ("scale", pa.int64())])
MOST_DIGITS = 38
NUMBER = re.compile("[0-9]{1,2}")


def declared_type(field: FieldDescriptor) -> pa.DataType | None:
    """The DECIMAL that a field declares for its values; None if it declares none, or one that does not exist."""
    params = _params_of(field)
    precision, scale = (params.get(name, "") for name in ("precision", "scale"))
    if not (NUMBER.fullmatch(precision) and NUMBER.fullmatch(scale)):
        return None
    if not (1 <= int(precision) <= MOST_DIGITS and int(scale) <= int(precision)):
        return None
    return pa.decimal128(int(precision), int(scale))


def _params_of(field: FieldDescriptor) -> dict[str, str]:
    """The parameters of `confluent.field_meta`."""
    try:
        options: Any = _options_class().FromString(field.GetOptions().SerializePartialToString())
    except DecodeError:
        return {}
    return {entry.key: entry.value for entry in options.meta.params}


@functools.cache
def _options_class() -> type[Message]:
    """A class that reads field options, with only what is needed of Confluent's extension: numbers of fields never
    change their meaning."""
    file = FileDescriptorProto(name="options.proto", package="p", syntax="proto3")
    fields = {
        "Options": [("meta", 1088, "Meta")],
        "Meta": [("params", 2, "Param")],
        "Param": [("key", 1, ""), ("value", 2, "")],
    }
    for message, members in fields.items():
        made = file.message_type.add(name=message)
        for name, number, kind in members:
            one = made.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING)
            if kind:
                one.type, one.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".p.{kind}"
            is_list = name == "params"
            one.label = FieldDescriptorProto.LABEL_REPEATED if is_list else FieldDescriptorProto.LABEL_OPTIONAL
    pool = DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Options"))


WIDTH = 16  # bytes of an integer in Arrow's decimals
WIDEST = pa.decimal128(MOST_DIGITS, 0)
MOST = 10**MOST_DIGITS - 1


def convert_decimals(values: pa.StructArray, kind: pa.Decimal128Type) -> tuple[pa.Array, np.ndarray]:
    """The values in the type `kind`, NULL if one does not fit; for each whether it fits. An absent part is zero."""
    integers, fits = _integers(pc.struct_field(values, "value"))
    scales = pc.struct_field(values, "scale").fill_null(0).to_numpy()
    shifts = np.clip(kind.scale - scales, -MOST_DIGITS - 1, MOST_DIGITS + 1)
    shifts[np.asarray(pc.equal(integers, pa.scalar(0, WIDEST)))] = 0
    made, positions = [pa.nulls(0, kind)], [np.arange(0)]
    for shift in np.unique(shifts).tolist():
        own = np.flatnonzero(shifts == shift)
        shifted, exact = _shifted(integers.take(pa.array(own)), shift, kind)
        fits[own] &= exact
        made.append(shifted)
        positions.append(own)
    ordered = pa.concat_arrays(made).take(pa.array(np.argsort(np.concatenate(positions))))
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
