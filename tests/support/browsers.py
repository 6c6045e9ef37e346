"""A real browser: that of the machine, or the one that Playwright has installed. Fixtures for a conftest.py."""

import os
import re
import shutil
from collections.abc import Callable, Iterator

import psutil
import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from tests.support.pages import Running

NAMES = ("chromium", "chromium-browser", "google-chrome")
VIEWPORT = {"width": 1400, "height": 900}
PATIENCE_MS = 60_000  # a view may start a process of its own, and other tests run meanwhile
expect.set_options(timeout=PATIENCE_MS)
STATE = """() => {
  const text = document.querySelector('[data-testid="state"]').textContent;
  return text.includes("not heard from") && text;
}"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium refuses root otherwise
        try:
            launched = playwright.chromium.launch(executable_path=found, args=arguments)
        except Error as error:
            pytest.skip(f"no Chromium here: {error}")
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a view of a running page as somebody does who has the token. A script that fails fails the test, and so
    does a request that leaves the page."""
    faults: list[str] = []

    def open_view(running: Running, path: str = "/", look: str = "light") -> Page:
        context = browser.new_context(viewport=VIEWPORT, color_scheme=look)  # type: ignore[arg-type]
        running.visits.callback(context.close)
        tab = context.new_page()
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        tab.on("request", lambda one: None if is_own(one.url, running.url) else faults.append(f"asks for {one.url}"))
        tab.goto(f"{running.url}{path}?token={running.token}")
        return tab

    yield open_view
    assert faults == [], faults


def is_own(address: str, own: str) -> bool:
    return address.startswith((f"{own}/", own.replace("http", "ws", 1), "data:", "blob:"))


def first_silence_s(tab: Page) -> float:
    """Waits until a view says that its app is silent. For how long the app is then, by the view's own words."""
    text = tab.wait_for_function(STATE, timeout=PATIENCE_MS).json_value()
    found = re.fullmatch(r"not heard from for (\d+\.\d) s", text)
    assert found, text
    return float(found[1])


def cpu_of_visit(tab: Page, running: Running, awaited: str) -> float:
    """CPU seconds of the page and of the browser's tab from the address to the awaited text. Other tests run meanwhile,
    so that the seconds on the clock say nothing."""
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    server = psutil.Process(running.process.pid)
    before = sum(server.cpu_times()[:2])
    tab.goto(running.url)
    expect(tab.get_by_text(awaited)).to_be_visible()
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return sum(server.cpu_times()[:2]) - before + metrics["ThreadTime"]  # of the tab: since the address
