"""What a message must land as, told by Google's classes alone and the rules of the documentation.

Nothing here knows the app's decoder.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from spark_app.records import Cause

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
AS_JSON = {f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue")}
OURS = {"_topic", "_topic_id", "_partition", "_offset", "_kafka_timestamp", "_schema_id", "_landed_at"}
OURS |= {"_key", "_wrapper", "_schema_guid"}
LEVELS = 15


class NoTime(ValueError):
    """The message holds a timestamp or duration beyond the calendar."""


class NoText(ValueError):
    """A string of the message is not UTF-8."""


@dataclass
class Json:
    """Equals every text of the same JSON value: the order of a map is nobody's promise."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and json.loads(other) == self.value


def judged(kind: type[Message], payload: bytes, defaults: bool = True) -> object:
    """The row by Google's parser, or the cause why there is none."""
    try:
        return expected(kind.FromString(payload), defaults)
    except (DecodeError, NoText):
        return Cause.DECODE_PAYLOAD
    except NoTime:
        return Cause.DECODE_RANGE


def expected(message: Message, defaults: bool = True) -> dict[str, Any]:
    """The row that the message must become, in the form that `plain` gives. Without `defaults`, a field that has no
    presence is NULL unless it is on the wire.

    Raises:
        NoTime, NoText: it cannot land.
    """
    return _Landing(defaults).row(message, (message.DESCRIPTOR.full_name,), OURS)


def names_of(message: Descriptor, taken: set[str]) -> dict[int, str]:
    """Column names by field number."""
    fields = sorted(message.fields, key=lambda f: f.number)
    first: dict[str, int] = {}
    for field in fields:
        first.setdefault(field.name.lower(), field.number)
    names = {f.number: f.name for f in fields if first[f.name.lower()] == f.number and f.name.lower() not in taken}
    for field in fields:
        name = field.name
        while field.number not in names:
            name += f"_{field.number}"
            if name.lower() not in taken | set(first) | {n.lower() for n in names.values()}:
                names[field.number] = name
    return names


class _Landing:
    def __init__(self, defaults: bool):
        self.defaults = defaults

    def row(self, message: Message, above: tuple[str, ...], taken: set[str]) -> dict[str, Any]:
        names = names_of(message.DESCRIPTOR, taken)
        sent = {field.number for field, _ in message.ListFields()}
        return {names[f.number]: self._field(message, f, above, sent) for f in message.DESCRIPTOR.fields}

    def _field(self, message: Message, field: FieldDescriptor, above: tuple[str, ...], sent: set[int]) -> Any:
        try:
            value = getattr(message, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                kinds = [field.message_type.fields_by_name[name] for name in ("key", "value")]
                found = [[self._one(p, k, above) for p, k in zip(item, kinds, strict=True)] for item in value.items()]
                return sorted(found, key=repr)
            if field.is_repeated:
                return [self._one(item, field, above) for item in value]
        except UnicodeDecodeError:
            raise NoText from None
        if field.number not in sent and (field.has_presence or not self.defaults):
            return None
        return self._one(value, field, above)

    def _one(self, value: Any, field: FieldDescriptor, above: tuple[str, ...]) -> Any:
        kind = field.message_type
        if kind is None:
            return _scalar(value, field)
        if kind.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
            return _time(value, kind)
        if kind.file.name == "google/protobuf/wrappers.proto":
            return _scalar(value.value, kind.fields_by_name["value"])
        if kind.full_name in AS_JSON or kind.full_name in above or len(above) >= LEVELS:
            return _json(value)
        return self.row(value, (*above, kind.full_name), set()) if kind.fields else True


def _json(message: Any) -> Json:
    kind, pool = message.DESCRIPTOR, message.DESCRIPTOR.file.pool
    if not all(_is_text(*pair) for pair in _scalars(message)):
        raise NoText
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
    """Every value in a message that is none, and in what it holds as Any where its type is known."""
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
            raise NoText from None
        for kind, one in values:
            if kind.message_type is None:
                yield kind, one
            else:
                yield from _scalars(one)


def _scalar(value: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return next((known.name for known in field.enum_type.values if known.number == value), str(value))
    if not _is_text(field, value):
        raise NoText
    if isinstance(value, float):
        return repr(value)
    unsigned = field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
    return Decimal(value) if unsigned else value


def _time(value: Any, kind: Descriptor) -> Any:
    """Nanoseconds are cut towards zero."""
    micros = value.seconds * 1_000_000 + (abs(value.nanos) // 1000) * (1 if value.nanos >= 0 else -1)
    if kind.name == "Duration":
        if abs(micros) > 315_576_000_000_999_999:
            raise NoTime
        return micros
    try:
        return EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        raise NoTime from None


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow's `to_pylist`, its maps sorted, its floats as text: NaN equals NaN, and -0.0 is not 0.0."""
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
    return [
        {name: plain(value, table.schema.field(name).type) for name, value in row.items()} for row in table.to_pylist()
    ]
