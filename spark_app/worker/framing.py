"""Confluent's frame: magic byte 0, schema id (4 bytes, big-endian), message index, payload.

In: an Arrow binary array of record values. Out: one `Frames` of numpy arrays over its rows. Refused here: values that
are too short, have another magic byte, or a message index that is not a list of zig-zag varints.

The message index is a count and that many numbers, each a zig-zag varint. [0], by far the usual case, has a short form:
the single byte 0. Everything is read from the array's buffers at once; only another index byte costs a Python loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_app.records import Cause, MessageIndex

MAGIC = 0
HEADER = 5  # magic byte and schema id
SHORTEST = HEADER + 1
DEEPEST_INDEX = 32  # protoc refuses deeper nesting
LARGEST_ID = 2**31 - 1
FIRST_MESSAGE: MessageIndex = (0,)

OK, TOMBSTONE, SHORT, WRONG_MAGIC, WRONG_INDEX = range(5)
CAUSES = {SHORT: Cause.FRAME_SHORT, WRONG_MAGIC: Cause.FRAME_MAGIC, WRONG_INDEX: Cause.FRAME_INDEX}


@dataclass(frozen=True)
class Frames:
    """One entry per record value.

    Attributes:
        verdict: OK, TOMBSTONE (a NULL value) or the reason why there is no frame; int8.
        schema_id: int64; -1 where there is no frame.
        index: position in `indexes` of the record's message index; int64.
        indexes: the distinct message indexes of the batch; [0] is always first.
        body: where in the value the payload begins, bytes; int64.
    """

    verdict: np.ndarray
    schema_id: np.ndarray
    index: np.ndarray
    indexes: list[MessageIndex]
    body: np.ndarray


def split(values: pa.Array) -> Frames:
    """Find the frame of each value. `values` is binary (32-bit offsets), NULL = tombstone."""
    start, length, data = _extents(values)
    verdict = np.zeros(len(values), np.int8)
    header = _header(data, start, length)
    verdict[header[:, 0] != MAGIC] = WRONG_MAGIC
    verdict[length < SHORTEST] = SHORT
    verdict[length == 0] = SHORT
    if values.null_count:
        verdict[np.asarray(values.is_null())] = TOMBSTONE
    schema_id = header[:, 1:5].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    schema_id[verdict != OK] = -1
    index = np.zeros(len(values), np.int64)
    body = np.full(len(values), SHORTEST, np.int64)
    indexes = _read_long_indexes(
        np.flatnonzero((verdict == OK) & (header[:, 5] != 0)), data, start, length, verdict, index, body
    )
    schema_id[verdict != OK] = -1
    return Frames(verdict, schema_id, index, indexes, body)


def _extents(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    )
    return offsets[:-1], np.diff(offsets), data


def _header(data: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The first six bytes of each value; what lies beyond a short value is never looked at by the caller."""
    positions = start[:, None] + np.arange(SHORTEST)
    header: np.ndarray = data[np.minimum(positions, len(data) - 1)]
    return header


def _read_long_indexes(
    rows: np.ndarray,
    data: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    verdict: np.ndarray,
    index: np.ndarray,
    body: np.ndarray,
) -> list[MessageIndex]:
    """Fill `index` and `body` (or `verdict`) of the rows whose index is not the short form."""
    known: dict[MessageIndex, int] = {FIRST_MESSAGE: 0}
    for row in rows:
        frame = data[start[row] + HEADER : start[row] + length[row]]
        try:
            path, size = read_message_index(bytes(frame[: 5 * (DEEPEST_INDEX + 1)]))
        except ValueError:
            verdict[row] = WRONG_INDEX
            continue
        index[row] = known.setdefault(path, len(known))
        body[row] = HEADER + size
    return list(known)


def read_message_index(data: bytes) -> tuple[MessageIndex, int]:
    """The message index at the beginning of `data`, and how many bytes it takes.

    Raises:
        ValueError: it is cut off, negative, or deeper than any schema can be.
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
