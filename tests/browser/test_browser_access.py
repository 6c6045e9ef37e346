"""For people who do not use a mouse, or do not see: axe-core looks at each view, and a keyboard reaches all of them."""

import time
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from spark_app.lake.lake import Lake
from spark_app.page.views import VIEWS
from tests.support.pages import page
from tests.support.statuses import write_status

IN_BAR = [view for view in VIEWS if view.is_in_bar]
SEVERE = ("serious", "critical")


@pytest.mark.nightly
@pytest.mark.parametrize("look", ["light", "dark"])
def test_axe_finds_no_serious_fault(lake: Lake, opened: Callable[..., Page], look: str) -> None:
    with page(lake) as running:
        for path in (*(view.path for view in IN_BAR), "/tables/silver_t0_events"):
            write_status(lake, at=time.time(), tables=3, state="held", reason="records were lost")
            tab = opened(running, path, look=look)
            expect(tab.get_by_test_id("state")).to_have_text("held")
            tab.wait_for_timeout(3000)  # answers of jobs
            found = Axe().run(tab).response["violations"]
            faults = [(one["id"], one["nodes"][0]["html"][:300]) for one in found if one["impact"] in SEVERE]
            assert faults == [], path


@pytest.mark.nightly
def test_a_keyboard_reaches_every_view(lake: Lake, opened: Callable[..., Page]) -> None:
    write_status(lake, at=time.time(), tables=3)
    with page(lake) as running:
        tab = opened(running)
        expect(tab.get_by_test_id("state")).to_be_visible()
        reached = []
        for _ in range(len(IN_BAR) + 7):
            tab.keyboard.press("Tab")
            reached.append(tab.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText"))
        for name in (*(view.title for view in IN_BAR), "Light or dark", "Graph"):
            assert name in reached
