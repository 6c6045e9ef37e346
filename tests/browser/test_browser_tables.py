"""The views Table and Query in a real browser."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from spark_app.lake.lake import Lake
from tests.support.browsers import PATIENCE_MS
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.pages import page
from tests.support.projections import EVENTS, MASKED, UNO, event, lake_of
from tests.support.statuses import write_status

EVIL = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>{{ 7 * 7 }}"


@pytest.fixture
def small(tmp_path: Path) -> SmallLake:
    made = SmallLake(tmp_path / "lake", EVENTS)
    made.take(batch_of([event("uno", f"g{n}", latency_ms=n, device_id=EVIL) for n in range(30)]))
    say(made.lake)
    return made


def say(lake: Lake) -> None:
    made = write_status(lake, at=time.time())
    tables = {"uno": {"silver": 30, "gold": 0, "schema_ids": {}, "failed": {}}}
    (lake.root / lake.status).write_text(json.dumps(made | {"tables": tables}))


def test_a_table_is_opened_from_the_flow(small: SmallLake, opened: Callable[..., Page]) -> None:
    with page(small.lake) as running:
        say(small.lake)
        tab = opened(running)
        tab.get_by_role("link", name="uno", exact=True).click()
        expect(tab).to_have_url(f"{running.url}/tables/{UNO}")
        expect(tab.get_by_test_id("rows")).to_have_text("30")
        expect(tab.get_by_text("The newest 20 rows, by _landed_at")).to_be_visible()
        expect(tab.get_by_text(EVIL).first).to_be_visible()
        expect(tab.get_by_text("g29", exact=True)).to_be_visible()
        expect(tab.get_by_text("Event.latency_ms = 3")).to_be_visible()
        assert tab.title() == "Table · Protolake"
        tab.get_by_role("tab", name="Polars").click()
        expect(tab.get_by_text(f'pl.scan_delta("{small.lake.root}/{UNO}")')).to_be_visible()
        tab.get_by_role("link", name="bronze_events").click()
        expect(tab.get_by_text("The newest 20 rows, by landed_at")).to_be_visible()
        tab.goto(f"{running.url}/tables/{quote(EVIL, safe='')}")
        expect(tab.get_by_text("The lake has no table of this name.")).to_be_visible()
        expect(tab.get_by_text(EVIL)).to_be_visible()
        assert tab.title() == "Table · Protolake"
        tab.close()


def test_records_that_projections_conceal_are_not_shown(tmp_path: Path, opened: Callable[..., Page]) -> None:
    masked = lake_of(tmp_path / "lake", MASKED)
    masked.take(batch_of([event("uno", "Okapi", ssn="Okapi")]))
    say(masked.lake)
    with page(masked.lake) as running:
        tab = opened(running, "/tables/bronze_events")
        expect(tab.get_by_text("page.clear_text = true shows them.")).to_be_visible()
        assert b"Okapi".hex() not in tab.content()
        tab.goto(f"{running.url}/query#sql={quote('SELECT value FROM bronze_events')}")
        tab.get_by_role("button", name="Run").click()
        expect(tab.get_by_test_id("failed")).to_contain_text("page.clear_text = true")
        tab.close()


def run(tab: Page, sql: str) -> None:
    write(tab, sql)
    tab.keyboard.press("Control+Enter")


def write(tab: Page, sql: str) -> None:
    tab.locator(".cm-content").click()
    tab.keyboard.press("Control+a")
    tab.keyboard.insert_text(sql)


def test_sql_gives_rows_and_a_chart(small: SmallLake, opened: Callable[..., Page]) -> None:
    with page(small.lake) as running:
        tab = opened(running, "/query", look="dark")
        run(tab, f'SELECT gamer_id, latency_ms AS late, device_id AS "{EVIL.replace(chr(34), "")}" FROM {UNO} LIMIT 5')
        expect(tab.get_by_test_id("said")).to_contain_text("5 rows in")
        expect(tab.get_by_test_id("chart").locator("svg")).to_be_visible()
        expect(tab.get_by_text(EVIL).first).to_be_visible()
        expect(tab.get_by_role("columnheader").filter(has_text=EVIL.replace('"', ""))).to_be_visible()
        tab.get_by_role("button", name="no chart").click()
        expect(tab.get_by_test_id("chart")).to_be_hidden()
        shared = tab.url
        run(tab, "SELECT NULL AS nothing, nope")
        expect(tab.get_by_test_id("failed")).to_contain_text('"nope" was not found')
        tab.goto("about:blank")
        tab.goto(shared)
        expect(tab.locator(".cm-content")).to_contain_text("gamer_id, latency_ms AS late")
        tab.get_by_role("button", name=UNO).click()
        expect(tab.locator(".cm-content")).to_contain_text(f"SELECT *FROM {UNO}LIMIT 100")
        assert tab.title() == "Query · Protolake"
        tab.close()
    assert "SELECT" not in running.printed


ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(100000) b WHERE a.range * b.range % 7919 = 1"


def jobs_of(pid: int) -> int:
    """How many processes of jobs a page has."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            is_child = stat.read_text().rpartition(")")[2].split()[1] == str(pid)
            found += is_child and b"spark_app.page.job" in (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
    return found


def wait_for_jobs(pid: int, count: int) -> None:
    until = time.monotonic() + PATIENCE_MS / 1000
    while jobs_of(pid) != count:
        assert time.monotonic() < until, jobs_of(pid)
        time.sleep(0.2)


def test_two_queries_run_at_once_and_end_with_their_tab(small: SmallLake, opened: Callable[..., Page]) -> None:
    with page(small.lake) as running:
        first, second, third = (opened(running, "/query") for _ in range(3))
        for tab, sql in ((first, ENDLESS), (second, ENDLESS), (third, "SELECT 41 + 1 AS answer")):
            write(tab, sql)  # all before the first takes a core for itself
        first.keyboard.press("Control+Enter")
        second.keyboard.press("Control+Enter")
        wait_for_jobs(running.process.pid, 2)
        third.keyboard.press("Control+Enter")
        expect(third.get_by_test_id("said")).to_have_text("The query waits for 2 others.")
        first.get_by_role("button", name="Cancel").click()
        expect(first.get_by_test_id("failed")).to_contain_text("it was cancelled")
        expect(third.get_by_text("42", exact=True)).to_be_visible()
        second.close()
        wait_for_jobs(running.process.pid, 0)
        run(first, "SELECT 6 * 7 AS answer")
        expect(first.get_by_text("42", exact=True)).to_be_visible()
        first.close()
        third.close()
    assert "a view failed" not in running.printed
    assert "answer" not in running.printed
