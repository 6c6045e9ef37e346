"""The views of schemas in a real browser."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from spark_app.lake.lake import Lake
from spark_app.model.schema_changes import Comparison, SchemaChange
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.recovery import requests
from tests.support.answers import Answers, serve
from tests.support.games import Game
from tests.support.pages import page
from tests.support.protos import PROTO3, compile_text, renamed

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
    game.lake.opened.resolver.comparer.step(threading.Lock())
    with page(game.lake.lake) as running:
        tab = opened(running, "/schemas")
        row = tab.get_by_test_id("schemas").get_by_role("row").filter(has_text="v2 of t-value")
        expect(row).to_contain_text("decodable")
        row.get_by_role("link", name="12").click()
        expect(tab.get_by_test_id("schema state")).to_have_text("decodable")
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
        expect(undecided).to_contain_text("2 records wait")
        undecided.get_by_role("button", name="Decide about schema 12").click()
        tab.get_by_role("radio", name="alias").click()
        tab.get_by_role("button", name="Decide for good").click()
        expect(tab.get_by_test_id("progress")).to_contain_text("The app is down")
        [request] = requests.pending(lake)
        assert (request.kind, request.arguments) == ("accept", {"schema": "12", "policy": "alias"})
        ledger = game.lake.opened.resolver.ledger
        ledger.accept(12, "alias")
        ledger.save()
        expect(undecided).to_have_count(0)
        requests.finish(lake, request, {"schema": 12, "policy": "alias", "change": "c", "state": "decodable"})
        expect(tab.get_by_test_id("progress")).to_contain_text("Schema 12, c: alias; its waiting records are decoded")


def test_names_from_outside_stay_text(tmp_path: Path, opened: Callable[..., Page]) -> None:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    ledger = Ledger(lake)
    compiled = compile_text(f"{PROTO3}message Event {{ string a = 1; }}")
    ledger.add_decodable(12, compiled.descriptor_set, 1.0, "text", 2, subjects={HOSTILE: 2})
    said = SchemaChange("added", "Event", "a", "", "", "warning", f"{HOSTILE} is new")
    ledger.set_comparison(12, Comparison(HOSTILE, 2, 1, compiled.digest, (said,)))
    ledger.add_stopped(20, "pause", f"{HOSTILE} was renamed", 2.0, ["rename"], compiled.descriptor_set)
    ledger.save()
    with page(lake) as running:
        tab = opened(running, "/schemas")
        undecided = tab.get_by_test_id("undecided")
        expect(undecided).to_contain_text(f"{HOSTILE} was renamed")
        expect(tab.get_by_test_id("schemas")).to_contain_text(f"v2 of {HOSTILE}")
        undecided.get_by_role("button").click()
        expect(tab.get_by_role("dialog")).to_contain_text(HOSTILE)
        tab.goto(f"{running.url}/schemas/12")
        expect(tab.get_by_test_id("finding")).to_contain_text(f"{HOSTILE} is new")
        assert tab.locator("img").count() == 0
        tab.goto(f"{running.url}/schemas/%3Cimg%20src%3Dx%3E")
        expect(tab.get_by_text("does not know this schema")).to_be_visible()
        assert tab.locator("img").count() == 0


def test_a_schema_is_found_among_many_by_search_and_keyboard(tmp_path: Path, opened: Callable[..., Page]) -> None:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    ledger = Ledger(lake)
    event = compile_text(f"{PROTO3}package p; message Event {{ string a = 1; }}")
    for number in range(1000):
        one = renamed(event, number, f"p{number}")
        ledger.add_decodable(number, one.descriptor_set, float(number), "text", 1, subjects={f"s{number}-value": 1})
    ledger.save()
    with page(lake) as running:
        tab = opened(running, "/schemas")
        expect(tab.get_by_text("1,000 decodable")).to_be_visible()
        rows = tab.get_by_test_id("schemas").get_by_role("row")
        expect(rows).to_have_count(26)
        tab.get_by_label("Search schemas").fill("s777-")
        expect(rows).to_have_count(2)
        rows.get_by_role("link", name="777").press("Enter")
        expect(tab.get_by_role("heading", name="Schema 777")).to_be_visible()
