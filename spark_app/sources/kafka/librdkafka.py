"""librdkafka's public C API, from the library that comes with confluent-kafka, and the headers of its messages.

confluent-kafka's Python client creates an object per record, which costs more than all other work of a task on a flat
record. Headers become JSON text: an array of {key, value (base64)}; a header without a value has only a key.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import cimpl
from llvmlite import binding
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator]
def address(context: Any, number: Any) -> Any:
    """Converts an integer to a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(number), generate


LIBRARY = ctypes.CDLL(cimpl.__file__)  # this library is linked to librdkafka, so its functions can be found here
CONSUMER = 1  # rd_kafka_type_t
NO_CLOSE = 8  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE: the consumer has no group
ERROR_CHARS = 512

# rd_kafka_message_t
MESSAGE = np.dtype(
    [
        ("error", np.int32),
        ("topic", np.intp),
        ("partition", np.int32),
        ("value", np.intp),
        ("value_bytes", np.intp),
        ("key", np.intp),
        ("key_bytes", np.intp),
        ("offset", np.int64),
        ("private", np.intp),
    ],
    align=True,
)

ErrorCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(LIBRARY, name)
    function.restype, function.argtypes = result, arguments
    return function


_pointer, _size, _int, _text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p
conf_new = _declare("rd_kafka_conf_new", _pointer)
conf_set = _declare("rd_kafka_conf_set", _int, _pointer, _text, _text, _text, _size)
conf_set_error_cb = _declare("rd_kafka_conf_set_error_cb", None, _pointer, ErrorCallback)
conf_destroy = _declare("rd_kafka_conf_destroy", None, _pointer)
new = _declare("rd_kafka_new", _pointer, _int, _pointer, _text, _size)
destroy = _declare("rd_kafka_destroy_flags", None, _pointer, _int)
poll = _declare("rd_kafka_poll", _int, _pointer, _int)
topic_new = _declare("rd_kafka_topic_new", _pointer, _pointer, _text, _pointer)
topic_destroy = _declare("rd_kafka_topic_destroy", None, _pointer)
consume_start = _declare("rd_kafka_consume_start", _int, _pointer, ctypes.c_int32, ctypes.c_int64)
consume_stop = _declare("rd_kafka_consume_stop", _int, _pointer, ctypes.c_int32)
consume_batch = _declare("rd_kafka_consume_batch", ctypes.c_ssize_t, _pointer, ctypes.c_int32, _int, _pointer, _size)
last_error = _declare("rd_kafka_last_error", _int)
describe = _declare("rd_kafka_err2str", _text, _int)
describe_message = _declare("rd_kafka_message_errstr", _text, _pointer)


def _compiled(name: str, result: Any, *arguments: Any) -> Any:
    """A C function for compiled code, bound by name: numba caches compiled code, so it must not contain an address."""
    binding.add_symbol(name, ctypes.cast(getattr(LIBRARY, name), ctypes.c_void_p).value)
    return types.ExternalFunction(name, result(*arguments))


message_timestamp: Callable[[int, int], int] = _compiled(
    "rd_kafka_message_timestamp", types.int64, types.intp, types.intp
)
message_headers: Callable[[int, int], int] = _compiled("rd_kafka_message_headers", types.int32, types.intp, types.intp)
header_get_all: Callable[[int, int, int, int, int], int] = _compiled(
    "rd_kafka_header_get_all", types.int32, types.intp, types.intp, types.intp, types.intp, types.intp
)
message_destroy: Callable[[int], None] = _compiled("rd_kafka_message_destroy", types.void, types.intp)


def open_client(options: Mapping[str, Any], error_callback: Any) -> int:
    """A consumer's handle.

    Args:
        error_callback: an `ErrorCallback`, which the caller keeps alive as long as the handle.

    Raises:
        ValueError: librdkafka does not accept the options.
    """
    conf, message = conf_new(), ctypes.create_string_buffer(ERROR_CHARS)
    for key, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if conf_set(conf, key.encode(), text.encode(), message, ERROR_CHARS):
            conf_destroy(conf)
            raise ValueError(message.value.decode(errors="replace"))
    conf_set_error_cb(conf, error_callback)
    handle = new(CONSUMER, conf, message, ERROR_CHARS)
    if not handle:
        conf_destroy(conf)
        raise ValueError(message.value.decode(errors="replace"))
    return int(handle)


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
def _copy(pointers: np.ndarray, ends: np.ndarray, data: np.ndarray) -> None:
    for number in range(len(pointers)):
        length = ends[number + 1] - ends[number]
        text = carray(address(pointers[number]), length, np.uint8)
        for position in range(length):
            data[ends[number] + position] = text[position]


@njit("void(int64[::1], int64[::1], int32[::1], uint8[::1])", cache=True)  # type: ignore[untyped-decorator]
def _encode(pointers: np.ndarray, sizes: np.ndarray, ends: np.ndarray, text: np.ndarray) -> None:
    """Encode the values in base64, each from its position in `ends`."""
    for number in range(len(pointers)):
        size, at = sizes[number], ends[number]
        data = carray(address(pointers[number]), size, np.uint8)
        for start in range(0, size, 3):
            first = data[start]
            second = data[start + 1] if start + 1 < size else np.uint8(0)
            third = data[start + 2] if start + 2 < size else np.uint8(0)
            text[at] = LETTERS[first >> 2]
            text[at + 1] = LETTERS[(first & 3) << 4 | second >> 4]
            text[at + 2] = LETTERS[(second & 15) << 2 | third >> 6] if start + 1 < size else PAD
            text[at + 3] = LETTERS[third & 63] if start + 2 < size else PAD
            at += 4


def _names(pointers: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """The header names as JSON strings; each distinct name is converted once."""
    ends = _ends(sizes)
    data = np.empty(ends[-1], np.uint8)
    _copy(pointers, ends, data)
    encoded = _array(pa.binary(), ends, data).dictionary_encode()
    texts = [json.dumps(name.decode(errors="replace"), ensure_ascii=False) for name in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _base64(pointers: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """The header values in base64; NULL for a header without a value."""
    ends = _ends((sizes + 2) // 3 * 4)
    text = np.empty(ends[-1], np.uint8)
    _encode(pointers, sizes, ends, text)
    return pc.if_else(pa.array(pointers == 0), pa.scalar(None, pa.string()), _array(pa.string(), ends, text))


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
