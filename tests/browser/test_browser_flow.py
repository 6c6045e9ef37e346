"""The view Flow in a real browser."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from spark_app.lake.files.state_files import write_quickly
from spark_app.lake.lake import Lake
from tests.support.browsers import cpu_of_visit, first_silence_s
from tests.support.hostile import HOSTILE
from tests.support.pages import page
from tests.support.statuses import write_status


class App:
    """Writes the status once a second, as a running app does, until the end of its block. `values` may be changed."""

    def __init__(self, lake: Lake, **values: Any):
        self.values = values
        self._lake = lake
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        while not self._done.is_set():
            write_status(self._lake, at=time.time(), **self.values)
            self._done.wait(1)

    def kill(self) -> None:
        self._done.set()
        self._thread.join()

    def __enter__(self) -> "App":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def test_the_flow_shows_counts_and_follows_the_app(lake: Lake, opened: Callable[..., Page]) -> None:
    with App(lake, tables=7) as app, page(lake) as running:
        tab = opened(running)
        expect(tab.get_by_test_id("state")).to_have_text("running")
        assert "token" not in tab.url
        expect(tab.get_by_text("silver_t6_events")).to_be_visible()
        expect(tab.get_by_test_id("rows in bronze")).to_have_text("1,000")
        app.values["bronze"] = 2345
        expect(tab.get_by_test_id("rows in bronze")).to_have_text("2,345")
        link = tab.get_by_role("link", name="t6", exact=True)
        link.focus()
        app.values["bronze"] = 3456
        expect(tab.get_by_test_id("rows in bronze")).to_have_text("3,456")
        expect(link).to_be_focused()
        expect(link).to_have_attribute("href", "/tables/silver_t6_events")
        tab.get_by_text("silver_t6_events").click()
        tab.wait_for_url(f"{running.url}/tables/silver_t6_events")


def test_a_killed_app_is_shown_within_five_seconds_and_a_held_one_with_its_reason(
    lake: Lake, opened: Callable[..., Page]
) -> None:
    with page(lake) as running:
        with App(lake, tables=2) as app:
            tab = opened(running)
            expect(tab.get_by_test_id("state")).to_have_text("running")
            app.kill()
            assert first_silence_s(tab) < 5
        write_status(lake, at=time.time() - 60, tables=2)
        expect(tab.get_by_test_id("state")).to_have_text("dead")
        write_status(lake, at=time.time(), state="held", reason="records were lost: see the log")
        expect(tab.get_by_test_id("state")).to_have_text("held")
        expect(tab.get_by_text("The app is not healthy: held: records were lost: see the log")).to_be_visible()


def test_a_lake_without_an_app_is_followed_from_its_first_second(lake: Lake, opened: Callable[..., Page]) -> None:
    with page(lake) as running:
        tab = opened(running)
        expect(tab.get_by_test_id("state")).to_have_text("no app yet")
        expect(tab.get_by_text("No app has worked on this lake yet.")).to_be_visible()
        with App(lake, tables=2):
            expect(tab.get_by_test_id("state")).to_have_text("running")
            expect(tab.get_by_text("silver_t1_events").first).to_be_visible()
            expect(tab.get_by_text("No app has worked on this lake yet.")).to_have_count(0)


@pytest.mark.nightly
def test_a_thousand_tables(lake: Lake, opened: Callable[..., Page]) -> None:
    """Those in trouble are in the graph, and every one is found."""
    paused = {"t500": {"rows": 5, "let_in": False, "rule": "sane_time", "record": "t/0@5"}}
    with App(lake, tables=1000, paused=paused), page(lake) as running:
        tab = opened(running)
        assert min(cpu_of_visit(tab, running, "silver_t500_events") for _ in range(3)) < 2
        expect(tab.get_by_text("988 more tables")).to_be_visible()
        expect(tab.get_by_text("t500 is paused: 5 rows wait: the record t/0@5 fails")).to_be_visible()
        expect(tab.get_by_role("link", name="t999", exact=True)).to_be_visible()
        tab.get_by_label("Search tables").fill("t123")
        expect(tab.get_by_role("link", name="t123", exact=True)).to_be_visible()
        expect(tab.get_by_role("link", name="t999", exact=True)).not_to_be_visible()
        tabs = [opened(running) for _ in range(2)]
        for one in tabs:
            expect(one.get_by_text("988 more tables")).to_be_visible()
        time.sleep(5)
        assert rss(running.process.pid) < 250 << 20


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_hostile_names_are_text(lake: Lake, opened: Callable[..., Page]) -> None:
    table = {"silver": 5, "gold": 1, "schema_ids": {}, "failed": {}}
    pause = {"rows": 1, "let_in": False, "rule": HOSTILE[0], "record": HOSTILE[1]}
    values: dict[str, Any] = {
        "state": "waiting",
        "tables": 0,
        "reason": HOSTILE[1],
        "paused": dict.fromkeys(HOSTILE, pause),
        "quarantine": dict.fromkeys(HOSTILE, 3),
        "schema_warnings": {"count": 1, "newest": HOSTILE, "stopped": dict(zip(HOSTILE, HOSTILE, strict=True))},
        "gold_failed": dict(zip(HOSTILE, HOSTILE, strict=True)),
    }
    with page(lake) as running:
        made = write_status(lake, at=time.time(), **values)
        made["tables"] = dict.fromkeys(HOSTILE, table)
        tab = opened(running)
        for _ in range(8):  # the state is fresh as long as somebody writes it
            made["updated_at"] = write_status(lake, at=time.time())["updated_at"]
            write_quickly(lake.storage, lake.status, made, None)
            time.sleep(0.5)
        expect(tab.get_by_text(HOSTILE[0]).first).to_be_visible()
        assert tab.evaluate("window.struck") is None
        assert tab.evaluate("document.querySelectorAll('main script, main iframe, main img').length") == 0


@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_choice_of_light_or_dark_stays(lake: Lake, opened: Callable[..., Page], look: str) -> None:
    with App(lake), page(lake) as running:
        tab = opened(running, look=look)
        expect(tab.get_by_test_id("state")).to_have_text("running")
        dark = "document.body.classList.contains('body--dark')"
        assert tab.evaluate(dark) is (look == "dark")
        tab.get_by_label("Light or dark").click()
        tab.wait_for_function(f"{dark} === {'false' if look == 'dark' else 'true'}")
        tab.goto(running.url)
        expect(tab.get_by_test_id("state")).to_have_text("running")
        assert tab.evaluate(dark) is (look != "dark")
