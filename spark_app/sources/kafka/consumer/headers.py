"""Converts record headers to JSON text: an array of {key, value (base64)}; a header without a value has only a key."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import carray, njit

from spark_app.sources.kafka.consumer.address import address
from spark_app.sources.kafka.consumer.librdkafka import header_get_all, message_headers

LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
PAD = ord("=")
MOST_BYTES = 2**31 - 1  # the most bytes of an Arrow column with 32-bit offsets


def read(messages: np.ndarray) -> pa.Array:
    """The JSON text of each message's headers; NULL for a message without headers."""
    lists, counts = np.empty(len(messages), np.intp), np.empty(len(messages), np.int64)
    answer = np.empty(3, np.intp)  # librdkafka writes into it; it is created here because compiled code frees early
    total = _find(messages, lists, counts, answer)
    if not total:
        return pa.nulls(len(messages), pa.string())
    found = np.empty((4, total), np.intp)
    _list(lists, found, answer)
    names, values, value_bytes = found[0], found[2], found[3]
    return _join(_names(names, found[1]), _base64(values, value_bytes), counts)


@njit("int64(int64)", cache=True)  # type: ignore[untyped-decorator]
def _length(name: int) -> int:
    """The length of a zero-terminated string."""
    text, length = carray(address(name), 1 << 40, np.uint8), 0
    while text[length]:
        length += 1
    return length


@njit("int64(uint64, int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def measure(message: int, answer: np.ndarray) -> int:
    """Bytes of a message's header names and values. `answer` has three elements, and must outlive the call."""
    at, size, position = answer.ctypes.data, 0, 0
    if message_headers(message, at):
        return 0
    headers = answer[0]
    while not header_get_all(headers, position, at, at + 8, at + 16):
        size += _length(answer[0]) + answer[2]
        position += 1
    return size


@njit("int64(int64[::1], int64[::1], int64[::1], int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def _find(messages: np.ndarray, lists: np.ndarray, counts: np.ndarray, answer: np.ndarray) -> int:
    """Fill `lists` with the address of each message's headers (0 if it has none) and `counts` with their number.
    Returns the total number."""
    at, total = answer.ctypes.data, 0
    for number in range(len(messages)):
        count, none = 0, message_headers(messages[number], at)
        lists[number] = 0 if none else answer[0]
        if not none:
            while not header_get_all(lists[number], count, at, at + 8, at + 16):
                count += 1
        counts[number] = count
        total += count
    return total


@njit("void(int64[::1], int64[:, ::1], int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def _list(lists: np.ndarray, found: np.ndarray, answer: np.ndarray) -> None:
    """Fill `found` with address and size of the name, and address and size of the value, of each header."""
    at, row = answer.ctypes.data, 0
    for headers in lists:
        position = 0
        while headers and not header_get_all(headers, position, at, at + 8, at + 16):
            found[0, row], found[1, row] = answer[0], _length(answer[0])
            found[2, row], found[3, row] = answer[1], answer[2]
            position += 1
            row += 1


@njit("void(int64[::1], int32[::1], uint8[::1])", cache=True)  # type: ignore[untyped-decorator]
def _copy(places: np.ndarray, ends: np.ndarray, data: np.ndarray) -> None:
    for number in range(len(places)):
        length = ends[number + 1] - ends[number]
        text = carray(address(places[number]), length, np.uint8)
        for position in range(length):
            data[ends[number] + position] = text[position]


@njit("void(int64[::1], int64[::1], int32[::1], uint8[::1])", cache=True)  # type: ignore[untyped-decorator]
def _encode(places: np.ndarray, sizes: np.ndarray, ends: np.ndarray, text: np.ndarray) -> None:
    """Encode the values in base64, each from its position in `ends`."""
    for number in range(len(places)):
        size, at = sizes[number], ends[number]
        data = carray(address(places[number]), size, np.uint8)
        for start in range(0, size, 3):
            first = data[start]
            second = data[start + 1] if start + 1 < size else np.uint8(0)
            third = data[start + 2] if start + 2 < size else np.uint8(0)
            text[at] = LETTERS[first >> 2]
            text[at + 1] = LETTERS[(first & 3) << 4 | second >> 4]
            text[at + 2] = LETTERS[(second & 15) << 2 | third >> 6] if start + 1 < size else PAD
            text[at + 3] = LETTERS[third & 63] if start + 2 < size else PAD
            at += 4


def _names(places: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """The header names as JSON strings; each distinct name is converted once."""
    ends = _ends(sizes)
    data = np.empty(ends[-1], np.uint8)
    _copy(places, ends, data)
    encoded = _array(pa.binary(), ends, data).dictionary_encode()
    texts = [json.dumps(name.decode(errors="replace"), ensure_ascii=False) for name in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _base64(places: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """The header values in base64; NULL for a header without a value."""
    ends = _ends((sizes + 2) // 3 * 4)
    text = np.empty(ends[-1], np.uint8)
    _encode(places, sizes, ends, text)
    return pc.if_else(pa.array(places == 0), pa.scalar(None, pa.string()), _array(pa.string(), ends, text))


def _join(names: pa.Array, values: pa.Array, counts: np.ndarray) -> pa.Array:
    bare = pc.binary_join_element_wise('{"key":', names, "}", "")
    whole = pc.binary_join_element_wise('{"key":', names, ',"value":"', values, '"}', "")
    lists = pa.ListArray.from_arrays(_ends(counts), pc.coalesce(whole, bare))
    texts = pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
    return pc.if_else(pa.array(counts == 0), pa.scalar(None, pa.string()), texts)


def _ends(sizes: np.ndarray) -> np.ndarray:
    """Arrow's offsets for elements of these sizes: the start of each one, and the end of the last.

    Raises:
        OverflowError: they do not fit in an Arrow column.
    """
    total = int(sizes.sum())
    if total > MOST_BYTES:
        raise OverflowError(f"the headers have {total} bytes, the maximum is {MOST_BYTES}")
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _array(kind: pa.DataType, ends: np.ndarray, data: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])
