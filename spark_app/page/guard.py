"""Lets in only who has a token, and calls the page by a name that is its own. A user who does not see everything gets
to the view Query and no further.

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
from dataclasses import dataclass
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
NOTHING = "there is nothing here that you may see\n"
USER = "protolake_user"
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


@dataclass(frozen=True)
class Key:
    """What lets somebody in.

    Attributes:
        user: the user of the settings whose it is; "" = who has the token of the page itself.
        paths: the paths that it opens, with what is below; None = all.
    """

    token: bytes
    user: str = ""
    paths: tuple[str, ...] | None = None

    @property
    def cookie(self) -> str:
        return f"{COOKIE}_{hashlib.sha256(self.token).hexdigest()[:8]}"

    def opens(self, path: str) -> bool:
        return self.paths is None or any(path == one or path.startswith(f"{one}/") for one in self.paths)


class Guard:
    """An ASGI application around another one. `USER` of the scope names the user."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        names: Iterable[str],
        has_tls: bool = False,
        clock: Callable[[], float] = time.time,
        keys: Iterable[Key] = (),
    ):
        """
        Args:
            names: host names besides localhost and addresses of numbers.
            has_tls: browsers reach the page by https.
            keys: those of users.
        """
        self._app = app
        self._keys = (Key(token.encode()), *keys)
        self._names = frozenset({"localhost", *(name.casefold() for name in names)})
        self._has_tls = has_tls
        self._clock = clock
        self.cookie = self._keys[0].cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        key = self._key(Headers(scope=scope), scope["query_string"])
        response = self._refusal(scope, key)
        if response is None:
            assert key is not None
            response = self._entry(scope, key)
        if response is not None:
            return await response(scope, receive, send)
        assert key is not None
        # What follows may log an address, so it gets none with the token.
        clean = {**scope, "query_string": urlencode(_rest(scope)).encode(), USER: key.user}
        await self._app(clean, receive, _with_safety(send))

    def _refusal(self, scope: Scope, key: Key | None) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if not self._is_own(hosts):
            return PlainTextResponse(NO_HOST, 403, CLOSE)
        if key is None:
            return PlainTextResponse(NO_TOKEN, 401, CLOSE | {"WWW-Authenticate": "Bearer"})
        origins = headers.getlist("origin")
        if origins and [urlsplit(origin).netloc.casefold() for origin in origins] != [hosts[0].casefold()]:
            return PlainTextResponse(NO_ORIGIN, 403)
        if headers.get("sec-fetch-site") in OTHER_SITES and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse(NO_ORIGIN, 403)
        if not key.opens(scope["path"]) and (scope["path"] != "/" or not key.paths):
            return PlainTextResponse(NOTHING, 404)
        return None

    def _entry(self, scope: Scope, key: Key) -> Response | None:
        """A browser that comes with the token gets a cookie instead, and the address without the token."""
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        rest = _rest(scope)
        is_start = scope["path"] == "/" and not key.opens("/")
        if is_start and scope["type"] != "http":
            return PlainTextResponse(NOTHING, 404)
        has_token = len(rest) < len(_query(scope)) and wants_page
        if not is_start and (scope["type"] != "http" or scope["method"] != "GET" or not has_token):
            return None
        where = "/" + scope["path"].lstrip("/")  # two slashes at its start would name another host
        where = key.paths[0] if is_start and key.paths else where
        response = RedirectResponse(where + (f"?{urlencode(rest)}" if rest else ""), 303)
        response.headers["Cache-Control"] = "no-store"
        if not has_token:
            return response
        proof = self._proof(key, int(self._clock()) + COOKIE_S)
        response.set_cookie(key.cookie, proof, COOKIE_S, secure=self._has_tls, httponly=True, samesite="lax")
        return response

    def _key(self, headers: Headers, query: bytes) -> Key | None:
        """The key that a request has: a token, or a proof of one."""
        given = headers.get("authorization", "")
        if given[: len(BEARER)].casefold() == BEARER:
            return self._of_token(given[len(BEARER) :].strip())
        try:
            pairs = parse_qsl(query.decode("ascii"), max_num_fields=20)
        except ValueError:
            pairs = []
        tokens = (self._of_token(text) for name, text in pairs if name == "token")
        return next(filter(None, tokens), None) or self._of_cookie(headers)

    def _of_token(self, text: str) -> Key | None:
        given = text.encode("utf-8", "surrogateescape")
        return next((key for key in self._keys if hmac.compare_digest(given, key.token)), None)

    def _of_cookie(self, headers: Headers) -> Key | None:
        """The key of which one of the cookies is a proof. Others may be of any form: servers on other ports share
        them."""
        known = {key.cookie: key for key in reversed(self._keys)}
        pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        found = ((known[name], value) for name, _, value in pairs if name in known)
        return next((key for key, value in found if self._is_proof(key, value)), None)

    def _proof(self, key: Key, until: int) -> str:
        """Proves until a moment (Unix) that its bearer had the token, which cannot be made of it."""
        return f"{until}.{hmac.new(key.token, str(until).encode(), 'sha256').hexdigest()}"

    def _is_proof(self, key: Key, given: str) -> bool:
        until = given.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 12) or self._clock() >= int(until):
            return False
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._proof(key, int(until)).encode())

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
