"""Lets in only who has the token, and calls the page by a name that is its own.

A web site can have its name resolve to 127.0.0.1, so that a browser on this machine sends it requests (DNS rebinding).
Such a request has the name of the site as its host. A script of another site can open a connection, with the cookie of
this one; its origin is that of the other site.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections.abc import Callable, Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BEARER = "bearer "
COOKIE = "protolake_page"  # and a mark of the token: cookies know no ports, and two lakes may have pages
COOKIE_S = 7 * 24 * 3600
NO_TOKEN = (
    "the token is missing or wrong: open the address that `protolake status` prints, or send the token as "
    "Authorization: Bearer ..., or as ?token=...\n"
)
NO_HOST = "this page is not known by that host name: add it to page.names\n"
NO_ORIGIN = "the request comes from another site\n"
CLOSE = {"Connection": "close"}  # a stranger's next request is one of another connection
OTHER_SITES = ("cross-site", "same-site")  # same-site: another port of this host, which may be anybody's
# All that a browser loads comes from this process; the scripts of NiceGUI compile templates.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
SAFETY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        names: Iterable[str],
        has_tls: bool = False,
        clock: Callable[[], float] = time.time,
    ):
        """
        Args:
            names: host names besides localhost and addresses of numbers.
            has_tls: browsers reach the page by https.
        """
        self._app = app
        self._token = token.encode()
        self._names = frozenset({"localhost", *(name.casefold() for name in names)})
        self._has_tls = has_tls
        self._clock = clock
        self.cookie = f"{COOKIE}_{hashlib.sha256(self._token).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        response = self._refusal(scope) or self._entry(scope)
        if response is not None:
            return await response(scope, receive, send)
        # What follows may log an address, so it gets none with the token.
        clean = {**scope, "query_string": urlencode(_rest(scope)).encode()}
        await self._app(clean, receive, _with_safety(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if not self._is_own(hosts):
            return PlainTextResponse(NO_HOST, 403, CLOSE)
        if not (self._has_token(headers, scope["query_string"]) or self._has_cookie(headers)):
            return PlainTextResponse(NO_TOKEN, 401, CLOSE | {"WWW-Authenticate": "Bearer"})
        origins = headers.getlist("origin")
        if origins and [urlsplit(origin).netloc.casefold() for origin in origins] != [hosts[0].casefold()]:
            return PlainTextResponse(NO_ORIGIN, 403)
        if headers.get("sec-fetch-site") in OTHER_SITES and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse(NO_ORIGIN, 403)
        return None

    def _entry(self, scope: Scope) -> Response | None:
        """A browser that comes with the token gets a cookie instead, and the address without the token."""
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        rest = _rest(scope)
        if scope["type"] != "http" or scope["method"] != "GET" or not wants_page or len(rest) == len(_query(scope)):
            return None
        where = "/" + scope["path"].lstrip("/")  # two slashes at its start would name another host
        response = RedirectResponse(where + (f"?{urlencode(rest)}" if rest else ""), 303)
        response.headers["Cache-Control"] = "no-store"
        proof = self._proof(int(self._clock()) + COOKIE_S)
        response.set_cookie(self.cookie, proof, COOKIE_S, secure=self._has_tls, httponly=True, samesite="lax")
        return response

    def _proof(self, until: int) -> str:
        """Proves until a moment (Unix) that its bearer had the token, which cannot be made of it."""
        return f"{until}.{hmac.new(self._token, str(until).encode(), 'sha256').hexdigest()}"

    def _has_cookie(self, headers: Headers) -> bool:
        """Whether one of the cookies is a proof. Others may be of any form: servers on other ports share them."""
        pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        return any(name == self.cookie and self._is_proof(value) for name, _, value in pairs)

    def _is_proof(self, given: str) -> bool:
        until = given.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 12) or self._clock() >= int(until):
            return False
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._proof(int(until)).encode())

    def _has_token(self, headers: Headers, query: bytes) -> bool:
        given = headers.get("authorization", "")
        if given[: len(BEARER)].casefold() == BEARER:
            return self._is_token(given[len(BEARER) :].strip())
        try:
            pairs = parse_qsl(query.decode("ascii"), max_num_fields=20)
        except ValueError:
            return False
        return any(name == "token" and self._is_token(text) for name, text in pairs)

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


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)


def _rest(scope: Scope) -> list[tuple[str, str]]:
    """The query of an address without the token."""
    return [(name, value) for name, value in _query(scope) if name != "token"]


def _with_safety(send: Send) -> Send:
    """Adds headers that keep other sites, and texts of records, from running scripts here."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SAFETY.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
