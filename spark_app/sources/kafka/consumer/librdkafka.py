"""librdkafka's public C API, from the library that comes with confluent-kafka.

confluent-kafka's Python client creates an object per record, which costs more than all other work of a task on a flat
record.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from confluent_kafka import cimpl
from llvmlite import binding
from numba import types

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
