"""The command line of ./scripts/chaos, as its user types it, and the page of results; nothing is broken here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import pytest

from scripts.local.artifacts import ROOT
from scripts.local.errors import LocalError
from tests.chaos import lanes
from tests.chaos.options import command, of_one, parse
from tests.chaos.outcome import PAGE, PUBLISHED, Outcome, page, record
from tests.chaos.scenarios import ANCHORS, ENTRIES, TIERS


def _chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Without anything that is installed."""
    line = [sys.executable, "-S", "-m", "tests.chaos", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_the_list_names_every_scenario() -> None:
    done = _chaos("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(ENTRIES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nothing"], "no scenario nothing"), (["--times", "0"], "not a number above 0"), (["--tier", "all"], "--tier")],
)
def test_wrong_usage_is_one_line_and_64(arguments: list[str], said: str) -> None:
    done = _chaos(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert said in done.stderr


def test_without_names_the_tier_decides() -> None:
    for storage in ("local", "s3"):
        here = [name for name, entry in ENTRIES.items() if entry.storage in ("", storage)]
        for tier in TIERS:
            names = tuple(name for name in here if ENTRIES[name].times[tier])
            assert parse(["--tier", tier, "--storage", storage]).names == names
        assert parse(["--tier", "release", "--storage", storage]).names == tuple(here)
    with pytest.raises(LocalError, match="takeovers: add --storage s3"):
        parse(["takeovers"])


def test_every_row_has_an_anchor() -> None:
    assert {entry.row for entry in ENTRIES.values()} == ANCHORS.keys()


@pytest.mark.parametrize("name", ENTRIES)
def test_every_scenario_is_there(name: str) -> None:
    module, function = ENTRIES[name].function.rsplit(".", 1)
    assert callable(getattr(import_module(f"tests.chaos.scenarios.{module}"), function))


def test_the_command_of_a_result_repeats_it() -> None:
    options = parse(["kills", "--times", "3", "--records", "9,000", "--tier", "nightly"])
    assert parse(command(options, "kills").split()[1:]) == options


def test_a_lane_plays_one_scenario_as_it_was_chosen() -> None:
    options = parse(["kills", "power", "--lanes", "2", "--seed", "7", "--keep"])
    assert parse(of_one(options, "power")) == replace(options, names=("power",), lanes=1)


def test_lanes_report_who_lost_nothing_and_name_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scenario:
        def __init__(self, line: list[str], cwd: object):
            self.returncode = 65 if "power" in line else 0

        def wait(self) -> int:
            return self.returncode

        def terminate(self) -> None:
            pass

    monkeypatch.setattr(lanes.subprocess, "Popen", Scenario)
    clean: list[str] = []
    assert lanes.play(parse(["kills", "power", "--lanes", "2"]), lambda name, seconds: clean.append(name)) == ["power"]
    assert clean == ["kills"]


def test_a_seed_is_drawn_when_none_is_given() -> None:
    assert len({parse([]).seed for _ in range(9)}) > 1
    with pytest.raises(LocalError):
        parse(["--seed", "x"])


def test_the_page_has_the_last_result_of_each_command() -> None:
    old, new = (
        record("kills", "R1", 7, "./scripts/chaos kills --seed 7", Outcome(12, faults, {"resumed_s": 9.25}), 61.0)
        for faults in ({"lost": (1, ["t", 0, 5])}, {})
    )
    assert "| kills | R1 | 12 | {" in page([old])
    assert f"| kills | R1 | 12 | 0 | resumed s 9.2 | {ANCHORS['R1']} | `./scripts/chaos kills --seed 7` |" in page(
        [old, new]
    )
    assert page([old, new]).count("| kills |") == 1


def test_the_page_names_what_was_not_run() -> None:
    command = "./scripts/chaos kills --tier release --seed 7"
    said = page([record("kills", "R1", 7, command, Outcome(200), 61.0)]).splitlines()[-1]
    assert said.startswith("Not run in the release tier yet: failpoints (R2), ")
    assert "kills" not in said


def test_the_page_is_made_from_what_was_published() -> None:
    assert PAGE.read_text() == page(map(json.loads, PUBLISHED.read_text().splitlines()))
