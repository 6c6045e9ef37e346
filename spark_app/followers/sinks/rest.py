"""Calls of an HTTP service, by aiohttp. Redirects are not followed, and answers are read up to a bound."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import errno
import ipaddress
import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from spark_app.followers.sinks.sink import DELETE, ERASE, KEY, OPERATION, Call, Outcome
from spark_app.model.errors import ConfigurationError
from spark_app.settings.config import read_secret
from spark_app.settings.sinks import NAME, Auth, Rest, names_in

ANSWER_BYTES = 2000
CONNECT_S = 10.0  # at most, for a connection
TOKEN_BYTES = 64 << 10
TOKEN_MARGIN_S = 30.0
SECRET_S = 10.0  # after which a file of a secret is read again
LONGEST_RETRY_AFTER_S = 3600.0
# Answers that say nothing about the rows: the service is away, too busy, moved, or does not know us.
NOT_ABOUT_ROWS = {401, 403, 404, 405, 407, 429, 502, 503, 504}


class RestSink:
    """The kind `rest`."""

    can_replace = False

    def __init__(self, name: str, settings: Rest, in_flight: int):
        """`name` is that of the sink, for messages."""
        self._setting = f"sinks.{name}.rest"
        self._settings = settings
        self.can_erase = bool(settings.on_erase)
        self._in_flight = in_flight
        self._session: aiohttp.ClientSession | None = None
        self._header: str | None = None
        self._header_until = 0.0
        self._secrets: set[str] = set()  # that were sent
        self._of_row = sorted({*names_in(settings.url), *names_in(settings.delete)} - {NAME})
        self._timeout = aiohttp.ClientTimeout(total=settings.timeout_s, sock_connect=min(CONNECT_S, settings.timeout_s))
        self._asking = asyncio.Lock()

    def open(self, options: Mapping[str, Any]) -> None:
        """Check addresses, secrets and certificates, as far as they are known without a call."""
        settings = self._settings
        _tls(settings.auth, self._setting)
        for setting in ("bearer_file", "password_file", "client_secret_file"):
            if getattr(settings.auth, setting):
                self._secret(setting)
        addresses = {"url": settings.url, "delete": settings.delete, "on_erase": settings.on_erase}
        for setting, url in (addresses | {"auth.token_url": settings.auth.token_url}).items():
            check_address(f"{self._setting}.{setting}", url, settings.allow_private)

    async def send(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        return [await self._send(call) for call in calls]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(self, call: Call) -> Outcome:
        """
        Raises:
            ConfigurationError: an address names a column that the rows lack, or one besides the key of a gone row.
        """
        settings, row = self._settings, call.objects[0] if self._of_row or OPERATION in call.rows.column_names else {}
        if row.get(OPERATION) == ERASE:
            address = settings.on_erase.format(key=quote(row[KEY], safe=""))
            return await self._request(call.key, "DELETE", address, None)
        is_gone = bool(settings.delete) and row.get(OPERATION) == DELETE
        pattern = settings.delete if is_gone else settings.url
        values = dict[str, str]()
        for name in set(names_in(pattern)) - {NAME}:
            if name not in (call.names if is_gone else row):
                known = ", ".join(call.names if is_gone else row)
                raise ConfigurationError(f"{self._setting}: {name} cannot be in the address; there are {known}")
            values[name] = quote(str(row[name]), safe="")
            if row[name] is None or values[name] in ("", ".", ".."):
                return Outcome(call.key, "refused", answer=f"{name} is {row[name]!r}, which no address can have")
        address = pattern.format(**values, **{NAME: quote(call.name, safe="")})
        if is_gone:
            return await self._request(call.key, "DELETE", address, None)
        return await self._request(call.key, settings.method, address, call)

    async def _request(self, key: str, method: str, address: str, call: Call | None) -> Outcome:
        settings, headers = self._settings, {**self._settings.headers, "Idempotency-Key": key}
        body = None
        if call is not None:
            body, headers["Content-Type"] = _body(settings.body, call)
            if len(body) > settings.max_bytes:
                text = f"the body has {len(body)} bytes, and max_bytes is {settings.max_bytes}"
                return Outcome(key, "too_large", answer=text)
        session = self._connected()
        try:
            if authorization := await self._authorization(session):
                headers["Authorization"] = authorization
        except (OSError, TimeoutError, aiohttp.ClientError, ConfigurationError) as error:
            return Outcome(key, "unavailable", answer=str(error))
        try:
            async with session.request(
                method, address, data=body, headers=headers, allow_redirects=False, timeout=self._timeout
            ) as answer:
                text = (await answer.content.read(ANSWER_BYTES)).decode(errors="replace")
                return self._outcome(key, answer, self._without_secrets(text))
        except aiohttp.ConnectionTimeoutError:
            return Outcome(key, "unavailable", answer="no connection in time")
        except TimeoutError:
            return Outcome(key, "retry", answer=f"no answer within {settings.timeout_s:g} s")
        except aiohttp.ClientConnectorError as error:
            return Outcome(key, "unavailable", answer=str(error))
        except (aiohttp.ClientError, OSError) as error:
            return Outcome(key, "retry", answer=f"{type(error).__name__}: {error}")

    def _outcome(self, key: str, answer: aiohttp.ClientResponse, text: str) -> Outcome:
        status = answer.status
        if 200 <= status < 300 or status in self._settings.drop_on:
            return Outcome(key, "accepted", status)
        wait_s = _wait_s(answer.headers.get("Retry-After", ""))
        if status in self._settings.retry_on:
            return Outcome(key, "retry", status, text, wait_s)
        if 300 <= status < 400:
            text = f"redirects to {answer.headers.get('Location', 'nowhere')}: set the url to where the service is"
            return Outcome(key, "unavailable", status, text)
        if status in NOT_ABOUT_ROWS:
            if status == 401:
                self._header = None
            return Outcome(key, "unavailable", status, f"status {status}: {text}", wait_s)
        return Outcome(key, "refused" if status < 500 else "retry", status, text, wait_s)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = _Resolver(self._settings.allow_private)
            connector = aiohttp.TCPConnector(
                limit=self._in_flight, ssl=_tls(self._settings.auth, self._setting), resolver=resolver
            )
            # Not `trust_env`, which asks for the proxy at each call, in another thread.
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=_proxy(self._settings.url),
                auto_decompress=False,
            )
        return self._session

    async def _authorization(self, session: aiohttp.ClientSession) -> str:
        """The header that says who we are; "" = none. A secret is read again after `SECRET_S`, and after a 401."""
        if self._header is None or time.monotonic() > self._header_until:
            async with self._asking:
                if self._header is None or time.monotonic() > self._header_until:
                    self._header, lasts_s = await self._ask(session)
                    self._header_until = time.monotonic() + lasts_s
        return self._header

    async def _ask(self, session: aiohttp.ClientSession) -> tuple[str, float]:
        """(header, seconds for which it is valid)"""
        auth = self._settings.auth
        if auth.username:
            return self._basic(auth.username, self._secret("password_file")), SECRET_S
        if auth.bearer_file:
            return f"Bearer {self._secret('bearer_file')}", SECRET_S
        if not auth.token_url:
            return "", float("inf")
        form = {"grant_type": "client_credentials"} | ({"scope": auth.scope} if auth.scope else {})
        who = self._basic(quote(auth.client_id, safe=""), quote(self._secret("client_secret_file"), safe=""))
        headers = {"Authorization": who}
        async with session.post(
            auth.token_url, data=form, headers=headers, allow_redirects=False, timeout=self._timeout
        ) as answer:
            text = await answer.content.read(TOKEN_BYTES)
            if answer.status != 200:
                raise OSError(f"{auth.token_url} gives no token: status {answer.status}")
        try:
            given = json.loads(text)
            token, lasts_s = str(given["access_token"]), float(given.get("expires_in", 300))
        except (ValueError, LookupError, TypeError):
            raise OSError(f"{auth.token_url} gives no token: the answer has no access_token") from None
        self._secrets.add(token)
        return f"Bearer {token}", max(1.0, lasts_s - TOKEN_MARGIN_S)

    def _secret(self, setting: str) -> str:
        found = read_secret(getattr(self._settings.auth, setting), f"{self._setting}.auth.{setting}")
        self._secrets.add(found)
        return found

    def _basic(self, user: str, password: str) -> str:
        header = aiohttp.encode_basic_auth(user, password)
        self._secrets |= {password, header.removeprefix("Basic ")}
        return header

    def _without_secrets(self, text: str) -> str:
        """A service may repeat what it was sent."""
        for secret in self._secrets - {""}:
            text = text.replace(secret, "***")
        return text


class _Resolver(AbstractResolver):
    """Names to addresses; those of the machine's own network only if they are allowed."""

    def __init__(self, allow_private: bool):
        self._allow_private = allow_private
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            if not self._allow_private and (refused := _refused(one["host"])):
                raise OSError(errno.EACCES, f"{host} is {refused}")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def check_address(setting: str, url: str, allow_private: bool) -> None:
    """Refuse an address that is a number of the own network: names are looked at when they are resolved.

    Raises:
        ConfigurationError
    """
    with contextlib.suppress(ValueError):
        if not allow_private and (refused := _refused(urlsplit(url).hostname or "")):
            raise ConfigurationError(f"{setting}: {url} is {refused}")


