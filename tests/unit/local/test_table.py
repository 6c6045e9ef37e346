"""The app's report, and what the terminal shows of it."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from scripts import picture
from scripts.local import status, table
from scripts.local.program import Exit, Process
from scripts.local.table import View
from spark_app.app.text import notes, status_lines
from spark_app.lake.lake import Lake
from tests.support.statuses import status_of

REPORT = {
    "state": "running",
    "reason": None,
    "updated_at": "2026-11-21T12:00:00+00:00",
    "rate": 1234.4,
    "age_s": 0.84,
    "lag": 12,
    "bronze": 1510,
    "deferred": 1,
    "quarantine": {"bad_magic": 7, "unknown_game": 0},
    "tables": {"rummy": {"silver": 1502, "gold": 40, "schema_ids": {"3": 1500, "9": 2}}},
    "versions": {"3": 1},
}


@pytest.fixture
def view() -> View:
    processes = [Process("kafka", "running", 1, None), Process("producer", "exited", 0, 0)]
    exits = [Exit(1.0, 75, 5.0, False), Exit(2.0, -9, 5.0, False), Exit(3.0, 0, 5.0, True)]
    return View(status.parse(REPORT), processes, exits, ["spark is down"], 3725.0, 21.4, "/lake", Path("/state/logs"))


def test_the_report_is_read_from_the_lake(tmp_path: Path) -> None:
    (tmp_path / "_protolake").mkdir()
    (tmp_path / "_protolake" / "status.json").write_text(json.dumps(REPORT))
    found = status.read(Lake(tmp_path))
    assert (found.silver, found.quarantined, found.updated_at) == (1502, 7, 1795262400.0)
    assert found.tables["rummy"].versions == {"v1": 1500, "id 9": 2}


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}"], ids=["missing", "empty", "torn", "a list", "no field"])
def test_a_report_that_is_not_there_yet_is_empty(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "_protolake").mkdir()
    if text is not None:
        (tmp_path / "_protolake" / "status.json").write_text(text)
    assert status.read(Lake(tmp_path)) == status.Status()


def test_an_earlier_runs_report_counts_for_its_rows_only() -> None:
    old = status.stale(status.parse(REPORT))
    assert (old.bronze, old.silver, old.lag, old.rate) == (1510, 1502, None, 0.0)


def test_dropped_records_are_shown_if_there_are_any(view: View) -> None:
    assert "dropped" not in "\n".join(table.plain(view))
    some = replace(view, status=status.parse(REPORT | {"dropped": 1234}))
    assert " · deferred 1 · dropped 1,234 · " in "\n".join(table.plain(some))
    assert status.stale(some.status).dropped == 1234


def test_the_lines_show_what_the_table_shows(view: View) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table.renderable(view))
    for shown in (console.export_text(), "\n".join(table.plain(view))):
        for part in (
            "rummy",
            "1,234 rows/s · age 0.8 s · lag 12 · bronze 1,510 · quarantine 7 (bad_magic 7) · deferred 1",
            "restarts: 1 schema bump, 1 other",
            "kafka running · producer exited (0) · app running · first silver rows after 21 s · up 1:02:05",
            "lake /lake · logs /state/logs",
            "spark is down",
        ):
            assert part in shown


def test_the_picture_has_the_table_and_loads_nothing(view: View) -> None:
    drawn = picture.draw(["producer started"], view)
    texts = [text.replace("\xa0", " ") for text in ElementTree.fromstring(drawn).itertext()]
    for shown in ("$ ./scripts/run", "producer started", "spark is down"):
        assert shown in texts
    assert any("first silver rows after 21 s" in text for text in texts)
    assert re.findall(r"url\((?!#)|@import|href|src=", drawn) == []


def test_the_picture_of_the_readme_is_one_of_these() -> None:
    texts = [text.replace("\xa0", " ") for text in ElementTree.parse(picture.PICTURE).getroot().itertext()]
    assert any(text.startswith("table  ") for text in texts)
    assert "docs/terminal.svg" in (picture.PICTURE.parents[1] / "README.md").read_text()


RULED = REPORT | {
    "tables": {
        "go_fish": {"silver": 1_234_567, "gold": 1_000, "schema_ids": {"3": 1_000_000, "4": 234_567},
                    "failed": {"warn": 12_345, "quarantine": 6_789}},
        "rummy": {"silver": 1502, "gold": 40, "schema_ids": {"3": 1502}},
    },
    "versions": {"3": 1, "4": 3},
    "paused": {"uno": {"rule": "steady", "check": "x", "record": "t/0@5", "since": 1.0, "rows": 98_765, "failing": "",
                       "let_in": False}},
}  # fmt: skip


def drawn(view: View) -> list[str]:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table.renderable(replace(view, troubles=[])))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_rows_that_fail_expectations_and_paused_tables_are_shown(view: View) -> None:
    ruled = replace(view, status=status.parse(RULED))
    lines = drawn(ruled)
    assert [" ".join(line.split()) for line in lines[:4]] == [
        "table silver rows gold rows warned dropped quarantined waiting schema versions",
        "go_fish 1,234,567 1,000 12,345 0 6,789 v1 1,000,000 v3 234,567",
        "rummy 1,502 40 0 0 0 v1 1,502",
        "uno 0 0 0 0 0 98,765",
    ]
    assert "paused      uno: 98,765 rows wait: t/0@5 fails steady" in lines
    said = list(table.plain(ruled))
    assert "expectations: warned 12345  dropped 0  quarantined 6789" in said
    assert "paused      uno: 98,765 rows wait: t/0@5 fails steady" in said
    pause = RULED["paused"]["uno"] | {"rows": 5, "let_in": True}
    letting = replace(ruled, status=status.parse(RULED | {"paused": {"uno": pause}}))
    assert "paused      uno: 5 rows are let in" in drawn(letting)
    assert table.news(letting) != table.news(ruled)
    assert status.stale(ruled.status).notes == ruled.status.notes


def test_schemas_that_a_person_decides_about_are_shown(view: View) -> None:
    stopped = {"schema_warnings": {"count": 0, "newest": [], "stopped": {"7": "field a was renamed to b"}}}
    shown = replace(view, status=status.parse(RULED | stopped))
    said = "schemas     7 is kept out: field a was renamed to b; decide: protolake accept-schema 7 --as ..."
    assert said in list(table.plain(shown))
    assert said in " ".join(drawn(shown))
    assert table.news(shown) != table.news(replace(view, status=status.parse(RULED)))
    assert said in status.stale(shown.status).notes


def test_without_expectations_the_table_has_no_columns_for_them(view: View) -> None:
    assert " ".join(drawn(view)[0].split()) == "table silver rows gold rows schema versions"
    assert not [line for line in table.plain(view) if line.startswith(("rules:", "paused"))]


BUSY = status_of(
    lag=12,
    held_back={"t/0": 40},
    paused=RULED["paused"],
    gold_failed={"gold_t0": "its silver is damaged"},
    followers={"gold": {"lag": 3, "paused": None}},
    references={"players": {"rows": 12, "version": "2", "refused": None}},
    schema_warnings={"count": 2, "newest": ["field a is new"], "stopped": {"7": "field a was renamed to b"}},
)


def test_the_live_table_and_status_show_the_same_numbers(view: View) -> None:
    lines = status_lines(BUSY, "http://p/?token=x")
    busy = replace(view, status=status.parse(BUSY), page="http://p/?token=x")
    live = list(table.plain(busy))
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table.renderable(busy))
    shown = [line.rstrip() for line in console.export_text().splitlines()]
    assert [note for note in notes(BUSY) if note not in lines or note not in live or note not in shown] == []
    assert len({note.split()[0] for note in notes(BUSY)}) == 8
    named = {line.split()[0]: line for line in lines if line}
    for name, number in (("rate", "100"), ("age", "0.5"), ("lag", "12"), ("bronze", "1,000"), ("quarantine", "2"),
                         ("dropped", "6"), ("lost", "9")):  # fmt: skip
        assert number in named[name]
        word = "100 rows/s" if name == "rate" else f"{name} {number}"
        assert word in live[2]
        assert word in "\n".join(shown)
    assert "4 deferred" in named["bronze"]
    assert "deferred 4" in live[2]
    assert "page        http://p/?token=x" in lines
    for of_stack in (live, shown):
        assert "page http://p/?token=x" in of_stack
    of_tables = [" ".join(cells).split() for cells in busy.status.rows]
    assert [line.split() for line in lines[-len(of_tables) :]] == of_tables
    assert [line.split() for line in shown[: len(of_tables)]] == of_tables


def test_an_earlier_runs_troubles_are_not_shown_as_those_of_now() -> None:
    told = status.stale(status.parse(BUSY)).notes
    assert {line.split()[0] for line in told} == {"paused", "schemas", "field"}


def footer(view: View) -> str:
    return "\n".join(table.summary(view))


def spark(state: str, code: int | None = None) -> list[Process]:
    return [Process("kafka", "running", 1, None), Process("spark", state, 2, code)]


def test_an_app_that_is_down_does_nothing_else(view: View) -> None:
    down = replace(view, processes=spark("exited", 78), status=status.stale(view.status))
    assert "kafka running · spark exited (78) · first silver rows" in footer(down)


@pytest.mark.parametrize("state", ["starting", "stopped"])
def test_between_a_bump_and_the_next_rows_the_footer_shows_it(view: View, state: str) -> None:
    bumped = replace(
        view,
        processes=spark("running"),
        exits=[Exit(1.0, 75, 5.0, False)],
        status=replace(view.status, state=state, rate=0.0, age=None, lag=None),
    )
    said = footer(bumped)
    assert said.startswith("relaunching for the new schema · bronze 1,510 · quarantine 7")
    assert said.count("relaunching") == 1
    assert "lag -" not in said
    assert "rows/s" in footer(replace(bumped, status=view.status))


def test_a_start_names_what_takes_so_long(view: View) -> None:
    starting = replace(view, processes=spark("running"), exits=[], status=status.Status())
    assert "spark running · app starting Spark ·" in footer(starting)


def test_rows_of_an_earlier_run_are_shown_otherwise_than_new_ones(view: View) -> None:
    assert "no silver rows yet" in footer(replace(view, first_silver=None))
    assert "no new silver rows yet" in footer(replace(view, first_silver=None, had_silver=True))


def test_only_what_counts_is_news(view: View) -> None:
    later = replace(view, up=view.up + 5, status=replace(view.status, rate=1.0, age=9.0, updated_at=5.0))
    assert table.news(later) == table.news(view)
    assert table.news(replace(view, troubles=[])) != table.news(view)
    assert table.news(replace(view, status=replace(view.status, quarantine={}))) != table.news(view)
