"""The view Quarantine in a real browser, over a lake whose records are hostile."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.pages import page
from tests.support.quarantines import quarantine_lake
from tests.support.statuses import write_status


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    made = quarantine_lake(tmp_path / "lake")
    open_ones = {"frame_short": 2, "frame_magic": 1, "decode_payload": 2, "expect_failed": 1}
    write_status(made.lake, at=time.time(), state="stopped", quarantine=open_ones)
    return made.lake


def test_a_record_is_shown_with_its_reason_bytes_and_fields(lake: Any, opened: Callable[..., Page]) -> None:
    with page(lake) as running:
        tab = opened(running, "/quarantine")
        tab.wait_for_timeout(6000)
        tab.screenshot(path="/tmp/wt/a_light.png", full_page=True)
