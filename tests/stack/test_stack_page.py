"""The page beside the real app, in a real browser."""

import os
import signal
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from scripts.campaign.stage import Stage, kill, wait_until
from spark_app.model.errors import ExitCode
from spark_app.storage.lake import Lake
from tests.support.browsers import browser, opened
from tests.support.pages import page

__all__ = ["browser", "opened"]
pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
ONLY = {"TABLES__ALLOWLIST": '["rummy", "uno"]'}


@pytest.fixture(autouse=True)
def _needs_a_browser(request: pytest.FixtureRequest) -> None:
    try:
        request.getfixturevalue("browser")
    except Exception as error:
        pytest.skip(f"no Chromium here: {error}")


def test_a_click_replays_quarantine_until_it_is_empty_and_a_killed_app_is_seen(
    new_stage: Callable[..., Stage], browser: Browser, opened: Callable[..., Page]
) -> None:
    """The records of games that were not allowed are in quarantine; now they are allowed."""
    stage = new_stage(BATCH__INTERVAL_S="0.5", GOLD__INTERVAL_S="1")
    stage.produce(2_000, partitions="2")
    assert stage.run("--available-now", **ONLY) == ExitCode.DONE
    refused = stage.status()["quarantine"]["route_refused"]
    assert refused > 1_000
    app = stage.start()
    try:
        with page(Lake(stage.lake)) as running:
            wait_until(lambda: stage.status().get("state") == "running", "the start")
            tab = opened(running, "/quarantine")
            expect(tab.get_by_test_id("state")).to_have_text("running", timeout=20_000)
            tab.get_by_role("button", name="Replay").click()
            shown = tab.get_by_role("dialog")
            expect(shown.get_by_text("The dry run has counted; nothing has changed.")).to_be_visible(timeout=60_000)
            assert stage.status()["quarantine"]["route_refused"] == refused
            shown.get_by_role("button", name=f"Replay {refused:,} records").click()
            expect(shown.get_by_text("The replay is done.")).to_be_visible(timeout=120_000)
            wait_until(lambda: stage.status()["quarantine"] == {}, "an empty quarantine")
            tab.goto(f"{running.url}/runs")
            expect(tab.get_by_role("cell", name="request", exact=True).first).to_be_visible(timeout=60_000)

            tab.goto(running.url)
            expect(tab.get_by_test_id("in quarantine")).to_have_text("0")
            before = stage.status()["bronze"]
            stage.produce(500, seed="8")
            wait_until(lambda: stage.status()["bronze"] == before + 500, "the new records")
            expect(tab.get_by_test_id("records in bronze")).to_have_text(f"{before + 500:,}", timeout=3000)
            os.kill(app.pid, signal.SIGKILL)
            killed = time.monotonic()
            expect(tab.get_by_test_id("state")).to_contain_text("not heard from", timeout=20_000)
            assert time.monotonic() - killed < 5
    finally:
        kill(app)
    assert stage.run("--available-now") == ExitCode.DONE
    assert stage.verify() == {}
