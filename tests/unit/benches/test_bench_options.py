"""The command line of ./scripts/bench, as its user types it; nothing is measured, no server starts."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from scripts.benches.options import ENTRIES, command, listing, parse
from scripts.benches.progress import Progress
from scripts.benches.sides import Side
from scripts.local.artifacts import ROOT
from scripts.local.errors import USAGE, LocalError


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    # -S: no installed package can be imported
    command = [sys.executable, "-S", "-m", "scripts.benches", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _bench_with_packages(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.benches", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_list_names_every_measurement_before_anything_is_installed() -> None:
    done = _bench("--list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    names = [
        "tables",
        "drain",
        "cluster",
        "freshness",
        "page",
        "demux",
        "decode",
        "stages",
        "expectations",
        "gold",
        "sql",
    ]
    names += ["rest", "deliver", "serve", "starts", "trigger", "waiting"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == names
    assert listing() in done.stdout


def test_the_list_shows_every_target_below_its_measurement() -> None:
    lines = [line.strip() for line in listing().splitlines()]
    for name, entry in ENTRIES.items():
        place = next(number for number, line in enumerate(lines) if line.startswith(f"{name} "))
        expected = [f"{target.what} {target.bound}" for target in entry.targets]
        assert lines[place + 1 : place + 1 + len(expected)] == expected


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], [], ["tables", "--nonsense"], ["tables", "--storage", "tape"], ["drain", "--records", "0"]],
)
def test_what_nobody_can_measure_is_a_usage_error_in_one_line(arguments: list[str]) -> None:
    done = _bench(*arguments)
    assert done.returncode == USAGE
    assert len(done.stderr.splitlines()) == 1
    assert "./scripts/bench --help" in done.stderr


def test_freshness_of_a_moment_is_a_usage_error() -> None:
    done = _bench_with_packages("freshness", "--seconds", "10")
    assert (done.returncode, done.stderr) == (
        USAGE,
        "bench: --seconds 10: this is too short to measure, give 240 or more\n",
    )


@pytest.mark.parametrize("name", ENTRIES)
def test_every_measurement_can_be_run(name: str) -> None:
    assert callable(import_module(ENTRIES[name].module).run)


def test_numbers_may_be_written_as_people_write_them() -> None:
    options = parse(["drain", "--records", "2_000_000", "--batch-records", "200,000", "1000000"])
    assert (options.records, options.batch_records) == (2_000_000, (200_000, 1_000_000))


def test_each_measurement_has_its_own_options() -> None:
    with pytest.raises(LocalError, match="--rounds"):
        parse(["tables", "--rounds", "2"])


def test_a_rival_may_have_other_flags_and_the_app_another_commit() -> None:
    options = parse(["drain", "--against", "lean", "floor:own", "base:a00e4ee"])
    assert options.against == (Side("lean"), Side("floor", "own"), Side("base", "a00e4ee"))
    assert [one.flags for one in options.against] == ["own", "own", None]
    assert [one.is_app for one in options.against] == [False, False, True]


@pytest.mark.parametrize("rival", ["nobody", "lean:quick", "expert:own", "base", "base:--help", "app"])
def test_who_cannot_be_compared_with_is_refused(rival: str) -> None:
    with pytest.raises(LocalError, match="is none of lean, expert"):
        parse(["drain", "--against", rival])


@pytest.mark.parametrize("name", ["drain", "expectations"])
def test_fewer_than_three_rounds_are_not_published(name: str) -> None:
    assert parse([name, "--rounds", "2"]).rounds == 2
    with pytest.raises(LocalError, match="give 3 or more"):
        parse([name, "--rounds", "2", "--publish"])


@pytest.mark.parametrize("name", ENTRIES)
def test_every_measurement_can_be_published(name: str) -> None:
    options = parse([name, "--publish"])
    assert (options.publish, options.command) == (True, f"./scripts/bench {name}")


def test_the_command_that_repeats_it_has_the_settings_of_the_environment() -> None:
    environment = {"PROTOLAKE_SPARK__MASTER": "local[1,4]", "PROTOLAKE_PYTHON": "/a/python", "HOME": "/b"}
    found = command(["tables", "--tables", "7", "--publish"], environment)
    assert found == "PROTOLAKE_SPARK__MASTER='local[1,4]' ./scripts/bench tables --tables 7"


def test_batches_are_timed_by_the_marks_of_the_checkpoint(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    marks = {"offsets/0": 100.0, "commits/0": 104.0, "offsets/1": 104.5, "commits/1": 107.0}
    for name, moment in marks.items():
        _mark(tmp_path / name, moment)
    (tmp_path / "commits" / ".2.tmp").touch()
    progress.look()
    (tmp_path / "offsets" / "0").unlink()  # as Spark removes old marks
    progress.look()
    assert (progress.seconds, progress.first_seconds, progress.first_records) == (7.0, 4.0, 30)


def test_the_time_of_two_queries_begins_with_the_first(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "second", tmp_path / "first")
    for name, moment in {"first/offsets/0": 90.0, "second/offsets/0": 100.0, "second/commits/0": 104.0}.items():
        _mark(tmp_path / name, moment)
    progress.look()
    assert (progress.seconds, progress.first_seconds, progress.first_records) == (14.0, 14.0, 0)


def _mark(path: Path, moment: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v1\n{}\n" + json.dumps({"topic": {"0": 10, "1": 20}}))
    os.utime(path, (moment, moment))
