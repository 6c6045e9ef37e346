"""Who gets in: a browser with the token, and nobody else, wherever they ask."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette

from spark_app.lake.lake import Lake
from spark_app.page.guard import NOTHING, Guard
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.pages import Running, page
from tests.support.projections import EVENTS, UNO, event
from tests.support.statuses import write_status


def test_a_browser_gets_a_cookie_for_the_token_which_no_script_can_read(
    lake: Lake, opened: Callable[..., Page]
) -> None:
    write_status(lake, at=time.time())
    with page(lake) as running:
        tab = opened(running)
        assert tab.url == f"{running.url}/"
        (cookie,) = [one for one in tab.context.cookies() if one["name"] == cookie_of(running)]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
        assert running.token not in cookie["value"]
        assert tab.evaluate("document.cookie") == ""
        tab.goto(f"{running.url}/")
        expect(tab.get_by_test_id("state")).to_be_visible()


def test_everything_needs_the_token(lake: Lake, opened: Callable[..., Page]) -> None:
    """All that a browser with the token loads is asked for again without it, and then by a made up one."""
    write_status(lake, at=time.time())
    asked: list[str] = []
    with page(lake) as running:
        tab = opened(running)
        tab.on("request", lambda one: asked.append(one.url))
        tab.reload()
        expect(tab.get_by_test_id("state")).to_be_visible()
        paths = {re.sub(r"\?.*", "", one.removeprefix(running.url)) for one in asked}
        paths |= {
            "/",
            "/metrics",
            "/health",
            "/quarantine",
            "/_nicegui_ws/socket.io/",
            "/no/such",
            "/openapi.json",
            "/docs",
        }
        assert len(paths) > 15
        made_up = ({}, {"Cookie": f"{cookie_of(running)}=1999999999.{'0' * 64}"}, {"Authorization": "Bearer x"})
        with httpx2.Client(base_url=running.url, timeout=30) as client:
            for path in sorted(paths):
                for headers in made_up:
                    for method in ("GET", "POST"):
                        assert client.request(method, path, headers=headers).status_code == 401, (method, path)


def test_the_connection_of_a_view_needs_the_token_too(lake: Lake, browser: Browser) -> None:
    with page(lake) as running:
        assert upgrade(running) == 401
        assert upgrade(running, Authorization=f"Bearer {running.token}") == 101
        assert upgrade(running, Authorization=f"Bearer {running.token}", Origin="http://evil.example") == 403
        assert upgrade(running, Authorization=f"Bearer {running.token}", Origin=running.url) == 101


def cookie_of(running: Running) -> str:
    return Guard(Starlette(), running.token, ()).cookie


def upgrade(running: Running, **headers: str) -> int:
    """The status of the answer to a request for a WebSocket."""
    asked = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        **headers,
    }
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with httpx2.stream("GET", f"{running.url}{path}", headers=asked, timeout=30) as answer:
        return int(answer.status_code)


@pytest.mark.parametrize("path", ["/", "/metrics"])
def test_another_site_cannot_show_the_page_nor_request_it(lake: Lake, path: str) -> None:
    with page(lake) as running:
        answer = running.get(path, running.token, headers={"Host": "evil.example"})
        assert answer.status_code == 403
        answer = running.get(path, running.token, headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403
        answer = running.get(path, running.token)
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_user_finds_the_own_tables_and_nothing_else(tmp_path: Path, opened: Callable[..., Page]) -> None:
    made = SmallLake(tmp_path / "lake", EVENTS)
    sent = [event(game, "g1", ssn="123-45") for game in ("uno", "poker")]
    made.take(batch_of([*sent, b"no frame"]))
    (tmp_path / "ann").write_text("a" * 30)
    users = f"[users.ann]\ntoken_file = '{tmp_path / 'ann'}'\ntables = ['silver_uno_*']\nhide = ['ssn']\n"
    with page(made.lake, users) as running:
        running.token = "a" * 30
        tab = opened(running)
        assert tab.url == f"{running.url}/query"
        expect(tab.get_by_role("navigation").get_by_role("link")).to_have_text(["Query"])
        expect(tab.get_by_role("button", name=re.compile("silver_|events"))).to_have_text([UNO])
        shown = tab.content()
        assert not [word for word in ("poker", "ssn", "quarantine", "123-45") if word in shown]
        for path in ("/", "/tables/silver_uno_events", "/runs", "/schemas", "/quarantine", "/metrics", "/health"):
            answer = running.get(path, running.token)
            assert (answer.status_code, answer.text) in ((303, ""), (404, NOTHING)), path
