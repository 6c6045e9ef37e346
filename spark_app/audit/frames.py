"""Reads a record's frame: schema id, message index and start of the payload, or the cause why the frame is invalid.

This is a second implementation of the format in `decoding.md`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from spark_app.model.catalog import MessageIndex, SchemaKey
from spark_app.model.causes import Cause

Header = tuple[str, bytes | None]
FIRST: MessageIndex = (0,)
VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
SIZES = {0: 5, 1: 17}  # magic byte -> bytes of the frame without its message index
LARGEST_ID = 2**31 - 1
DEEPEST = 32
LONGEST_VARINT = 5


@dataclass(frozen=True)
class Frame:
    """The frame of a record or key.

    Attributes:
        key: schema id or GUID; None for a bare record, whose schema is named nowhere.
        body: position of the payload's first byte.
        broken: the cause if the message index cannot be read; it applies if the schema is Protobuf.
    """

    key: SchemaKey | None
    index: MessageIndex
    body: int
    broken: Cause | None = None


BARE = Frame(None, FIRST, 0)


def frame_of(value: bytes, headers: Sequence[Header] | None = (), header: str = VALUE_HEADER) -> Frame | Cause:
    """The frame of a value that is no tombstone, or the cause why the frame is invalid."""
    named = [data for name, data in headers if name == header and data is not None] if headers else []
    if named:
        return _header_frame(named[-1])
    if not value or value[0] not in SIZES:
        return BARE
    size = SIZES[value[0]]
    if len(value) <= size:
        return Cause.FRAME_SHORT
    try:
        index, length = _read_index(value, size)
    except ValueError:
        return Frame(_key(value[:size]), (), size, Cause.FRAME_INDEX)
    return Frame(_key(value[:size]), index, size + length)


def cause_of_bare(value: bytes) -> Cause:
    """The cause of a bare record if the settings name no schema for bare records."""
    return Cause.FRAME_MAGIC if value else Cause.FRAME_SHORT


def is_schema_id(key: int | None) -> bool:
    return key is not None and 0 < key <= LARGEST_ID


def _header_frame(data: bytes) -> Frame | Cause:
    size = SIZES.get(data[0]) if data else None
    if size is None or len(data) < size:
        return Cause.FRAME_HEADER
    try:
        return Frame(_key(data[:size]), _read_index(data, size)[0], 0)
    except ValueError:
        return Frame(_key(data[:size]), (), 0, Cause.FRAME_HEADER)


def _key(frame: bytes) -> SchemaKey:
    return int.from_bytes(frame[1:], "big") if frame[0] == 0 else str(uuid.UUID(bytes=frame[1:]))


def _read_index(data: bytes, start: int) -> tuple[MessageIndex, int]:
    """(message index, its length in bytes)."""
    if data[start : start + 1] == b"\0":
        return FIRST, 1
    count, position = _read_number(data, start)
    if not 0 <= count <= DEEPEST:
        raise ValueError("no message index")
    numbers = []
    for _ in range(count):
        number, position = _read_number(data, position)
        if number < 0:
            raise ValueError("no message index")
        numbers.append(number)
    return tuple(numbers) or FIRST, position - start


def _read_number(data: bytes, start: int) -> tuple[int, int]:
    """(value of a zig-zag varint, position of the next one)."""
    raw = 0
    for position, byte in enumerate(data[start : start + LONGEST_VARINT]):
        raw |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (raw // 2 if raw % 2 == 0 else -(raw + 1) // 2), start + position + 1
    raise ValueError("no varint")