def _refused(address: str) -> str:
    """Why calls do not go there; "" = they do.

    Raises:
        ValueError: it is a name.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    return "" if found.is_global else f"{address}, of the machine's own network: set allow_private = true to call it"


def _proxy(url: str) -> str | None:
    """The proxy in the environment, if there is one."""
    parts = urlsplit(url)
    return None if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies().get(parts.scheme)


def _tls(auth: Auth, setting: str) -> ssl.SSLContext:
    """
    Raises:
        ConfigurationError: a certificate or key cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=auth.ca_file or None)
        if auth.cert_file:
            context.load_cert_chain(auth.cert_file, auth.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"{setting}.auth: a certificate or key cannot be used ({error})") from None
    return context


def _body(form: str, call: Call) -> tuple[bytes, str]:
    """(body, its type)"""
    if form == "ndjson":
        return b"\n".join(call.lines) + b"\n", "application/x-ndjson"
    lines = b",".join(call.lines)
    return (lines if form == "object" else b"[" + lines + b"]"), "application/json"


def _wait_s(text: str) -> float:
    """The seconds of Retry-After, which is a number or a date."""
    if text.strip().isdecimal():
        return min(float(text), LONGEST_RETRY_AFTER_S)
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return 0.0
    return min(max(0.0, at - time.time()), LONGEST_RETRY_AFTER_S)
