"""Messages without a fixed shape as Protobuf's own JSON text."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

MOST_NESTED = 8  # an Any within an Any: each level holds a copy of all that is below
ANY = AnyMessage.DESCRIPTOR.full_name


class NoJson(ValueError):
    """The message has no JSON form."""


def to_json(pool: Any, value: Message) -> str:
    """The JSON form. What has none (an Any of a type that is not in the files, NaN in a Value) is kept as bytes.

    Raises:
        UnicodeError: a string in it is not UTF-8: proto2 allows it, no column does.
    """
    try:
        _check(pool, value, 0)
        return json_format.MessageToJson(
            value, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=pool
        )
    except UnicodeError:
        raise
    except (json_format.Error, TypeError, ValueError, RecursionError):
        return _as_bytes(value)


def _as_bytes(value: Any) -> str:
    name = value.DESCRIPTOR.full_name
    url, data = (value.type_url, value.value) if name == ANY and value.type_url else (name, value.SerializeToString())
    return json.dumps({"@type": url, "value": base64.b64encode(data).decode()}, ensure_ascii=False)


def _check(pool: Any, message: Any, depth: int) -> None:
    """Look for what the JSON form would hide: bytes in a string field land as Python's spelling of them."""
    if message.DESCRIPTOR.full_name == ANY:
        return _check_any(pool, message, depth)
    for field, value in message.ListFields():
        for field_of, values in _values(field, value):
            if field_of.message_type is not None:
                for one in values:
                    _check(pool, one, depth)
            elif field_of.type == FieldDescriptor.TYPE_STRING and any(isinstance(one, bytes) for one in values):
                raise UnicodeError(f"{field.full_name} is not UTF-8")


def _values(field: FieldDescriptor, value: Any) -> list[tuple[FieldDescriptor, list[Any]]]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return [(entry["key"], list(value)), (entry["value"], list(value.values()))]
    return [(field, list(value) if field.is_repeated else [value])]


def _check_any(pool: Any, message: Any, depth: int) -> None:
    if depth >= MOST_NESTED:
        raise NoJson("too many messages within each other")
    try:
        inner = GetMessageClass(pool.FindMessageTypeByName(message.TypeName())).FromString(message.value)
    except (KeyError, DecodeError):
        raise NoJson("of no type that the files have") from None
    _check(pool, inner, depth + 1)
