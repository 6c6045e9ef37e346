"""Finds how far a payload can be read: the longest prefix that Google's parser accepts, and why it ends there."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from spark_app.page.format import amount

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)
LONGEST_VARINT = 10  # bytes
LARGEST_TAG = (1 << 32) - 1
DEEPEST = 100  # levels of messages that Google's parser reads


@dataclass(frozen=True)
class Stop:
    """Where a payload cannot be read on.

    Attributes:
        at: the first byte that is not read, from the start of the payload.
        field: the names of the fields around it, with dots between them; empty if they are not known.
    """

    at: int
    why: str
    field: str = ""


class NoField(Exception):
    """The bytes are no field; the text says why."""


def readable(data: bytes, message: type[Message]) -> tuple[bytes, Stop | None]:
    """The part of a payload that the message's parser accepts, and where it ends; None = it is all of it.

    A nested message that is refused is kept up to its own end.
    """
    return _readable(data, message, 0)


def _readable(data: bytes, message: type[Message], depth: int) -> tuple[bytes, Stop | None]:
    if _accepts(message, data):
        return data, None
    ends, why = field_ends(data)
    # If it accepts some fields, it accepts fewer, too.
    last = bisect_left(ends, True, key=lambda end: not _accepts(message, data[:end])) - 1
    at = ends[last]
    if last + 1 < len(ends):
        why = "Google's parser refuses this field"
    kept, stop = data[:at], Stop(at, why)
    found = _field_at(data, at, message)
    if found is None:
        return kept, stop
    field, body, end = found
    inner = data[body : min(end, len(data))]
    if field.message_type is None:
        is_text = field.type == FieldDescriptor.TYPE_STRING and end <= len(data)
        return kept, Stop(at, "its text is not UTF-8" if is_text and not _is_text(inner) else why, field.name)
    if depth == DEEPEST:
        return kept, Stop(at, f"messages are nested deeper than {DEEPEST} levels", field.name)
    part, inside = _readable(inner, message_factory.GetMessageClass(field.message_type), depth + 1)
    with_part = kept + _varint_of(field.number << 3 | BYTES) + _varint_of(len(part)) + part
    if inside is None:
        deep = end <= len(data)
        inside = Stop(0, f"messages are nested deeper than {DEEPEST} levels") if deep else Stop(len(inner), why)
    where = ".".join(filter(None, (field.name, inside.field)))
    return with_part if _accepts(message, with_part) else kept, Stop(body + inside.at, inside.why, where)


def field_ends(data: bytes) -> tuple[list[int], str]:
    """The end of each field at the top, after a 0 for none of them, and why the bytes after the last one are no field;
    "" = there are none."""
    ends = [0]
    try:
        while ends[-1] < len(data):
            ends.append(_end_of_field(data, ends[-1]))
    except NoField as no_field:
        return ends, str(no_field)
    return ends, ""


def _end_of_field(data: bytes, at: int) -> int:
    groups: list[int] = []
    while True:
        number, kind, at = _tag(data, at)
        if kind == VARINT:
            at = _varint(data, at)[1]
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        elif kind == BYTES:
            size, at = _varint(data, at)
            at += size
        elif kind == GROUP:
            groups.append(number)
        elif not groups or groups.pop() != number:
            raise NoField(f"a group of field {number} ends that has not begun")
        if at > len(data):
            raise NoField(f"field {number} is cut off; bytes that are missing: {amount(at - len(data))}")
        if not groups:
            return at


def _tag(data: bytes, at: int) -> tuple[int, int, int]:
    """(field number, wire type, the byte after the tag)."""
    tag, at = _varint(data, at)
    number, kind = tag >> 3, tag & 7
    if tag > LARGEST_TAG:
        raise NoField(f"no field has the number {number}")  # Google's parser takes 0 for one
    if kind > FIXED32:
        raise NoField(f"no field has the wire type {kind}")
    return number, kind, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    longest = len(data) - at >= LONGEST_VARINT
    raise NoField(f"a number has more than {LONGEST_VARINT} bytes" if longest else "the bytes end within a number")


def _varint_of(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _field_at(data: bytes, at: int, message: type[Message]) -> tuple[FieldDescriptor, int, int] | None:
    """(field, first byte of its value, the byte after it) of a text, of bytes or of a message; None for all others."""
    try:
        number, kind, at = _tag(data, at)
        size, at = _varint(data, at)
    except NoField:
        return None
    field: Any = message.DESCRIPTOR.fields_by_number.get(number)
    return None if field is None or kind != BYTES else (field, at, at + size)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _accepts(message: type[Message], data: bytes) -> bool:
    try:
        message.FromString(data)
    except DecodeError:
        return False
    return True
