"""Lets in only who has the token, and calls the page by a name that is its own.

A web site can have its name resolve to 127.0.0.1, so that a browser on this machine sends it requests (DNS rebinding).
Such a request has the name of the site as its host.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

BEARER = "bearer "
NO_TOKEN = "the token is missing or wrong: send it as Authorization: Bearer ..., or as ?token=...\n"
NO_HOST = "this page is not known by that host name: add it to page.names\n"


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, token: str, names: Iterable[str]):
        """`names`: host names besides localhost and addresses of numbers."""
        self._app = app
        self._token = token.encode()
        self._names = frozenset({"localhost", *(name.casefold() for name in names)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not self._has_token(headers, scope["query_string"]):
            answer = PlainTextResponse(NO_TOKEN, 401, {"WWW-Authenticate": "Bearer"})
            return await answer(scope, receive, send)
        if not self._is_own(headers.getlist("host")):
            return await PlainTextResponse(NO_HOST, 403)(scope, receive, send)
        await self._app(scope, receive, send)

    def _has_token(self, headers: Headers, query: bytes) -> bool:
        given = headers.get("authorization", "")
        if given[: len(BEARER)].casefold() == BEARER:
            return self._is_token(given[len(BEARER) :].strip())
        try:
            return any(self._is_token(text) for text in parse_qs(query.decode("ascii"), max_num_fields=20)["token"])
        except (KeyError, ValueError):
            return False

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self._token)

    def _is_own(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        host = hosts[0]
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "0")
        if not (port.isascii() and port.isdigit()):
            return False
        if name.casefold().removesuffix(".") in self._names:
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True
