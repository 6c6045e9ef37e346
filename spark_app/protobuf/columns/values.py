"""Converts values: timestamps and durations to microseconds, and messages without a fixed shape to JSON text."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from spark_app.model.record_schemas import FIRST_MICROSECOND, LAST_MICROSECOND
from spark_app.protobuf.columns.types import is_map, map_fields

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


MOST_NESTED = 8  # levels of Any within Any: each level contains a copy of all levels below
ANY = AnyMessage.DESCRIPTOR.full_name


def to_json(pool: Any, value: Message) -> str:
    """The message as JSON text; without a JSON form (an Any of an unknown type, NaN in a Value) its bytes in base64.

    Raises:
        UnicodeError: a string in it is not UTF-8: proto2 allows that, a text column does not.
    """
    if not _is_plain(pool, value, 0):
        return _as_bytes(value)
    try:
        return json_format.MessageToJson(
            value, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=pool
        )
    except (json_format.Error, TypeError, ValueError, RecursionError):
        return _as_bytes(value)


def _as_bytes(value: Any) -> str:
    """JSON text with the type name and the bytes in base64. Required fields of the message may be missing."""
    url, data = value.DESCRIPTOR.full_name, value.SerializePartialToString(deterministic=True)
    if url == ANY and value.type_url:
        url, data = value.type_url, value.value
    return json.dumps({"@type": url, "value": base64.b64encode(data).decode()}, ensure_ascii=False)


def _is_plain(pool: Any, message: Any, depth: int) -> bool:
    """Whether the type of every Any in the message is known.

    Raises:
        UnicodeError: a string is not UTF-8; its JSON form would be the text of a Python bytes literal.
    """
    if message.DESCRIPTOR.full_name == ANY and message.ListFields():
        return _is_plain_any(pool, message, depth)
    plain = True
    for field, value in message.ListFields():
        for kind, values in values_of(field, value):
            if kind.message_type is not None:
                for one in values:
                    plain = _is_plain(pool, one, depth) and plain
            elif kind.type == FieldDescriptor.TYPE_STRING and any(isinstance(one, bytes) for one in values):
                raise UnicodeError(f"{field.full_name} is not UTF-8")
    return plain


def _is_plain_any(pool: Any, message: Any, depth: int) -> bool:
    try:
        inner = GetMessageClass(pool.FindMessageTypeByName(message.TypeName())).FromString(message.value)
    except (KeyError, DecodeError):
        return False
    return depth < MOST_NESTED and _is_plain(pool, inner, depth + 1)


def values_of(field: FieldDescriptor, value: Any) -> list[tuple[FieldDescriptor, list[Any]]]:
    """The values of a field with the field that describes them. A map has two entries: its keys and its values."""
    if is_map(field):
        key, item = map_fields(field)
        return [(key, list(value)), (item, list(value.values()))]
    return [(field, list(value) if field.is_repeated else [value])]
