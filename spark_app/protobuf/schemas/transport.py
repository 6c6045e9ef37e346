"""HTTP GET on a registry, with limits on the responses: their total time, size and encoding.

A client's own timeout is per read: a server that sends a byte now and then never reaches it. So each read and write of
a connection is also limited to the remaining total time.
"""

from __future__ import annotations

import json
import random
import ssl
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import httpcore2 as httpcore

from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.schemas.credentials import Login
from spark_app.settings.connections import RegistrySettings

ERROR_BYTES = 64 << 10  # longest body of an error response
ACCEPT = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
RETRY_S = 0.2
FAILURES = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError)
_deadline: ContextVar[float] = ContextVar("_deadline", default=float("inf"))  # monotonic seconds


class TooLarge(Exception):
    """The body of a successful response is over the size limit."""


class HttpError(Exception):
    """An error response. The text is the registry's message, or the body if it has none."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the total time of this thread's requests in the block; then they raise TimeoutError. An earlier limit of an
    outer block stays in force."""
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


class Client:
    """Sends a request to the addresses of the settings, one after the other, until one responds; to each at most
    twice."""

    def __init__(self, settings: RegistrySettings, login: Login, body_bytes: int):
        """
        Raises:
            ConfigurationError: a certificate or key cannot be used.
        """
        urls = [url.strip().rstrip("/") for url in settings.url.split(",")]
        context = _tls(settings, any(urlsplit(url).scheme == "https" for url in urls))
        self._pools = [(url, connection_pool(url, context)) for url in urls]
        self._login = login
        self._timeout_s = settings.timeout_s
        self._body_bytes = body_bytes

    @property
    def connections(self) -> int:
        """The number of connections that are open or being opened."""
        return sum(len(pool.connections) for _, pool in self._pools)

    def get(self, path: str, query: dict[str, Any]) -> Any:
        """The JSON value of a successful response; None if its body is empty.

        Raises:
            HttpError, TooLarge, TimeoutError, the errors of httpcore
            ValueError: the response is not that of a registry.
        """
        parameters = urlencode({key: str(value).lower() if value is True else value for key, value in query.items()})
        target = f"{path}?{parameters}" if parameters else path
        for url, pool in self._pools[:-1]:
            try:
                return self._ask(pool, f"{url}/{target}")
            except HttpError as error:
                if error.status not in RETRIABLE:
                    raise
            except FAILURES:
                pass
        url, pool = self._pools[-1]
        return self._ask(pool, f"{url}/{target}")

    def _ask(self, pool: httpcore.ConnectionPool, url: str) -> Any:
        try:
            return self._send(pool, url)
        except HttpError as error:
            if error.status not in RETRIABLE:
                raise
        except FAILURES:
            pass
        time.sleep(random.uniform(0, RETRY_S))
        return self._send(pool, url)

    def _send(self, pool: httpcore.ConnectionPool, url: str) -> Any:
        header = self._login.header
        status, body = self._exchange(pool, url, header)
        if self._login.is_refusal(status) and self._login.renew() != header:
            status, body = self._exchange(pool, url, self._login.header)
        if not 200 <= status < 300:
            raise HttpError(status, _message(body))
        return json.loads(body) if body else None

    def _exchange(self, pool: httpcore.ConnectionPool, url: str, login: str) -> tuple[int, bytes]:
        headers = [("Accept", ACCEPT), ("Accept-Encoding", "identity")]
        headers += [("Authorization", login)] if login else []
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout_s)
        with pool.stream("GET", url, headers=headers, extensions={"timeout": timeouts}) as response:
            for name, value in response.headers:  # a compressed body could exceed the size limit once decompressed
                if name.lower() == b"content-encoding" and value.lower() != b"identity":
                    raise ValueError(
                        f"the answer is encoded as {value[:20].decode('latin-1')}, which was not requested"
                    )
            good = 200 <= response.status < 300
            return response.status, b"".join(self._bounded(response, good))

    def _bounded(self, response: httpcore.Response, good: bool) -> Iterator[bytes]:
        left = self._body_bytes if good else ERROR_BYTES
        for chunk in response.iter_stream():
            left -= len(chunk)
            if left < 0 and good:
                raise TooLarge(f"an answer is over {self._body_bytes} bytes")
            if left < 0:
                raise ValueError(f"a very long HTTP {response.status}")
            yield chunk


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body.decode(errors="replace")


def _tls(settings: RegistrySettings, is_used: bool) -> ssl.SSLContext:
    try:
        if settings.ca_file:
            context = ssl.create_default_context(cafile=settings.ca_file)
        elif is_used:
            context = httpcore.default_ssl_context()
        else:  # trusts no server: reading the machine's certificates takes more than the rest of a client
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if settings.key_file and not settings.certificate_file:
            raise ValueError("a key without a certificate")
        if settings.certificate_file:
            context.load_cert_chain(settings.certificate_file, settings.key_file or None)
        return context
    except (OSError, ValueError) as error:
        files = ", ".join(filter(None, (settings.ca_file, settings.certificate_file, settings.key_file)))
        keys = "registry.ca_file, registry.certificate_file and registry.key_file"
        raise ConfigurationError(f"{keys}: {files} cannot be used ({error})") from None


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
