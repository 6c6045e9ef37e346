"""Builds Arrow columns in Python: the fallback for messages that ptars decodes differently from upb.

The columns have the types of `typemap`, so their schema is the same as that of the fast path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from spark_app.model.causes import Cause, Reject
from spark_app.protobuf.columns.json_text import to_json
from spark_app.protobuf.columns.timestamps import OutOfRange, duration, timestamp
from spark_app.protobuf.columns.types import (
    WRAPPERS,
    decoded_schema,
    enum_names,
    is_json,
    is_map,
    map_fields,
    ordered_fields,
)

NO_TEXT = "a string of the message is not UTF-8"
Convert = Callable[[Any], Any]
Row = tuple[Any, ...]


class ColumnBuilder:
    """Builds the columns of one message type; its converters are created once."""

    def __init__(self, message: Descriptor):
        self.schema = decoded_schema(message)
        self.row = _struct_converter(message, (message.full_name,))

    def build(self, rows: list[tuple[int, Message]]) -> tuple[pa.Table, list[int], list[Reject]]:
        """(columns, their row numbers, rejected rows). `rows` are row numbers with their messages."""
        values, kept, refused = [], [], []
        for row, message in rows:
            try:
                values.append(self.row(message))
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

    def _table(self, rows: list[Row]) -> pa.Table:
        columns = zip(*rows, strict=True) if rows else [()] * len(self.schema)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _is_storable(self, row: Row) -> bool:
        try:
            self._table([row])
        except (pa.ArrowException, UnicodeError, TypeError):
            return False
        return True


def _struct_converter(message: Descriptor, above: tuple[str, ...]) -> Callable[[Message], Row]:
    """Converts a message to the tuple of its field values, in field number order. Arrow accepts a tuple as a struct."""
    readers = [_reader(f, above) for f in ordered_fields(message)]
    return lambda value: tuple([read(value) for read in readers])


def _reader(field: FieldDescriptor, above: tuple[str, ...]) -> Convert:
    """Reads a field from its message: NULL if the field has presence and is absent."""
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
        return timestamp
    if message.full_name == "google.protobuf.Duration":
        return duration
    if message.full_name in WRAPPERS:
        return lambda value: value.value
    if is_json(message, above):
        return partial(to_json, message.file.pool)
    if not message.fields:
        return lambda value: True
    return _struct_converter(message, (*above, message.full_name))


def _same(value: Any) -> Any:
    return value


def _enum_converter(field: FieldDescriptor) -> Convert:
    assert field.enum_type is not None
    names = enum_names(field.enum_type)
    return lambda number: names.get(number, str(number))
