"""Parsed messages to Arrow columns, field by field: the fallback for what ptars does not read as upb does.

Gives the types of `typemap` and so the same schema as the fast path.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from spark_app.records import Cause, Reject
from spark_app.worker.decode.typemap import WRAPPERS, arrow_schema, is_json, is_map, map_fields, ordered_fields

FIRST_MICROSECOND = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
LAST_MICROSECOND = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
LONGEST_DURATION = 315_576_000_000_999_999  # microseconds: ten thousand years, the most google.protobuf.Duration allows

NO_TEXT = "a string of the message is not UTF-8"
Convert = Callable[[Any], Any]


class OutOfRange(ValueError):
    """A timestamp or duration that is not one."""


class ColumnBuilder:
    """Builds the columns of one message type; its converters are made once."""

    def __init__(self, message: Descriptor):
        self.schema = arrow_schema(message)
        self._row = _struct_converter(message, (message.full_name,))

    def build(self, rows: list[tuple[int, Message]]) -> tuple[pa.Table, list[int], list[Reject]]:
        """(columns, their row numbers, refused rows)."""
        values, kept, refused = [], [], []
        for row, message in rows:
            try:
                values.append(self._row(message))
                kept.append(row)
            except OutOfRange as error:
                refused.append((row, Cause.DECODE_RANGE, str(error)))
            except UnicodeError:
                refused.append((row, Cause.DECODE_PAYLOAD, NO_TEXT))
        try:
            return self._table(values), kept, refused
        except (pa.ArrowException, UnicodeError, TypeError):
            good = [self._is_storable(value) for value in values]
        refused += [(row, Cause.DECODE_PAYLOAD, NO_TEXT) for row, ok in zip(kept, good, strict=True) if not ok]
        table = self._table([value for value, ok in zip(values, good, strict=True) if ok])
        return table, [row for row, ok in zip(kept, good, strict=True) if ok], refused

    def _table(self, values: list[dict[str, Any]]) -> pa.Table:
        arrays = [pa.array([value[f.name] for value in values], f.type) for f in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _is_storable(self, value: dict[str, Any]) -> bool:
        try:
            self._table([value])
        except (pa.ArrowException, UnicodeError, TypeError):
            return False
        return True


def _struct_converter(message: Descriptor, above: tuple[str, ...]) -> Convert:
    readers = [(f.name, _reader(f, above)) for f in ordered_fields(message)]
    return lambda value: {name: read(value) for name, read in readers}


def _reader(field: FieldDescriptor, above: tuple[str, ...]) -> Convert:
    """Reads a field from its message: NULL where it has presence and is absent."""
    name = field.name
    if is_map(field):
        key, value = (_value_converter(f, above) for f in map_fields(field))
        return lambda message: [(key(k), value(v)) for k, v in sorted(getattr(message, name).items())]
    convert = _value_converter(field, above)
    if field.is_repeated:
        return lambda message: [convert(value) for value in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _value_converter(field: FieldDescriptor, above: tuple[str, ...]) -> Convert:
    message = field.message_type
    if message is None:
        return _enum_converter(field) if field.type == FieldDescriptor.TYPE_ENUM else _same
    if message.full_name == "google.protobuf.Timestamp":
        return _timestamp
    if message.full_name == "google.protobuf.Duration":
        return _duration
    if message.full_name in WRAPPERS:
        return lambda value: value.value
    if is_json(message, above):
        return partial(_json, message.file.pool)
    if not message.fields:
        return lambda value: True
    return _struct_converter(message, (*above, message.full_name))


def _same(value: Any) -> Any:
    return value


def _enum_converter(field: FieldDescriptor) -> Convert:
    assert field.enum_type is not None
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return lambda number: names.get(number, str(number))


def _timestamp(value: Any) -> int:
    micros: int = value.seconds * 1_000_000 + int(value.nanos / 1_000)
    if not FIRST_MICROSECOND <= micros <= LAST_MICROSECOND:
        raise OutOfRange(f"timestamp of {value.seconds} s is outside the years 1 to 9999")
    return micros


def _duration(value: Any) -> int:
    micros: int = value.seconds * 1_000_000 + int(value.nanos / 1_000)
    if abs(micros) > LONGEST_DURATION:
        raise OutOfRange(f"duration of {value.seconds} s is longer than ten thousand years")
    return micros


def _json(pool: Any, value: Message) -> str:
    """Protobuf's JSON form. What has none (an Any of a type that nobody sent, NaN in a Value) is kept as bytes."""
    try:
        return json_format.MessageToJson(
            value, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=pool
        )
    except (json_format.Error, TypeError, ValueError):
        type_url = getattr(value, "type_url", "") or value.DESCRIPTOR.full_name
        data = value.value if type_url != value.DESCRIPTOR.full_name else value.SerializeToString()  # type: ignore[attr-defined]
        return json.dumps({"@type": type_url, "value": base64.b64encode(data).decode()})
