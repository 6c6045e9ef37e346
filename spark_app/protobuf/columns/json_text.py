"""Converts messages without a fixed shape to Protobuf's JSON text."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from spark_app.protobuf.columns.types import is_map, map_fields

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
        for kind, values in _values(field, value):
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


def _values(field: FieldDescriptor, value: Any) -> list[tuple[FieldDescriptor, list[Any]]]:
    """The values of a field with the field that describes them. A map has two entries: its keys and its values."""
    if is_map(field):
        key, item = map_fields(field)
        return [(key, list(value)), (item, list(value.values()))]
    return [(field, list(value) if field.is_repeated else [value])]
