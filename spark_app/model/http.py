"""HTTP requests with limits on the answers: their total time and their size.

A client's own timeout is per read: a server that sends a byte now and then never reaches it. So each read and write of
a connection is also limited to the remaining total time.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpcore2 as httpcore

ERROR_BYTES = 64 << 10  # longest body of an answer that is no success
FAILURES = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError)
_deadline: ContextVar[float] = ContextVar("_deadline", default=float("inf"))  # monotonic seconds


@dataclass(frozen=True)
class Answer:
    """
    Attributes:
        encoding: of the body, such as "gzip"; "identity" if there is none.
        body: as it was sent; None if it is over the limit.
    """

    status: int
    encoding: str
    body: bytes | None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the total time of this thread's requests in the block; then they raise TimeoutError. An earlier limit of an
    outer block stays in force."""
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def send(
    pool: httpcore.ConnectionPool,
    method: str,
    url: str,
    headers: Sequence[tuple[str, str]],
    timeout_s: float,
    body_bytes: int = ERROR_BYTES,
    content: bytes | None = None,
) -> Answer:
    """Send a request. Redirects are not followed.

    Args:
        timeout_s: for a single read or write.
        body_bytes: longest body of a success.

    Raises:
        TimeoutError, FAILURES and other errors of httpcore
    """
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
    with pool.stream(method, url, headers=headers, content=content, extensions={"timeout": timeouts}) as response:
        named = [value for name, value in response.headers if name.lower() == b"content-encoding"]
        encoding = next((value for value in named if value.lower() != b"identity"), b"identity").decode("latin-1")
        left = body_bytes if 200 <= response.status < 300 else ERROR_BYTES
        body = []
        for chunk in response.iter_stream():
            left -= len(chunk)
            if left < 0:
                return Answer(response.status, encoding, None)
            body.append(chunk)
        return Answer(response.status, encoding, b"".join(body))


def connection_pool(url: str, context: ssl.SSLContext) -> httpcore.ConnectionPool:
    """Connections to one server within the time limit, through the proxy in the environment if there is one."""
    parts = urlsplit(url)
    proxy_url = "" if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies().get(parts.scheme, "")
    return httpcore.ConnectionPool(ssl_context=context, proxy=_proxy(proxy_url), network_backend=_Backend())


def _proxy(address: str) -> httpcore.Proxy | None:
    if not address:
        return None
    parts = urlsplit(address if "://" in address else f"http://{address}")
    login = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    port = f":{parts.port}" if parts.port else ""
    return httpcore.Proxy(f"{parts.scheme}://{quote(parts.hostname or '', safe=':[]')}{port}", auth=login)


class _Backend(httpcore.NetworkBackend):
    """Opens connections that respect the time limit."""

    def __init__(self) -> None:
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _Connection(self._sockets.connect_tcp(host, port, _left(timeout), local_address, socket_options))


class _Connection(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream):
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
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
