"""A real browser: that of the machine, or the one that Playwright has installed."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from spark_app.storage.lake import Lake
from tests.support.pages import Running

FOLDER = Path(__file__).parent
NAMES = ("chromium", "chromium-browser", "google-chrome")
VIEWPORT = {"width": 1400, "height": 900}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium refuses root otherwise
        launched = playwright.chromium.launch(executable_path=found, args=arguments)
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a view of a running page as somebody does who has the token. A script that fails fails the test, and so
    does a request that leaves the page."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_view(running: Running, path: str = "/", look: str = "light") -> Page:
        context = browser.new_context(viewport=VIEWPORT, color_scheme=look)  # type: ignore[arg-type]
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        tab.on("request", lambda one: None if is_own(one.url, running.url) else faults.append(f"asks for {one.url}"))
        tab.goto(f"{running.url}{path}?token={running.token}")
        return tab

    yield open_view
    for context in contexts:
        context.close()
    assert faults == []


def is_own(address: str, own: str) -> bool:
    return address.startswith((f"{own}/", own.replace("http", "ws", 1), "data:", "blob:"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    made.prepare()
    return made
