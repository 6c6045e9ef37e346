"""Bounds on what a registry may send: how long all answers may take together, how large one is, in what form.

Put under Confluent's client, whose retries and logins stay its own. Its timeout is for one read: a server that sends
a byte now and then never meets it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the HTTP library that the client uses

ERROR_BYTES = 64 << 10  # longest body of an answer that is no success
_deadline: ContextVar[float] = ContextVar("_deadline", default=float("inf"))  # monotonic seconds


class TooLarge(Exception):
    """The body of a good answer is over the cap."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """All requests of this thread in the block end by then, with TimeoutError; an outer limit holds if it is nearer."""
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def bind(session: httpx.Client, body_bytes: int) -> None:
    """Hold a session to the time limit, and to bodies of so many bytes: one that is larger is `TooLarge`.

    What no registry sends is a ValueError: a body that is compressed although nobody asked for it (its size is known
    only when it is too late), and a very long error.
    """

    def check(response: httpx.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise ValueError(f"the answer is encoded as {encoding[:20]}, unasked")
        assert isinstance(response.stream, httpx.SyncByteStream)
        if response.is_success:
            response.stream = _Body(response.stream, body_bytes, TooLarge(f"an answer is over {body_bytes} bytes"))
        else:
            response.stream = _Body(
                response.stream, ERROR_BYTES, ValueError(f"a very long HTTP {response.status_code}")
            )

    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {"response": [check]}
    for transport in (session._transport, *session._mounts.values()):
        if transport is not None:  # a mount without a transport is an address that no proxy serves
            pool = transport._pool  # type: ignore[attr-defined]
            pool._network_backend = _Backend(pool._network_backend)


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, most: int, error: Exception):
        self._stream = stream
        self._left = most
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise self._error
            yield chunk

    def close(self) -> None:
        self._stream.close()


class _Backend:
    """Opens connections that keep to the time limit."""

    def __init__(self, backend: Any):
        self._backend = backend

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> _Connection:
        return _Connection(self._backend.connect_tcp(host, port, timeout=_left(timeout), **options))


class _Connection:
    def __init__(self, stream: Any):
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._stream.read(max_bytes, _left(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout))

    def start_tls(self, ssl_context: Any, server_hostname: str | None, timeout: float | None = None) -> _Connection:
        return _Connection(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _left(timeout: float | None) -> float:
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answers took too long altogether")
    return left if timeout is None else min(left, timeout)
