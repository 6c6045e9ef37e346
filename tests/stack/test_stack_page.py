"""The page beside the real app, in a real browser."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.chaos.stage import Stage, kill, wait_until
from tests.support.browsers import browser, first_silence_s, opened
from tests.support.pages import page

__all__ = ["browser", "opened"]
pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
ONLY = {"TABLES__ALLOWLIST": '["rummy", "uno"]'}


@pytest.mark.nightly
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
        wait_until(lambda: stage.status().get("state") == "running", "the start")
        with page(Lake(stage.lake)) as running:
            tab = opened(running, "/quarantine")
            expect(tab.get_by_test_id("state")).to_have_text("running")
            tab.get_by_role("button", name="Replay").click()
            shown = tab.get_by_role("dialog")
            expect(shown.get_by_text("The dry run has counted the records that match.")).to_be_visible()
            assert stage.status()["quarantine"]["route_refused"] == refused
            shown.get_by_role("button", name=f"Replay {refused:,} records").click()
            expect(shown.get_by_text("The replay is done.")).to_be_visible(timeout=120_000)
            wait_until(lambda: stage.status()["quarantine"] == {}, "an empty quarantine")
            tab.goto(f"{running.url}/runs")
            expect(tab.get_by_role("cell", name="request", exact=True).first).to_be_visible()

            tab.goto(running.url)
            expect(tab.get_by_test_id("in quarantine")).to_have_text("0")
            before = stage.status()["bronze"]
            stage.produce(500, seed="8")
            wait_until(lambda: stage.status()["bronze"] == before + 500, "the new records")
            expect(tab.get_by_test_id("rows in bronze")).to_have_text(f"{before + 500:,}")
            os.kill(app.pid, signal.SIGKILL)
            assert first_silence_s(tab) < 5
    finally:
        kill(app)
    assert stage.run("--available-now") == ExitCode.DONE
    assert stage.verify() == {}


VIEWS = {
    "/": "silver_uno_events",
    "/quarantine": "route_name",
    "/schemas": "decodable",
    "/runs": "The app starts",
    "/query": "bronze_events",
    "/tables/silver_uno_events": "gamer_id",
    "/tables/gold_uno_player_agg": "session_count",
    "/tables/bronze_events": "schema_id",
}
PICTURES = os.environ.get("PROTOLAKE_TEST_PICTURES")  # a folder for the picture of the README
SEVERE = ("serious", "critical")


@pytest.mark.nightly
def test_every_view_of_a_real_lake_can_be_used_by_everybody(
    new_stage: Callable[..., Stage], browser: Browser, opened: Callable[..., Page], tmp_path: Path
) -> None:
    """Versions, bad records and rules are there. axe-core looks at each view, light and dark."""
    rules = {
        "known_player": {"check": "gamer_id <> ''", "action": "quarantine"},
        "plausible_time": {"check": "event_timestamp <= _kafka_timestamp + interval 1 hour", "action": "warn"},
    }
    stage = new_stage(BATCH__INTERVAL_S="0.5", GOLD__INTERVAL_S="1", EXPECTATIONS=json.dumps(rules))
    stage.produce(10_000, schema_version="3", num_versions="2", poison="0.02", plant="no_player=0.01", partitions="2")
    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("bronze", 0) >= 10_000, "the records")
        with page(Lake(stage.lake)) as running:
            stage.produce(5_000, schema_version="3", num_versions="2", poison="0.02", plant="no_player=0.01", seed="8")
            wait_until(lambda: stage.status()["bronze"] >= 15_000, "more records")
            time.sleep(15)  # a flush of the events, and a line in the charts
            for look in ("light", "dark"):
                for path, seen in VIEWS.items():
                    tab = opened(running, path, look=look)
                    expect(tab.get_by_text(seen).first).to_be_visible()
                    tab.wait_for_timeout(1500)
                    name = f"page{path.replace('/', '_')}_{look}.png"
                    tab.screenshot(path=tmp_path / name)
                    if PICTURES and name == "page__light.png":
                        tab.set_viewport_size({"width": 1400, "height": 1010})
                        tab.wait_for_timeout(1000)
                        tab.screenshot(path=Path(PICTURES) / "page.png")
                    found = Axe().run(tab).response["violations"]
                    faults = [(one["id"], one["nodes"][0]["html"][:300]) for one in found if one["impact"] in SEVERE]
                    assert faults == [], f"{path} {look}"
                    tab.context.close()
            os.kill(app.pid, signal.SIGTERM)
            assert app.wait(120) == ExitCode.DONE
    finally:
        kill(app)
