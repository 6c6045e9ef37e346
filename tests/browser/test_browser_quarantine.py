"""The view Quarantine in a real browser, over a lake whose records are hostile."""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from spark_app.lake.lake import Lake
from spark_app.recovery import requests
from tests.chaos.stage import wait_until
from tests.support.pages import page
from tests.support.quarantines import CAUSES, quarantine_lake
from tests.support.statuses import write_status


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = quarantine_lake(tmp_path / "lake").lake
    write_status(made, at=time.time(), state="stopped", quarantine=dict(Counter(CAUSES)))
    return made


def loaded(tab: Page) -> None:
    expect(tab.get_by_test_id("records")).to_have_text(f"{len(CAUSES)} open records.")


def test_a_record_is_shown_with_its_reason_bytes_and_fields(lake: Lake, opened: Callable[..., Page]) -> None:
    with page(lake) as running:
        tab = opened(running, "/quarantine")
        expect(tab.get_by_test_id("causes").get_by_text("frame_short")).to_be_visible()
        loaded(tab)
        expect(tab.get_by_text("The first byte is neither 0 nor 1, and no schema").first).to_be_visible()
        record = tab.get_by_role("button", name="Show the record t/0@5")
        record.focus()
        tab.keyboard.press("Enter")
        expect(tab.get_by_test_id("reason")).to_contain_text("Protobuf parser refuses")
        expect(tab.get_by_test_id("Value as hex")).to_contain_text("00000000  00 00 00 00 01 00 0a 03  75 6e 6f 12")
        expect(tab.get_by_test_id("decoded value")).to_contain_text('game_name: "uno"')
        expect(tab.get_by_test_id("decoded value")).to_contain_text("<script>window.hurt=1</script>{{ window.hurt")
        expect(tab.get_by_test_id("record")).to_contain_text("It can be read as Protobuf up to byte ")
        assert "\u202e" not in tab.content()
        tab.keyboard.press("Escape")
        expect(tab.get_by_test_id("record")).to_be_hidden()
        tab.get_by_role("cell", name="frame_magic", exact=True).click()
        expect(tab.get_by_test_id("reason")).to_contain_text("The first byte is neither")
        expect(tab.get_by_test_id("decoded value")).to_be_hidden()
        assert tab.evaluate("window.hurt") is None


def test_a_replay_waits_for_the_app_and_can_be_cancelled(lake: Lake, opened: Callable[..., Page]) -> None:
    with page(lake) as running:
        tab = opened(running, "/quarantine")
        loaded(tab)
        tab.get_by_role("combobox", name="cause").click()
        tab.get_by_role("option", name="decode_payload (2)").click()
        expect(tab.get_by_test_id("records")).to_have_text("2 open records.")
        tab.get_by_role("button", name="Replay …").click()
        dialog = tab.get_by_test_id("replay")
        expect(dialog.get_by_test_id("progress")).to_contain_text("The app is down.")
        [asked] = requests.pending(lake)
        assert (asked.kind, asked.dry_run, asked.asked_by) == ("replay", True, "the page")
        assert asked.arguments == {
            "causes": ["decode_payload"],
            "schemas": [],
            "since": None,
            "until": None,
            "topic": None,
            "partition": None,
            "offsets": None,
        }
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog.get_by_test_id("progress")).to_have_text("There is no result: the request was withdrawn")
        assert requests.pending(lake) == []
        dialog.get_by_role("button", name="Close").click()
        tab.get_by_role("button", name="Replay …").click()
        expect(dialog.get_by_test_id("progress")).to_contain_text("The app is down.")
        tab.keyboard.press("Escape")  # nobody needs a dry run whose dialog is gone
        expect(dialog).to_be_hidden()
        wait_until(lambda: requests.pending(lake) == [], "the end of the request", 10)  # the page hears of it later


def test_hidden_records_send_no_bytes(tmp_path: Path, opened: Callable[..., Page]) -> None:
    lake = quarantine_lake(tmp_path / "lake", silver={"drop": ["gamer_id"]}).lake
    with page(lake) as running:
        tab = opened(running, "/quarantine")
        received: list[str] = []
        expect(tab.get_by_test_id("hidden")).to_contain_text("page.clear_text = true")
        loaded(tab)
        tab.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(str(data))))
        tab.reload()
        loaded(tab)
        tab.get_by_role("button", name="Show the record t/0@5").click()
        expect(tab.get_by_test_id("reason")).to_be_visible()
        expect(tab.get_by_test_id("Value as hex")).to_have_count(0)
        said = tab.content() + json.dumps(received)
        assert "frame_magic" in json.dumps(received)  # what is not hidden is found there
        assert "window.hurt" not in said
        assert "game_name" not in said
