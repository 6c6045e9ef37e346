"""The page of what was published: the latest figures of each measurement and command, with their verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.benches import page, plots, result
from scripts.benches.options import ENTRIES, Options
from scripts.benches.result import Figure, Result
from scripts.benches.shape import Shape
from scripts.benches.sides import RIVALS, Side, all_targets, promised
from scripts.benches.targets import AGE_P50, EARLIER_COMMIT, Target
from scripts.local import results

PNG = b"\x89PNG"
STAMP = {"at": "2026-01-02T03:04:05+00:00", "machine": "2 cores, 23 GiB, Linux x86_64", "load": [2.0, 1.5, 1.0]}


def _entry(bench: str, command: str, *figures: Figure, **details: Any) -> dict[str, Any]:
    """As it comes back from the file."""
    line = result.record(Options(bench, command), Result(figures, details)) | STAMP
    read: dict[str, Any] = json.loads(json.dumps(line))
    return read


def _drain(shape: Shape, *runs: tuple[str, int]) -> dict[str, Any]:
    found = [{"side": side, "rate": rate, "batch_records": 200} for side, rate in runs]
    return _entry("drain", f"./scripts/bench drain --games {shape.games}", topic=shape.found(), runs=found)


def _freshness(games: int = 7) -> dict[str, Any]:
    parts = [[float(minute), 0.9, 1.4, 2.0, 2.5, 900, 40, 0.3] for minute in range(1, 11)]
    figure, topic = Figure(AGE_P50.what, 0.9, AGE_P50), Shape(games=games).found()
    return _entry("freshness", "./scripts/bench freshness", figure, rate=5000, topic=topic, parts=parts)


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_a_figure_shows_its_target_and_the_outcome() -> None:
    assert Figure("r", 1.2, Target("r", 1.5)).line() == "r: 1.20 (target <= 1.5: met)"
    assert Figure("r", 1.2, Target("r", 1.3, at_most=False)).line() == "r: 1.20 (target >= 1.3: not met)"
    assert Figure("records/s", 701_234.5).line() == "records/s: 701,234"
    assert Figure.of("r", [1.4, 1.2, 1.3], Target("r", 1.5)).line() == "r: 1.30, 1.20 to 1.40 (target <= 1.5: met)"


def test_a_row_has_the_figure_with_target_verdict_machine_load_and_date() -> None:
    figures = Figure("a", 1.2, Target("a", 1.5)), Figure("b", 9.0, Target("b", 10, at_most=False)), Figure("c", 12345.6)
    spread = Figure.of("d", [4.0, 1.0, 2.0])
    text = page.page([_entry("decode", "./scripts/bench decode", *figures, spread)])
    where = ["`./scripts/bench decode`", "2 cores, 23 GiB, Linux x86_64", "2.0 1.5 1.0", "2026-01-02"]
    assert _rows(text) == [
        ["decode", "a", "1.20", "-", "-", "<= 1.5", "yes", *where],
        ["decode", "b", "9.00", "-", "-", ">= 10", "no", *where],
        ["decode", "c", "12,346", "-", "-", "-", "-", *where],
        ["decode", "d", "2.00", "1.00", "4.00", "-", "-", *where],
    ]


def test_the_latest_of_a_measurement_and_command_counts() -> None:
    entries = [
        _entry("drain", "x", Figure("a", 1.0)),
        _entry("tables", "y", Figure("a", 2.0)),
        _entry("drain", "z", Figure("a", 3.0)),
        _entry("drain", "x", Figure("a", 4.0)),
    ]
    assert [(row[0], row[2]) for row in _rows(page.page(entries))] == [
        ("tables", "2.00"),
        ("drain", "4.00"),
        ("drain", "3.00"),
    ]


def test_what_was_not_measured_yet_is_named() -> None:
    assert page.page([]).endswith(f"\n\nNot measured yet: {', '.join(ENTRIES)}.\n")
    everything = [_entry(name, "x", Figure("a", 1.0)) for name in ENTRIES]
    assert "Not measured" not in page.page(everything)


def test_each_result_is_published_with_page_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "results.jsonl")
    monkeypatch.setattr(page, "PAGE", tmp_path / "RESULTS.md")
    page.publish(_entry("decode", "x", Figure("a", 1.0)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RESULTS.md", "results.jsonl"]
    page.publish(_drain(Shape(games=7), ("app", 3), ("floor", 2)))
    page.publish(_freshness())
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
    text = (tmp_path / "RESULTS.md").read_text()
    for picture in (plots.THROUGHPUT, plots.FRESHNESS):
        assert f"]({picture})" in text
        assert (tmp_path / picture).read_bytes().startswith(PNG)
    assert [row[0] for row in _rows(text)] == ["freshness", "decode"]


def test_freshness_is_drawn_of_the_games_that_the_targets_are_for(tmp_path: Path) -> None:
    assert plots.draw([_freshness(games=1000)], tmp_path) == []
    assert plots.draw([_freshness()], tmp_path) == [plots.FRESHNESS]
    drawn = (tmp_path / plots.FRESHNESS).read_bytes()
    plots.draw([_freshness(), _freshness(games=1000)], tmp_path)
    assert (tmp_path / plots.FRESHNESS).read_bytes() == drawn


def test_stages_are_drawn_beside_what_they_cost_before(tmp_path: Path) -> None:
    names = ["Kafka to Arrow", "decoding", "strict judging", *plots.NOW["routing and files"]]
    rounds = {name: [float(number), 9.0, 0.0] for number, name in enumerate(names)}
    entry = _entry("stages", "x") | {"stages": {"flat": rounds, "rich": rounds}}
    found = plots.costs(entry)
    assert found["flat"]["decoding"] == [plots.BEFORE["flat"]["decoding"], 1.0]
    assert [now for _, now in found["rich"].values()] == [0.0, 1.0, 2.0, 3.0 + 4.0]
    assert plots.draw([entry], tmp_path) == [plots.STAGES]
    assert (tmp_path / plots.STAGES).read_bytes().startswith(PNG)


def test_throughput_is_compared_within_a_run_of_topics_that_differ_in_nothing_else() -> None:
    entries = [
        _drain(Shape(games=7), ("app", 10), ("floor", 1)),
        _drain(Shape(games=7), *[("app", 100), ("floor", 80), ("base:1234567", 9)] * 2, ("app", 9), ("floor", 1)),
        _drain(Shape(games=50), ("app", 9), ("floor", 18)),
        _drain(Shape(games=200, bad=0.1), ("app", 1), ("floor", 2)),
    ]
    assert plots.throughput(entries) == {"floor, flat events, 200 a batch": {7: 1.25, 50: 0.5}}


def test_published_lines_of_before_stay_readable() -> None:
    entries = results.read(page.PUBLISHED)
    assert len(_rows(page.page(entries))) > len(ENTRIES)


LARGE = (Shape(4_000_000), Shape(1_000_000, message="rich"), Shape(500_000, games=200), Shape(1_000_000, games=50))


@pytest.mark.parametrize("target", all_targets())
def test_each_target_is_promised_of_some_topic(target: Target) -> None:
    sides = [*map(Side, RIVALS), Side("base", EARLIER_COMMIT)]
    assert target in [one for rival in sides for shape in LARGE for one in promised(rival, shape)]


def test_nothing_is_promised_of_topics_that_are_mostly_start() -> None:
    assert promised(Side("lean"), Shape(300_000)) == (None, None, None)
    assert promised(Side("base", "1234567"), LARGE[0]) == (None, None, None)
