"""Converts librdkafka's messages to Arrow columns.

Input: the addresses of message structs, as numpy arrays of `uint64`. numba compiles the loops, so a message takes only
a few nanoseconds more than librdkafka itself needs. The loops are compiled at import, or loaded from numba's cache,
before workers are forked.
"""

from __future__ import annotations

import ctypes
import hashlib

import numpy as np
import pyarrow as pa
from numba import carray, njit

from spark_app.model.record_schemas import OMITTED_SCHEMA, SOURCE_SCHEMA
from spark_app.sources.kafka.consumer import headers
from spark_app.sources.kafka.consumer.address import address
from spark_app.sources.kafka.consumer.librdkafka import MESSAGE, describe_message, message_destroy, message_timestamp

LATEST_MS = 2**63 // 1000 - 1  # the latest time that fits in 64 bits as microseconds


def measure(messages: np.ndarray, found: np.ndarray) -> int:
    """Fill the rows of `found` with address, bytes (value, key and headers) and offset of the messages before the first
    error. Returns the number of these messages."""
    return int(_measure(messages, found, np.empty(3, np.intp)))


@njit("int64(uint64[::1], int64[:, ::1], int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def _measure(messages: np.ndarray, found: np.ndarray, answer: np.ndarray) -> int:
    for number in range(len(messages)):
        message = carray(address(messages[number]), 1, MESSAGE)[0]
        if message.error:
            return number
        found[0, number] = messages[number]
        found[1, number] = message.value_bytes + message.key_bytes + headers.measure(messages[number], answer)
        found[2, number] = message.offset
    return len(messages)


def read_error(message: int) -> tuple[int, int, str]:
    """(code, offset, text) of an error that librdkafka returned instead of a message."""
    found, text = _read(int(message)), describe_message(int(message))
    return int(found["error"]), int(found["offset"]), text.decode(errors="replace")


@njit(  # type: ignore[untyped-decorator]
    "int64(int64[::1], int64, int32[:, ::1], boolean[:, ::1], int64[::1], int32[::1], int32[::1])", cache=True
)
def _describe(
    messages: np.ndarray,
    most_value: int,
    ends: np.ndarray,
    absent: np.ndarray,
    times: np.ndarray,
    kinds: np.ndarray,
    answer: np.ndarray,
) -> int:
    """Fill `ends` with the offsets of values and keys, `absent` with their NULLs, and `times` and `kinds` with the
    timestamps in microseconds and their types. Returns the number of values larger than `most_value`, which are left
    out."""
    omitted = 0
    ends[:, 0] = 0
    for number in range(len(messages)):
        message = carray(address(messages[number]), 1, MESSAGE)[0]
        large = message.value_bytes > most_value
        omitted += large
        ends[0, number + 1] = ends[0, number] + (0 if large else message.value_bytes)
        ends[1, number + 1] = ends[1, number] + message.key_bytes
        absent[0, number] = large or message.value == 0
        absent[1, number] = message.key == 0
        millis = message_timestamp(messages[number], answer.ctypes.data)
        times[number] = max(min(millis, LATEST_MS), -LATEST_MS) * 1000
        kinds[number] = answer[0] - 1
    return omitted


@njit("void(int64[::1], int32[:, ::1], uint8[::1], uint8[::1])", cache=True)  # type: ignore[untyped-decorator]
def _copy(messages: np.ndarray, ends: np.ndarray, values: np.ndarray, keys: np.ndarray) -> None:
    for number in range(len(messages)):
        message = carray(address(messages[number]), 1, MESSAGE)[0]
        value = carray(address(message.value), message.value_bytes, np.uint8)
        first = ends[0, number]
        for position in range(ends[0, number + 1] - first):
            values[first + position] = value[position]
        key = carray(address(message.key), message.key_bytes, np.uint8)
        first = ends[1, number]
        for position in range(message.key_bytes):
            keys[first + position] = key[position]


@njit(["void(int64[::1])", "void(uint64[::1])"], cache=True)  # type: ignore[untyped-decorator]
def release(messages: np.ndarray) -> None:
    """Return the messages to librdkafka, which frees them."""
    for number in range(len(messages)):
        message_destroy(messages[number])


def to_batch(messages: np.ndarray, offsets: np.ndarray, topic: str, partition: int, most_value: int) -> pa.RecordBatch:
    """Messages of one partition, none of which is an error, as a batch of `SOURCE_SCHEMA`.

    Args:
        messages: addresses of messages with less than 2 GiB in total.
        most_value: bytes. A larger value is NULL in the batch, which then also has the columns of `OMITTED_SCHEMA`.
    """
    count = len(messages)
    ends, absent = np.empty((2, count + 1), np.int32), np.empty((2, count), np.bool_)
    times, kinds = np.empty(count, np.int64), np.empty(count, np.int32)
    omitted = _describe(messages, most_value, ends, absent, times, kinds, np.empty(1, np.int32))
    values, keys = np.empty(ends[0, -1], np.uint8), np.empty(ends[1, -1], np.uint8)
    _copy(messages, ends, values, keys)
    columns = [
        _binary(ends[1], keys, absent[1]),
        _binary(ends[0], values, absent[0]),
        headers.read(messages),
        pa.repeat(pa.scalar(topic), count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(offsets),
        pa.array(times).cast(SOURCE_SCHEMA.field("timestamp").type),
        pa.array(kinds),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SOURCE_SCHEMA)
    return _with_omitted(batch, messages, most_value) if omitted else batch


def _with_omitted(batch: pa.RecordBatch, messages: np.ndarray, most_value: int) -> pa.RecordBatch:
    sizes: list[int | None] = []
    digests: list[str | None] = []
    for message in messages.tolist():
        found = _read(message)
        place, size = int(found["value"]), int(found["value_bytes"])
        data = (ctypes.c_char * size).from_address(place) if size > most_value else None
        sizes.append(None if data is None else size)
        digests.append(None if data is None else hashlib.sha256(data).hexdigest())
    columns = [*batch.columns, pa.array(sizes, pa.int64()), pa.array(digests, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *OMITTED_SCHEMA.names])


def _read(message: int) -> np.ndarray:
    data = (ctypes.c_char * MESSAGE.itemsize).from_address(message)
    found: np.ndarray = np.frombuffer(memoryview(data), MESSAGE)[0]
    return found


def _binary(ends: np.ndarray, data: np.ndarray, absent: np.ndarray) -> pa.Array:
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return pa.Array.from_buffers(pa.binary(), len(absent), [valid, pa.py_buffer(ends), pa.py_buffer(data)])
