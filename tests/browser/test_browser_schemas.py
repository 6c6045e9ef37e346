"""The views of schemas in a real browser."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from spark_app.recovery import requests
from spark_app.storage.lake import Lake
from tests.support.answers import Answers, serve
from tests.support.games import Game
from tests.support.pages import page

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def answers() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


def game_of(answers: Answers, folder: Path, **changes: str) -> Game:
    """A lake that knows v1 and v2 of a subject; v2 renames a field."""
    game = Game(answers, folder / "lake", "int32 score = 3;", "int32 points = 3; string more = 4;", **changes)
    game.send(1, {"score": 1})
    game.send(2, {"points": 2}, {"points": 3})
    return game


def test_a_schema_shows_its_findings_its_columns_and_the_difference(
    answers: Answers, tmp_path: Path, opened: Callable[..., Page]
) -> None:
    game = game_of(answers, tmp_path, rename="alias")
    game.lake.opened.schemas.comparer.step(threading.Lock())
    with page(game.lake.lake) as running:
        tab = opened(running, "/schemas")
        row = tab.get_by_test_id("schemas").get_by_role("row").filter(has_text="v2 of t-value")
        expect(row).to_contain_text("decodable", timeout=15000)
        row.get_by_role("link", name="12").click()
        expect(tab.get_by_test_id("schema state")).to_have_text("decodable", timeout=15000)
        finding = tab.get_by_test_id("finding").first
        expect(finding).to_contain_text("field score was renamed to points")
        difference = tab.get_by_test_id("difference")
        expect(difference).to_contain_text("-   int32 score = 3;")
        expect(difference).to_contain_text("+   int32 points = 3;")
        expect(tab.get_by_test_id("columns")).to_contain_text("Event.points")


def test_a_person_decides_while_the_app_is_down(answers: Answers, tmp_path: Path, opened: Callable[..., Page]) -> None:
    game = game_of(answers, tmp_path, rename="pause")
    lake: Lake = game.lake.lake
    with page(lake) as running:
        tab = opened(running, "/schemas")
        undecided = tab.get_by_test_id("undecided")
        expect(undecided).to_contain_text("2 records wait", timeout=15000)
        undecided.get_by_role("button", name="Decide about schema 12").click()
        tab.get_by_role("radio", name="alias").click()
        tab.get_by_role("button", name="Decide", exact=True).click()
        expect(tab.get_by_test_id("progress")).to_contain_text("The app is down")
        [request] = requests.pending(lake)
        assert (request.kind, request.arguments) == ("accept", {"schema": "12", "policy": "alias"})
        requests.answer(lake, request, {"schema": 12, "policy": "alias", "change": "c", "state": "decodable"})
        expect(tab.get_by_test_id("progress")).to_contain_text("Schema 12, c: alias; its waiting records are decoded")
