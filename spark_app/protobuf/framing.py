"""Reads Confluent's frame: the schema id of a record, its message index, and the start of its payload.

Input: Arrow arrays of record values (or keys) and headers. Output: one `Frames` with numpy arrays over the rows. The
schema is named, in this order of precedence, by

    a header        `__value_schema_id` (`__key_schema_id`): magic byte, schema id or GUID, message index; the value is
                    the bare payload
    magic byte 0    schema id (4 bytes, big-endian), message index, payload
    magic byte 1    schema GUID (16 bytes), message index, payload
    the settings    for values without any frame. No Protobuf payload begins with byte 0 or 1, because there is no
                    field 0, so framed and bare records cannot be confused

Rejected here: values that are too short, values with another magic byte if the settings name no schema for bare ones,
and values whose message index is not a list of zig-zag varints. The last kind keeps its schema key: JSON and Avro have
no message index, so the cause depends on the type of the schema.

The message index is a count, then that many numbers, each a zig-zag varint. The most frequent index, [0], has a short
form: the single byte 0. It is read for all rows at once, with numpy; any other index takes a step of a Python loop.

The reasons: docs/decisions/frames.md.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.catalog import MessageIndex, SchemaKey
from spark_app.model.causes import Cause

ID_MAGIC, GUID_MAGIC = 0, 1
ID_HEADER = 5  # magic byte and schema id
GUID_HEADER = 17  # magic byte and GUID
DEEPEST_INDEX = 32  # protoc rejects deeper nesting
LONGEST_INDEX = 5 * (DEEPEST_INDEX + 1)
LARGEST_ID = 2**31 - 1
FIRST_MESSAGE: MessageIndex = (0,)
NO_MESSAGE: MessageIndex = ()
VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"

OK, TOMBSTONE, SHORT, WRONG_MAGIC, WRONG_INDEX, WRONG_HEADER, WRONG_WRAPPER, HELD, OMITTED = range(9)
CAUSES = {
    SHORT: Cause.FRAME_SHORT,
    WRONG_MAGIC: Cause.FRAME_MAGIC,
    WRONG_INDEX: Cause.FRAME_INDEX,
    WRONG_HEADER: Cause.FRAME_HEADER,
    WRONG_WRAPPER: Cause.FRAME_WRAPPER,
}
NO_SCHEMA = -1
UnframedSchema = tuple[int, MessageIndex]  # schema id and message of values without a frame


@dataclass
class Frames:
    """One entry per record value.

    Attributes:
        status: OK, TOMBSTONE (a NULL value), the error of the frame, or a value that the caller sets: HELD (the record
            is deferred) or OMITTED (the record's value is over the size limit, and is NULL here); int8.
        schema: the schema id; -1 = no schema is named; -2 - n = the GUID `guids[n]`; int64.
        guids: the distinct GUIDs of the batch.
        index: position in `indexes` of the record's message index; int64.
        indexes: the distinct message indexes of the batch; [0] is always first, an unreadable index is empty.
        body: offset of the payload in the value, bytes; int64.
    """

    status: np.ndarray
    schema: np.ndarray
    guids: list[str]
    index: np.ndarray
    indexes: list[MessageIndex]
    body: np.ndarray

    def key_of(self, row: int) -> SchemaKey:
        """The schema key of a row that names a schema."""
        code = int(self.schema[row])
        return code if code >= 0 else self.guids[-2 - code]

    def groups(self) -> Iterator[np.ndarray]:
        """Groups of the rows that name a schema. The rows of a group have the same schema, message index, payload
        offset and status. The sort is stable, so that the rows of a group keep their order."""
        framed = np.flatnonzero(self.schema != NO_SCHEMA)
        if not len(framed):
            return
        kind = (self.schema[framed] * len(self.indexes) + self.index[framed]) << 8 | self.body[framed]
        if (kind == kind[0]).all():
            yield framed
            return
        order = np.argsort(kind, kind="stable")
        _, starts = np.unique(kind[order], return_index=True)
        yield from np.split(framed[order], starts[1:])

    def nameless(self, status: int) -> np.ndarray:
        """The rows with this status that name no schema."""
        rows = np.flatnonzero(self.status == status)
        found: np.ndarray = rows[self.schema[rows] == NO_SCHEMA]
        return found

    def refuse(self, rows: np.ndarray, status: int) -> None:
        """Set the status of these rows, and remove their schema."""
        self.status[rows] = status
        self.schema[rows] = NO_SCHEMA


def split(
    values: pa.Array, headers: pa.Array = None, header: str = VALUE_HEADER, bare: UnframedSchema | None = None
) -> Frames:
    """Find the frame of each value.

    Args:
        values: binary (32-bit offsets), NULL = tombstone.
        headers: JSON text of each record's headers as in `SOURCE_SCHEMA`, or NULL; None = no record has headers.
        header: the name of the header that may name the schema.
        bare: the schema of values without a frame; None = every value must have a frame.
    """
    return _Splitter(values, bare).split(headers, header)


class _Splitter:
    """Fills one `Frames`, one kind of frame after the other."""

    def __init__(self, values: pa.Array, bare: UnframedSchema | None):
        count = len(values)
        self._values = values
        self._unframed_schema = bare
        self._start, self._length, self._data = _extents(values)
        self._guids: dict[str, int] = {}
        self._indexes: dict[MessageIndex, int] = {FIRST_MESSAGE: 0}
        self._frames = Frames(
            np.zeros(count, np.int8),
            np.full(count, NO_SCHEMA),
            [],
            np.zeros(count, np.int64),
            [],
            np.zeros(count, np.int64),
        )

    def split(self, headers: pa.Array, header: str) -> Frames:
        found = self._frames
        alive = np.ones(len(self._start), bool)
        if self._values.null_count:
            alive = ~np.asarray(self._values.is_null())
            found.status[~alive] = TOMBSTONE
        by_header = self._read_headers(headers, header, alive)
        rest = alive & ~by_header
        filled = rest & (self._length > 0)
        heads = self._heads()
        magic = heads >> 56
        self._read_ids(np.flatnonzero(filled & (magic == ID_MAGIC)), heads)
        self._read_guids(np.flatnonzero(filled & (magic == GUID_MAGIC)))
        self._read_bare(np.flatnonzero(filled & (magic > GUID_MAGIC)), WRONG_MAGIC)
        self._read_bare(np.flatnonzero(rest & ~filled), SHORT)
        found.guids, found.indexes = list(self._guids), list(self._indexes)
        return found

    def _read_ids(self, rows: np.ndarray, heads: np.ndarray) -> None:
        rows = self._long_enough(rows, ID_HEADER)
        head = heads[rows]
        self._frames.schema[rows] = head >> 24 & 0xFFFF_FFFF
        self._read_indexes(rows, ID_HEADER, head >> 16 & 0xFF)

    def _read_guids(self, rows: np.ndarray) -> None:
        rows = self._long_enough(rows, GUID_HEADER)
        distinct, inverse = np.unique(self._bytes(rows, 1, 16), axis=0, return_inverse=True)
        codes = np.array([self._guid(guid.tobytes()) for guid in distinct], np.int64)
        self._frames.schema[rows] = codes[inverse.reshape(-1)] if len(rows) else NO_SCHEMA
        self._read_indexes(rows, GUID_HEADER, self._bytes(rows, GUID_HEADER, 1)[:, 0])

    def _read_bare(self, rows: np.ndarray, otherwise: int) -> None:
        if self._unframed_schema is None:
            return self._frames.refuse(rows, otherwise)
        schema_id, index = self._unframed_schema
        self._frames.schema[rows] = schema_id
        self._frames.index[rows] = self._index_number(index)

    def _read_headers(self, headers: pa.Array, header: str, alive: np.ndarray) -> np.ndarray:
        """Boolean array: whether each row has its schema in a header. Each distinct header is read once."""
        texts = find_headers(headers, header)
        if texts is None:
            return np.zeros(len(self._start), bool)
        encoded = pc.dictionary_encode(texts)
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        named = np.logical_and(codes >= 0, alive)
        for code, text in enumerate(encoded.dictionary.to_pylist()):
            rows = np.flatnonzero(named & (codes == code))
            try:
                schema, index = self._read_header(base64.b64decode(text, validate=True))
            except (ValueError, binascii.Error):
                self._frames.refuse(rows, WRONG_HEADER)
                continue
            self._frames.schema[rows], self._frames.index[rows] = schema, self._index_number(index)
            self._frames.status[rows] = OK if index else WRONG_HEADER
        return np.asarray(named)

    def _read_header(self, data: bytes) -> tuple[int, MessageIndex]:
        """(schema code, message index; an empty index cannot be read).

        Raises:
            ValueError: the header names no schema.
        """
        size = {ID_MAGIC: ID_HEADER, GUID_MAGIC: GUID_HEADER}.get(data[0] if data else -1)
        if size is None or len(data) < size:
            raise ValueError("no schema")
        schema = int.from_bytes(data[1:size], "big") if size == ID_HEADER else self._guid(data[1:size])
        try:
            return schema, read_message_index(data[size:])[0]
        except ValueError:
            return schema, NO_MESSAGE

    def _index_number(self, index: MessageIndex) -> int:
        return self._indexes.setdefault(index, len(self._indexes))

    def _guid(self, data: bytes) -> int:
        return -2 - self._guids.setdefault(str(uuid.UUID(bytes=data)), len(self._guids))

    def _long_enough(self, rows: np.ndarray, header: int) -> np.ndarray:
        """The rows with at least one byte after `header` bytes; the others get the status SHORT."""
        short = self._length[rows] <= header
        self._frames.refuse(rows[short], SHORT)
        long: np.ndarray = rows[~short]
        return long

    def _read_indexes(self, rows: np.ndarray, header: int, first_bytes: np.ndarray) -> None:
        """Fill `index` and `body` (or `status`) of the rows whose message index begins after `header` bytes."""
        found = self._frames
        found.body[rows] = header + 1
        for row in rows[first_bytes != 0]:
            first = self._start[row] + header
            end = min(self._start[row] + self._length[row], first + LONGEST_INDEX)
            try:
                path, size = read_message_index(self._data[first:end].tobytes())
            except ValueError:
                found.status[row], path, size = WRONG_INDEX, NO_MESSAGE, 1
            found.index[row] = self._index_number(path)
            found.body[row] = header + size

    def _heads(self) -> np.ndarray:
        """The first 8 bytes of each value as a big-endian number. For a shorter value the last bytes are arbitrary."""
        last = len(self._data) - 8
        words = np.ndarray((last + 1,), ">u8", self._data, strides=(1,))  # one word for each start byte
        nearest = np.minimum(self._start, last)
        heads: np.ndarray = words[nearest] << ((self._start - nearest) * 8).astype(np.uint64)
        return heads

    def _bytes(self, rows: np.ndarray, first: int, count: int) -> np.ndarray:
        """`count` bytes of each row's value from `first` on; bytes after the end of a value are arbitrary."""
        positions = (self._start[rows] + first)[:, None] + np.arange(count)
        found: np.ndarray = self._data[np.minimum(positions, len(self._data) - 1)]
        return found


def find_headers(headers: pa.Array, name: str) -> pa.Array:
    """The base64 text of each record's last header with this name, or NULL; None if no record has such a header.

    Inside a JSON string each quote follows a backslash, so the pattern cannot match a part of another header.
    """
    if headers is None or headers.null_count == len(headers):
        return None
    pattern = rf'.*\{{"key":"{name}","value":"(?P<data>[A-Za-z0-9+/=]*)"\}}'
    found = pc.struct_field(pc.extract_regex(headers, pattern), 0)
    return None if found.null_count == len(found) else found


def is_beyond(key: SchemaKey) -> bool:
    """Whether a schema id is larger than a registry can assign."""
    return isinstance(key, int) and key > LARGEST_ID


def read_message_index(data: bytes) -> tuple[MessageIndex, int]:
    """(the message index at the beginning of `data`, its length in bytes).

    Raises:
        ValueError: it is incomplete, negative, or deeper than any schema.
    """
    count, position = _read_zigzag(data, 0)
    if count == 0:
        return FIRST_MESSAGE, position
    if not 0 < count <= DEEPEST_INDEX:
        raise ValueError(f"a message index of {count} numbers")
    path = []
    for _ in range(count):
        number, position = _read_zigzag(data, position)
        if number < 0:
            raise ValueError(f"a negative number in a message index: {number}")
        path.append(number)
    return tuple(path), position


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35 and position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("a varint that is cut off or too long")


def _extents(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start of each value, its length, the bytes of all values, padded to at least 8), from the array's buffers."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    if len(data) < 8:
        data = np.pad(data, (0, 8 - len(data)))
    return offsets[:-1], np.diff(offsets), data
