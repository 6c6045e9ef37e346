"""The cookie that a browser gets for the token, what the page behind the guard sees of the token, and which tables it
hides."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from spark_app.model.errors import ConfigurationError
from spark_app.page.clear_text import hidden_tables
from spark_app.page.guard import COOKIE_S, USER, Guard, Key
from spark_app.page.server import keys_of
from spark_app.settings.models import Settings
from spark_app.settings.watching import Page
from tests.support.cost import least_cpu
from tests.support.lakes import SmallLake

TOKEN = "t" * 43
OF_ANN, OF_BEN = Key(b"a" * 30, "ann"), Key(b"b" * 30, "ben", ("/query", "/_nicegui"))
OF_CARL = Key(b"c" * 30, "carl", ())  # who may do nothing here
HTML = (b"accept", b"text/html,*/*")
HOST = (b"host", b"127.0.0.1:8085")


class Asked:
    """One answer. Attributes: status, headers, seen (the query that the page behind the guard got; None = none)."""

    def __init__(
        self,
        *headers: tuple[bytes, bytes],
        query: bytes = b"",
        now: float = 1000.0,
        tls: bool = False,
        path: str = "/",
        kind: str = "http",
    ):
        self.seen: str | None = None
        self.user: str | None = None
        sent: list[Any] = []

        async def inside(request: Request) -> Response:
            self.seen, self.user = request.url.query, request.scope[USER]
            return PlainTextResponse("in")

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        app = Starlette(routes=[Route("/{path:path}", inside)])
        guard = Guard(app, TOKEN, (), tls, lambda: now, keys=(OF_ANN, OF_BEN, OF_CARL))
        scope = {"type": kind, "method": "GET", "path": path, "query_string": query, "headers": [HOST, *headers]}
        anyio.run(guard, scope, receive, send)
        self.status = sent[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        self.name = guard.cookie


def cookie() -> bytes:
    """What a browser sends after it has come with the token."""
    return Asked(HTML, query=f"token={TOKEN}".encode()).headers["set-cookie"].partition(";")[0].encode()


def test_a_browser_gets_a_cookie_for_the_token_and_an_address_without_it() -> None:
    came = Asked(HTML, query=f"a=1&token={TOKEN}&b=".encode())
    assert (came.status, came.headers["location"], came.seen) == (303, "/?a=1&b=", None)
    made = came.headers["set-cookie"]
    assert all(part in made for part in ("HttpOnly", "SameSite=lax", f"Max-Age={COOKIE_S}"))
    assert "Secure" not in made
    assert TOKEN not in made
    assert "Secure" in Asked(HTML, query=f"token={TOKEN}".encode(), tls=True).headers["set-cookie"]
    assert Asked((b"cookie", cookie())).status == 200


def bearer(key: Key) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + key.token


@pytest.mark.parametrize(
    ("path", "of_ann", "of_ben", "of_carl"),
    [
        ("/", 200, 303, 404),
        ("/query", 200, 200, 404),
        ("/_nicegui/3.0/a.js", 200, 200, 404),
        ("/queryx", 200, 404, 404),
        ("/query/../tables/x", 200, 200, 404),  # no server before this one makes another path of it
        ("/tables/silver_uno_events", 200, 404, 404),
        ("/quarantine", 200, 404, 404),
        ("/metrics", 200, 404, 404),
        ("/health", 200, 404, 404),
        ("//query", 200, 404, 404),
    ],
)
def test_a_user_gets_to_what_is_open_to_the_user(path: str, of_ann: int, of_ben: int, of_carl: int) -> None:
    found = [Asked(bearer(key), path=path) for key in (OF_ANN, OF_BEN, OF_CARL)]
    assert [one.status for one in found] == [of_ann, of_ben, of_carl]
    assert [one.user for one in found if one.status == 200] == ["ann", "ben"][: sum(n == 200 for n in (of_ann, of_ben))]


def test_a_user_has_a_cookie_of_the_own_key() -> None:
    came = Asked(HTML, query=b"token=" + OF_BEN.token, path="/query")
    assert (came.status, came.headers["location"]) == (303, "/query")
    own = (b"cookie", came.headers["set-cookie"].partition(";")[0].encode())
    assert (Asked(own, path="/query").user, Asked(own, path="/runs").status) == ("ben", 404)
    assert Asked(own, (b"cookie", cookie()), path="/query").status == 200
    started = Asked(HTML, query=b"token=" + OF_BEN.token)
    assert started.headers["location"] == "/query"
    assert "set-cookie" in started.headers
    assert Asked((b"cookie", cookie())).user == ""


def test_tokens_of_users_are_secrets(tmp_path: Path) -> None:
    def settings(**tokens: str) -> Settings:
        users = {}
        for name, token in tokens.items():
            (tmp_path / name).write_text(f"{token}\n")
            users[name] = {"token_file": str(tmp_path / name), "tables": ["gold_*"]}
        return Settings(users=users)  # type: ignore[arg-type]

    [key] = keys_of(settings(ann="a" * 20))
    assert (key.user, key.token, key.opens("/query"), key.opens("/")) == ("ann", b"a" * 20, True, False)
    open_to_all = settings(ann="a" * 20).model_copy(update={"page": Page(host="0.0.0.0")})
    with pytest.raises(ConfigurationError, match=r"in clear text at 0\.0\.0\.0: set page\.address"):
        keys_of(open_to_all)
    for address in ("https://lake.example", "http://127.0.0.1:8085"):
        assert keys_of(open_to_all.model_copy(update={"page": Page(host="0.0.0.0", address=address)}))
    with pytest.raises(ConfigurationError, match=r"users\.ann\.token_file: a token has at least 20"):
        keys_of(settings(ann="short"))
    with pytest.raises(ConfigurationError, match=r"users\.ben\.token_file: another user has the same token"):
        keys_of(settings(ann="a" * 20, ben="a" * 20))
    with pytest.raises(ConfigurationError, match=r"users\.ann\.token_file: cannot read"):
        keys_of(Settings(users={"ann": {"token_file": str(tmp_path / "no"), "tables": ["*"]}}))  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "others",
    [b'prefs={"a":1}; %s', b'a="\\"; %s', b"%s; a=b", b";;;=;%s;", b"a; b=; %s", b"\xff\xfe=\xff; %s", b"x=1;%s"],
)
def test_cookies_of_other_servers_on_this_host_lock_nobody_out(others: bytes) -> None:
    assert Asked((b"cookie", others.replace(b"%s", cookie()))).status == 200


def test_a_cookie_ends_and_cannot_be_made() -> None:
    proof = cookie()
    name, _, value = proof.partition(b"=")
    until, _, digest = value.partition(b".")
    assert Asked((b"cookie", proof), now=1000.0 + COOKIE_S - 1).status == 200
    assert Asked((b"cookie", proof), now=1000.0 + COOKIE_S).status == 401
    later = str(int(until) + 1).encode()
    for made in (
        later + b"." + digest,
        until + b"." + digest[:-1],
        until,
        b"",
        b"." + digest,
        b"9" * 500 + b"." + digest,
    ):
        assert Asked((b"cookie", name + b"=" + made)).status == 401
    assert Asked((b"cookie", b"protolake_page=" + value)).status == 401


@pytest.mark.parametrize(
    "header", [b'a="' + b'\\"' * 60_000, b";" * 120_000, b"a=b;" * 30_000], ids=["quotes", "empty", "pairs"]
)
def test_a_long_header_costs_little(header: bytes) -> None:
    asked = (b"cookie", header)
    assert Asked(asked).status == 401
    assert least_cpu(lambda: Asked(asked)) < 0.5


@pytest.mark.parametrize("query", [f"token={TOKEN}", f"a=1&token={TOKEN}", f"token=x&token={TOKEN}&a=%C3%A9"])
def test_what_is_behind_the_guard_sees_no_token(query: str) -> None:
    """It may log the addresses that it does not know."""
    asked = Asked(query=query.encode())
    assert asked.status == 200
    assert asked.seen in ("", "a=1", "a=%C3%A9")


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        (b"same-origin", b"cors", 200),
        (b"none", b"navigate", 200),
        (b"cross-site", b"navigate", 200),
        (b"cross-site", b"no-cors", 403),
        (b"same-site", b"websocket", 403),
        (b"same-site", b"cors", 403),
    ],
)
def test_scripts_and_pictures_of_other_sites_and_ports_get_nothing(site: bytes, mode: bytes, status: int) -> None:
    found = Asked((b"cookie", cookie()), (b"sec-fetch-site", site), (b"sec-fetch-mode", mode))
    assert found.status == status


def test_tables_that_the_settings_of_the_page_do_not_know_are_hidden_with_the_others(tmp_path: Path) -> None:
    """The page was started without the settings file of the app, whose tables have other names."""
    named = {"tables": {"bronze": "raw_in", "silver": "s_{name}", "gold": "g_{name}"}}
    lake = SmallLake(tmp_path / "lake", **named, silver={"drop": ("device_id",)}).lake
    for name in ("raw_in", "s_uno", "g_uno", "pipeline_events", "somebodys"):
        (lake.root / name / "_delta_log").mkdir(parents=True)
        (lake.root / name / "_delta_log" / f"{0:020}.json").write_text("{}\n")
    (lake.root / lake.definitions).write_text('{"1": {"rules": [], "drop": ["device_id"]}}')
    without = Settings(lake={"path": str(lake.root)}, registry={"url": "http://127.0.0.1:1"})  # type: ignore[arg-type]
    assert hidden_tables(lake, without) >= {"raw_in", "somebodys", "quarantine_events"}
    assert not hidden_tables(lake, without) & {"s_uno", "g_uno", "pipeline_events"}
    shown = Settings(**{**dict(without), "page": {"clear_text": True}})  # type: ignore[arg-type]
    assert hidden_tables(lake, shown) == frozenset()
