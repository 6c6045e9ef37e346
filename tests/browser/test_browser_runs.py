"""The view of runs in a real browser."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from spark_app.followers.events.spool import EventLog, SpoolWriter
from spark_app.lake.lake import Lake
from spark_app.model.events import Event, EventRow
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from tests.support.event_lakes import follow, lake_of, take
from tests.support.pages import page
from tests.support.projections import GROWN
from tests.support.statuses import write_status

HOSTILE = "<img src=x onerror=alert(1)>"
ALERT = """
[alerts.rules.any]
when = "records > 0"
level = "ERROR"
"""


def tell(lake: Lake, run: str, kind: str, ago: float, level: Any = "INFO", message: str = "", **details: Any) -> None:
    """An event of a process that wrote it some seconds ago."""
    at = time.time() - ago
    row = EventRow.of(Event(kind, message, level, details=details), f"{run}/{at}", int(at * 1e6), run, None)
    SpoolWriter(lake, "app").add(row)


def row_of(tab: Page, table: str, text: str) -> Locator:
    return tab.get_by_test_id(table).get_by_role("row").filter(has_text=text)


def test_a_bump_a_stop_and_an_alert_are_seen(tmp_path: Path, opened: Callable[..., Page]) -> None:
    small = lake_of(tmp_path / "lake")
    lake = small.lake
    events = follow(small)
    tell(lake, "one", "start", 600, message="The app starts as process 1")
    tell(lake, "one", "bump", 500, message=f"The app restarts for new columns: {HOSTILE}", exit_code=75)
    take(small, 3)
    events.call()
    tell(lake, "two", "start", 400, message="The app starts as process 2")
    tell(lake, "two", "held", 300, "ERROR", message="The app stops", exit_code=65, where=HOSTILE)
    write_status(lake, at=time.time())
    asked = Request("replay", {"causes": [HOSTILE]})
    requests.submit(lake, asked)
    with page(lake, ALERT) as running:
        tab = opened(running, "/runs")
        expect(tab.get_by_test_id("alert")).to_contain_text("Alert any fires")
        expect(row_of(tab, "timeline", HOSTILE)).to_contain_text("bump")
        expect(row_of(tab, "timeline", "alert any fires")).to_be_visible()
        expect(row_of(tab, "timeline", "Table silver_uno_events begins")).to_be_visible()
        more = row_of(tab, "timeline", "held").get_by_role("button", name="Details")
        more.focus()
        time.sleep(1.5)  # the label of the state changes meanwhile
        expect(more).to_be_focused()
        more.click()
        expect(tab.get_by_text(f"where: {HOSTILE}")).to_be_visible()
        EventLog(lake).add(Event("stop", "The app stops just now"))
        expect(row_of(tab, "timeline", "The app stops just now")).to_be_visible(timeout=10_000)
        pending = tab.get_by_test_id("pending")
        expect(pending).to_contain_text(HOSTILE)
        pending.get_by_role("button", name="Cancel").click()
        expect(pending).to_have_count(0)
        assert requests.pending(lake) == []
        tab.get_by_role("tab", name="Starts").click()
        expect(row_of(tab, "starts", "one")).to_contain_text("a bump")
        expect(row_of(tab, "starts", "two")).to_contain_text("records were lost")
        tab.get_by_role("tab", name="Units").click()
        expect(row_of(tab, "units", "t/0 4 to 6")).to_be_visible()
        expect(tab.get_by_test_id("steps")).to_be_visible()
        assert tab.locator("img").count() == 0


def test_events_are_filtered_by_kind_and_level(tmp_path: Path, opened: Callable[..., Page]) -> None:
    small = lake_of(tmp_path / "lake")
    events = follow(small)
    take(small)
    take(small, game="poker", latency=13)
    events.call()
    with page(small.lake) as running:
        tab = opened(running, "/runs")
        expect(row_of(tab, "timeline", "Table silver_uno_events begins")).to_be_visible()
        expect(row_of(tab, "timeline", "Unit 1 (ingest)")).to_have_count(0)
        take(small, decodable=GROWN)
        events.call()
        expect(row_of(tab, "timeline", "gets columns")).to_be_visible()
        tab.get_by_role("combobox", name="Kinds").click()
        tab.get_by_role("option", name="units and upkeep").click()
        expect(row_of(tab, "timeline", "Unit 1 (ingest)")).to_be_visible()
        tab.keyboard.press("Escape")
        tab.get_by_role("combobox", name="Level").click()
        tab.get_by_role("option", name="errors", exact=True).click()
        expect(row_of(tab, "timeline", "begins")).to_have_count(0)
        expect(row_of(tab, "timeline", "is paused")).to_be_visible()
