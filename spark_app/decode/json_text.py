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

from spark_app.decode.typemap import is_map, map_fields

MOST_NESTED = 8  # an Any within an Any: each level holds a copy of all that is below
ANY = AnyMessage.DESCRIPTOR.full_name


def to_json(pool: Any, value: Message) -> str:
    """The JSON form. What has none (an Any of a type that is not in the files, NaN in a Value) is kept as bytes.

    Raises:
        UnicodeError: a string in it is not UTF-8: proto2 allows it, no column does.
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
    """Required fields may be missing."""
    url, data = value.DESCRIPTOR.full_name, value.SerializePartialToString(deterministic=True)
    if url == ANY and value.type_url:
        url, data = value.type_url, value.value
    return json.dumps({"@type": url, "value": base64.b64encode(data).decode()}, ensure_ascii=False)


def _is_plain(pool: Any, message: Any, depth: int) -> bool:
    """Whether every Any in the message can be opened.

    Raises:
        UnicodeError: a string holds bytes; the JSON form would have Python's spelling of them.
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
    """(what they are, values) of a field; the keys and the values of a map."""
    if is_map(field):
        key, item = map_fields(field)
        return [(key, list(value)), (item, list(value.values()))]
    return [(field, list(value) if field.is_repeated else [value])]
