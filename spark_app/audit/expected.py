"""Computes the row that a message must become, from Google's classes and the documentation only.

This module does not use the app's decoder.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from spark_app.model.record_schemas import RESERVED

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
AS_JSON = {f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue")}
LEVELS = 15
BIG, MOMENT = pa.decimal128(20, 0), pa.timestamp("us", "UTC")
BIGS = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
FLAT = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float64(),
}


class TimestampOutOfRange(ValueError):
    """The message holds a timestamp or duration outside the supported range."""


class NotUtf8(ValueError):
    """A string of the message is not UTF-8."""


@dataclass
class Json:
    """Equals every JSON text with the same value; the order of map entries does not matter."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Json):
            return bool(other.value == self.value)
        return isinstance(other, str) and json.loads(other) == self.value


def expected(message: Message, defaults: bool = True) -> dict[str, Any]:
    """The row that the message must become, in the form that `plain` returns. Without `defaults`, a field without
    presence is NULL unless it is on the wire.

    Raises:
        TimestampOutOfRange, NotUtf8: the message has a value that no column can store.
    """
    try:
        return {column.name: plain_value(column.read(message)) for column in columns_of(message.DESCRIPTOR, defaults)}
    except UnicodeDecodeError:
        raise NotUtf8 from None


def plain_value(value: Any) -> Any:
    """A value in the form that `plain` returns."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    return {name: plain_value(item) for name, item in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True)
class Column:
    """One field of a message.

    Attributes:
        kind: the type of its column; None if the column is nested or JSON.
        whole: the type of its column, whatever that is.
        read: returns the field's value of a message; structs are dicts, maps are sorted lists of pairs. It raises
            TimestampOutOfRange, NotUtf8 or UnicodeDecodeError.
    """

    name: str
    kind: pa.DataType | None
    whole: pa.DataType
    read: Callable[[Message], Any]


def columns_of(message: Any, defaults: bool) -> list[Column]:
    """The columns that a message becomes."""
    names = names_of(message, set(RESERVED))
    above = (message.full_name,)
    return [
        Column(names[f.number], _kind(f, above), _whole(f, above), _reader(f, above, defaults)) for f in message.fields
    ]


def _kind(field: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType | None:
    kind = field.message_type
    if field.is_repeated or (kind is not None and not _is_wrapper(kind) and kind.full_name not in TIMES):
        return None
    if kind is not None:
        return TIMES[kind.full_name] if kind.full_name in TIMES else _flat(kind.fields_by_name["value"])
    return _flat(field)


def _whole(field: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, item = (_item(field.message_type.fields_by_name[part], above) for part in ("key", "value"))
        return pa.map_(key, item)
    one = _item(field, above)
    return pa.list_(one) if field.is_repeated else one


def _item(field: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType:
    """The type of one value of the field; it has the same cases as `_value`."""
    kind = field.message_type
    if kind is None:
        return _flat(field)
    if kind.full_name in TIMES:
        return TIMES[kind.full_name]
    if _is_wrapper(kind):
        return _flat(kind.fields_by_name["value"])
    if _is_json(kind, above):
        return pa.string()
    if not kind.fields:
        return pa.bool_()
    names, inside = names_of(kind, set()), (*above, kind.full_name)
    return pa.struct([(names[f.number], _whole(f, inside)) for f in kind.fields])


def _is_json(kind: Descriptor, above: tuple[str, ...]) -> bool:
    return kind.full_name in AS_JSON or kind.full_name in above or len(above) >= LEVELS


def _flat(field: FieldDescriptor) -> pa.DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return BIG if field.type in BIGS else FLAT.get(field.cpp_type, pa.int64())


TIMES = {"google.protobuf.Timestamp": MOMENT, "google.protobuf.Duration": pa.int64()}


def _is_wrapper(kind: Descriptor) -> bool:
    return kind.file.name == "google/protobuf/wrappers.proto"


def names_of(message: Descriptor, reserved: set[str]) -> dict[int, str]:
    """Field number -> column name; no name is in `reserved`, and no two are equal when case is ignored."""
    fields = sorted(message.fields, key=lambda f: f.number)
    first: dict[str, int] = {}
    for field in fields:
        first.setdefault(field.name.lower(), field.number)
    names = {f.number: f.name for f in fields if first[f.name.lower()] == f.number and f.name.lower() not in reserved}
    for field in fields:
        name = field.name
        while field.number not in names:
            name += f"_{field.number}"
            if name.lower() not in reserved | set(first) | {n.lower() for n in names.values()}:
                names[field.number] = name
    return names


def _reader(field: FieldDescriptor, above: tuple[str, ...], defaults: bool) -> Callable[[Message], Any]:
    name, number = field.name, field.number
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, item = (_value(field.message_type.fields_by_name[part], above, defaults) for part in ("key", "value"))
        return lambda message: sorted(([key(k), item(v)] for k, v in getattr(message, name).items()), key=repr)
    one = _value(field, above, defaults)
    if field.is_repeated:
        return lambda message: [one(item) for item in getattr(message, name)]
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    if defaults:
        return lambda message: one(getattr(message, name))
    return lambda message: (
        one(getattr(message, name)) if any(sent.number == number for sent, _ in message.ListFields()) else None
    )


def _value(field: FieldDescriptor, above: tuple[str, ...], defaults: bool) -> Callable[[Any], Any]:
    """The function that converts one value of the field; a repeated field calls it for each item."""
    kind = field.message_type
    if kind is None:
        return _scalar(field)
    if kind.full_name in TIMES:
        return _duration if kind.name == "Duration" else _timestamp
    if _is_wrapper(kind):
        inner = _scalar(kind.fields_by_name["value"])
        return lambda value: inner(value.value)
    if _is_json(kind, above):
        return _json
    if not kind.fields:
        return lambda value: True
    names, inside = names_of(kind, set()), (*above, kind.full_name)
    readers = [(names[f.number], _reader(f, inside, defaults)) for f in kind.fields]
    return lambda value: {name: read(value) for name, read in readers}


def _scalar(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        names: dict[int, str] = {}
        for known in field.enum_type.values:
            names.setdefault(known.number, known.name)
        return lambda value: names.get(value, str(value))
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text
    return Decimal if field.type in BIGS else _same


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        raise NotUtf8
    return value


def _json(message: Any) -> Json:
    kind, pool = message.DESCRIPTOR, message.DESCRIPTOR.file.pool
    if not all(_is_text(*pair) for pair in _scalars(message)):
        raise NotUtf8
    try:
        text = json_format.MessageToJson(message, preserving_proto_field_name=True, descriptor_pool=pool)
        return Json(json.loads(text))
    except (json_format.Error, DecodeError, TypeError, ValueError):
        url, data = kind.full_name, message.SerializePartialToString(deterministic=True)
        if kind.full_name == "google.protobuf.Any" and message.type_url:
            url, data = message.type_url, message.value
        return Json({"@type": url, "value": base64.b64encode(data).decode()})


def _is_text(field: FieldDescriptor, value: Any) -> bool:
    return not (field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes))


def _scalars(message: Any) -> Iterator[tuple[FieldDescriptor, Any]]:
    """Every scalar value in a message, including those in an Any whose type is known."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Any":
        try:
            kind = message.DESCRIPTOR.file.pool.FindMessageTypeByName(message.TypeName())
            yield from _scalars(message_factory.GetMessageClass(kind).FromString(message.value))
        except (KeyError, DecodeError):
            pass
        return
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        try:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                entry = field.message_type.fields_by_name
                values = [(entry[n], one) for pair in value.items() for n, one in zip(entry, pair, strict=True)]
            elif field.is_repeated:
                values = [(field, one) for one in value]
            else:
                values = [(field, value)] if field.message_type is None or message.HasField(field.name) else []
        except UnicodeDecodeError:
            raise NotUtf8 from None
        for kind, one in values:
            if kind.message_type is None:
                yield kind, one
            else:
                yield from _scalars(one)


def _micros(value: Any) -> int:
    """Microseconds; the nanoseconds are rounded towards zero."""
    seconds, nanos = value.seconds, value.nanos
    return int(seconds * 1_000_000 + (nanos // 1000 if nanos >= 0 else -(-nanos // 1000)))


def _duration(value: Any) -> int:
    micros = _micros(value)
    if abs(micros) > 315_576_000_000_999_999:
        raise TimestampOutOfRange
    return micros


def _timestamp(value: Any) -> datetime.datetime:
    try:
        return EPOCH + datetime.timedelta(microseconds=_micros(value))
    except OverflowError:
        raise TimestampOutOfRange from None


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow's `to_pylist` with sorted maps and floats as text: NaN equals NaN, and -0.0 differs from 0.0."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return sorted(([plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in value), key=repr)
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {name: plain(item, kind.field(name).type) for name, item in value.items()}
    return repr(value) if isinstance(value, float) else value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as dicts, with values in the form that `plain` returns."""
    return [
        {name: plain(value, table.schema.field(name).type) for name, value in row.items()} for row in table.to_pylist()
    ]
