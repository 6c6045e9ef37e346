"""Sends requests to a registry by HTTP: the addresses, the login, and how denied access is recognised."""

from __future__ import annotations

import base64
import json
import random
import re
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpcore2 as httpcore

from spark_app.model import http
from spark_app.model.errors import ConfigurationError
from spark_app.settings import config
from spark_app.settings.connections import RegistrySettings

ACCEPT = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
CONTENT = "application/vnd.schemaregistry.v1+json"
RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
RETRY_S = 0.2
TOKEN = re.compile(r"[!-~]+")  # with other characters a library rejects the header, in an error that has the token
LOGIN = "check registry.username and registry.password_file, or registry.token_file, and what that user may read"
LOGIN_STATUS = frozenset({401, 403})
CERTIFICATE_OF_REGISTRY = "check registry.ca_file, and the registry's certificate"
# Part of OpenSSL's error name -> what to check. All other failures of a handshake may be temporary.
TLS = {
    "WRONG_VERSION_NUMBER": "check registry.url: the server answers without TLS, so use http://",
    "HTTP_REQUEST": "check registry.url: the server answers without TLS, so use http://",
    "PROTOCOL": "check registry.url: the server offers no TLS version that this machine accepts",
    "CERTIFICATE": "check registry.certificate_file and registry.key_file",
    "UNKNOWN_CA": "check registry.certificate_file: the registry does not trust its authority",
    "HANDSHAKE_FAILURE": "check registry.certificate_file and registry.key_file",
    "ACCESS_DENIED": "check registry.certificate_file, and what its owner may read",
}


class TooLarge(Exception):
    """The body of a successful response is over the size limit."""


class HttpError(Exception):
    """An error response, or a success that is not JSON. The text is the registry's message, or what else it says."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Login:
    """The login of one client. It reads the secret when it is created, and again after access was denied (`renew`).

    Attributes:
        header: value of the "Authorization" header; "" without a login.

    Raises:
        ConfigurationError: the file cannot be read, or contains no valid token.
    """

    def __init__(self, settings: RegistrySettings):
        self._settings = settings
        self.header = self._read()
        self._sent_secrets = _secrets_of(self.header)

    def mask(self, text: str) -> str:
        """The text with every secret that was sent replaced by "***"."""
        for secret in self._sent_secrets:
            text = text.replace(secret, "***")
        return text

    def renew(self) -> str:
        """Read the file again and return the header; the old header if the file is not valid."""
        try:
            self.header = self._read()
        except ConfigurationError:
            return self.header  # another process may be writing the file
        self._sent_secrets |= _secrets_of(self.header)
        return self.header

    def _read(self) -> str:
        settings = self._settings
        if settings.token_file:
            token = config.read_secret(settings.token_file, "registry.token_file")
            if not TOKEN.fullmatch(token):
                raise ConfigurationError(f"registry.token_file: {settings.token_file} must contain only the token")
            return f"Bearer {token}"
        if settings.username:
            password = config.read_secret(settings.password_file, "registry.password_file")
            return f"Basic {base64.b64encode(f'{settings.username}:{password}'.encode()).decode()}"
        return ""


def _secrets_of(header: str) -> frozenset[str]:
    """The secrets in a header: its credentials as they are sent, and for basic auth also the plain password."""
    kind, _, sent = header.partition(" ")
    password = base64.b64decode(sent).decode().partition(":")[2] if kind == "Basic" else ""
    return frozenset(filter(None, (sent, password)))


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
        self._pools = [(url, http.connection_pool(url, context)) for url in urls]
        self._login = login
        self._timeout_s = settings.timeout_s
        self._body_bytes = body_bytes

    @property
    def connections(self) -> int:
        """The number of connections that are open or being opened."""
        return sum(len(pool.connections) for _, pool in self._pools)

    def get(self, path: str, query: dict[str, Any], value: Any = None) -> Any:
        """The JSON value of a successful response; None if its body is empty.

        Args:
            value: is sent with POST, perhaps several times; None = a GET.

        Raises:
            HttpError, TooLarge, TimeoutError, the errors of httpcore
            ValueError: the response is not that of a registry.
        """
        body = None if value is None else json.dumps(value).encode()
        parameters = urlencode({key: str(value).lower() if value is True else value for key, value in query.items()})
        target = f"{path}?{parameters}" if parameters else path
        for url, pool in self._pools[:-1]:
            try:
                return self._request(pool, f"{url}/{target}", body)
            except HttpError as error:
                if error.status not in RETRIABLE:
                    raise
            except http.FAILURES:
                pass
        url, pool = self._pools[-1]
        return self._request(pool, f"{url}/{target}", body)

    def _request(self, pool: httpcore.ConnectionPool, url: str, body: bytes | None) -> Any:
        try:
            return self._send(pool, url, body)
        except HttpError as error:
            if error.status not in RETRIABLE:
                raise
        except http.FAILURES:
            pass
        time.sleep(random.uniform(0, RETRY_S))
        return self._send(pool, url, body)

    def _send(self, pool: httpcore.ConnectionPool, url: str, body: bytes | None) -> Any:
        header = self._login.header
        response = self._exchange(pool, url, header, body)
        if response.status in LOGIN_STATUS and self._login.renew() != header:
            response = self._exchange(pool, url, self._login.header, body)
        if response.encoding != "identity":  # a compressed body could exceed the size limit once decompressed
            raise ValueError(f"the answer is encoded as {response.encoding[:20]}, which was not requested")
        if response.body is None and response.is_success:
            raise TooLarge(f"an answer is over {self._body_bytes} bytes")
        if response.body is None:
            raise ValueError(f"a very long HTTP {response.status}")
        if not response.is_success:
            raise HttpError(response.status, _message(response.body))
        try:
            return json.loads(response.body) if response.body else None
        except (ValueError, RecursionError):
            raise HttpError(response.status, _message(response.body)) from None

    def _exchange(self, pool: httpcore.ConnectionPool, url: str, login: str, body: bytes | None) -> http.Answer:
        headers = [("Accept", ACCEPT), ("Accept-Encoding", "identity")]
        headers += [("Authorization", login)] if login else []
        if body is None:
            return http.send(pool, "GET", url, headers, self._timeout_s, self._body_bytes)
        headers.append(("Content-Type", CONTENT))
        return http.send(pool, "POST", url, headers, self._timeout_s, self._body_bytes, body)


def _message(body: bytes) -> str:
    text = body.decode(errors="replace")
    try:
        found = json.loads(body)
        return str(found.get("message") or found["title"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        title = re.search("<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return f"a web page, {' '.join(title[1].split())!r}" if title else text


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


def remedy_of(status: int, error: BaseException | None) -> str | None:
    """The remedy if the HTTP status or a failed handshake behind `error` means that access is denied; None if a
    retry may succeed."""
    if status in LOGIN_STATUS:
        return LOGIN
    return next(filter(None, map(_tls_remedy, _causes(error))), None)


def _tls_remedy(error: BaseException) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return CERTIFICATE_OF_REGISTRY
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return next((remedy for part, remedy in TLS.items() if part in reason), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
