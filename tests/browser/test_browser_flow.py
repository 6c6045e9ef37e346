"""The view Flow in a real browser."""

import time
from collections.abc import Callable

from playwright.sync_api import Page, expect

from spark_app.storage.lake import Lake
from tests.support.pages import page
from tests.support.statuses import write_status


def test_the_flow_shows_counts_and_follows_the_app(lake: Lake, opened: Callable[..., Page]) -> None:
    write_status(lake, at=time.time(), tables=7)
    with page(lake) as running:
        tab = opened(running)
        write_status(lake, at=time.time(), tables=7)
        expect(tab.get_by_test_id("state")).to_have_text("running")
        assert "token" not in tab.url
        expect(tab.get_by_text("silver_t6_events")).to_be_visible()
        expect(tab.get_by_test_id("records in bronze")).to_have_text("1,000")
        write_status(lake, at=time.time(), tables=7, bronze=2345)
        expect(tab.get_by_test_id("records in bronze")).to_have_text("2,345", timeout=3000)


def test_a_lake_without_an_app_is_followed_from_its_first_second(lake: Lake, opened: Callable[..., Page]) -> None:
    with page(lake) as running:
        tab = opened(running)
        expect(tab.get_by_test_id("state")).to_have_text("no app yet")
        expect(tab.get_by_text("No app has worked on this lake yet.")).to_be_visible()
        write_status(lake, at=time.time() + 600, tables=2)
        expect(tab.get_by_test_id("state")).to_have_text("running")
        expect(tab.get_by_text("silver_t1_events").first).to_be_visible()
        expect(tab.get_by_text("No app has worked on this lake yet.")).to_have_count(0)
