"""Builds Arrow columns of payloads: with ptars, or in Python where ptars decodes differently from upb.

Both give the types of `columns/types`. ptars is ten times faster. It fails a whole batch for one bad row without naming
the row, and panics on some inputs; both count as a failure, and the caller uses Google's parser.

`DefaultsToNull` turns default values into NULLs: on the wire a field without presence that has its default equals an
absent one. This is a separate step after decoding, the same for both. Elements of lists and values of maps are not
fields and keep their defaults; the fields of messages inside them do not.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from ptars import HandlerPool, PtarsConfig

from spark_app.model.causes import Cause, Reject
from spark_app.model.errors import pass_interrupts
from spark_app.protobuf.columns.types import (
    WRAPPERS,
    decoded_schema,
    enum_names,
    is_json,
    is_map,
    map_fields,
    ordered_fields,
    suits_ptars,
    value_type,
)
from spark_app.protobuf.columns.values import OutOfRange, any_out_of_range, duration, timestamp, to_json

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


CONFIG = PtarsConfig(timestamp_unit="us", duration_unit="us", timestamp_tz="UTC", enum_repr="string")


class FastColumns:
    """Builds the columns of batches of one message type."""

    def __init__(self, message: Descriptor, handler: Any):
        self._schema = decoded_schema(message)
        self._handler = handler

    def build(self, batches: list[bytes]) -> tuple[pa.Table, np.ndarray] | None:
        """(columns of the members whose timestamps are in range, a boolean array: True = member out of range); None if
        ptars fails."""
        try:
            members = self._handler.array_to_record_batch(pa.array(batches, pa.binary())).column(0).flatten()
            columns = pa.RecordBatch.from_struct_array(members)
        except BaseException as error:
            pass_interrupts(error)
            return None
        bad = any_out_of_range(columns)
        table = pa.Table.from_batches([columns]).rename_columns(self._schema.names)
        if bad.any():
            table = table.filter(pa.array(~bad))
        return table.cast(self._schema), bad


def fast_columns(message: Descriptor, batch: Descriptor) -> FastColumns | None:
    """None if ptars may decode the message wrongly, or cannot load its file or an import."""
    if not suits_ptars(message):
        return None
    try:
        return FastColumns(message, HandlerPool([batch.file], CONFIG).get_for_message(batch))
    except BaseException as error:
        pass_interrupts(error)
        return None


ToNull = Callable[[pa.Array], pa.Array]


class DefaultsToNull:
    """Replaces the default values of one message type by NULLs."""

    def __init__(self, message: Descriptor):
        self._defaults_to_null = _field_blanks(message, (message.full_name,))

    def apply(self, table: pa.Table) -> pa.Table:
        columns = [
            column if blank is None else pa.chunked_array([blank(chunk) for chunk in column.chunks], column.type)
            for blank, column in zip(self._defaults_to_null, table.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=table.schema)


def _field_blanks(message: Descriptor, above: tuple[str, ...]) -> list[ToNull | None]:
    return [_field_blank(field, above) for field in ordered_fields(message)]


def _field_blank(field: FieldDescriptor, above: tuple[str, ...]) -> ToNull | None:
    """The function that replaces a field's defaults by NULLs; None if the column stays unchanged."""
    if is_map(field):
        inner = _message_blank(map_fields(field)[1], above)
        return inner and partial(_blank_map, inner)
    if field.is_repeated:
        inner = _message_blank(field, above)
        return inner and partial(_blank_list, inner)
    if field.message_type is not None:
        return _message_blank(field, above)
    return None if field.has_presence else partial(_blank_scalar, _default(field))


def _message_blank(field: FieldDescriptor, above: tuple[str, ...]) -> ToNull | None:
    message = field.message_type
    if message is None or not pa.types.is_struct(value_type(field, above)):
        return None
    blanks = _field_blanks(message, (*above, message.full_name))
    return partial(_blank_struct, blanks) if any(blanks) else None


def _default(field: FieldDescriptor) -> Any:
    return enum_names(field.enum_type)[0] if field.enum_type is not None else field.default_value


def _blank_scalar(default: Any, array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):  # compare bits, because -0.0 is not the default and is sent
        return pc.if_else(pc.equal(array.view(pa.int64()), 0), pa.scalar(None, array.type), array)
    value = Decimal(default) if pa.types.is_decimal(array.type) else default
    return pc.if_else(pc.equal(array, pa.scalar(value, array.type)), pa.scalar(None, array.type), array)


def _blank_struct(blanks: list[ToNull | None], array: pa.Array) -> pa.Array:
    children = [child if blank is None else blank(child) for blank, child in zip(blanks, array.flatten(), strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=array.is_null())


def _blank_list(blank: ToNull, array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(array), blank(array.values), type=array.type, mask=array.is_null())


def _blank_map(blank: ToNull, array: pa.Array) -> pa.Array:
    items = blank(array.items)
    return pa.MapArray.from_arrays(_offsets(array), array.keys, items, type=array.type, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """A copy of the offsets. Arrow accepts no mask together with a sliced array."""
    return pa.array(array.offsets.to_numpy())
