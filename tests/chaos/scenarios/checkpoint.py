"""Spark's checkpoint and the tables out of step with the manifests: deleted, older, of another lake, damaged file by
file.

Each time the app either continues or exits with 65; then `doctor --repair`, or restoring what was removed, repairs the
lake.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage

DONE, LOSS = 0, 65
RECORDS = 400  # between two damages
KINDS = ("truncated", "emptied", "junk", "missing")


@dataclass
class Tally:
    """The results of the damages."""

    went_on: int = 0
    refused: int = 0
    slowest_refusal_s: float = 0.0
    slowest_repair_s: float = 0.0
    faults: dict[str, object] = field(default_factory=dict)


def swapped(lab: Lab, size: Size, dice: Random) -> Outcome:
    """R5: each way to have the wrong checkpoint, or no tables, `times` times."""
    other, stage = _stage(lab), _stage(lab)
    for one in (other, stage):
        one.produce(RECORDS, partitions="3")
        _drain(one)
    tally = Tally()
    ways: dict[str, Callable[[Stage, Stage, Tally], None]] = {
        "deleted": _delete_checkpoint,
        "tables deleted": _delete_tables,
        "another lake's": _mount_another,
        "older copy": _restore_older,
    }
    for number in range(size.times):
        for name in dice.sample(list(ways), len(ways)):
            _record(tally, f"{name} {number}", lambda way=ways[name]: way(stage, other, tally))  # type: ignore[misc]
    return _outcome(stage, tally, size.times * len(ways))


def damaged(lab: Lab, size: Size, dice: Random) -> Outcome:
    """R6: `times` damages, of each file that Spark keeps and each kind of damage in turn; every second one while a
    batch is planned but not committed."""
    stage = _stage(lab, FAILPOINTS="on")
    stage.produce(RECORDS, partitions="3")
    _drain(stage)
    tally = Tally()
    plans = list(itertools.product(_files_of(stage), KINDS))
    dice.shuffle(plans)
    for number, (which, kind) in zip(range(size.times), itertools.cycle(plans), strict=False):
        _record(tally, f"{which} {kind}", lambda n=number, w=which, k=kind: _damage_once(stage, n, w, k, dice, tally))  # type: ignore[misc]
    return _outcome(stage, tally, size.times)


def _stage(lab: Lab, **settings: str) -> Stage:
    return lab.stage(BATCH__INTERVAL_S="0", BATCH__MAX_RECORDS="150", GOLD__INTERVAL_S="1", **settings)


def _record(tally: Tally, name: str, do: Callable[[], None]) -> None:
    try:
        do()
    except AssertionError as fault:
        tally.faults[name] = str(fault)


def _outcome(stage: Stage, tally: Tally, done: int) -> Outcome:
    _drain(stage)
    figures = {
        "went_on": tally.went_on,
        "refused": tally.refused,
        "refused_after_s_at_most": round(tally.slowest_refusal_s, 1),
        "repaired_after_s_at_most": round(tally.slowest_repair_s, 1),
    }
    return Outcome(done, tally.faults | stage.verify(), figures)


def _drain(stage: Stage) -> None:
    codes = stage.drain()
    assert codes[-1] == DONE, f"drained with {codes}: {stage.lines()[-1]}"


def _checkpoint(stage: Stage) -> Path:
    return stage.lake / "_protolake" / "checkpoint"


def _delete_checkpoint(stage: Stage, other: Stage, tally: Tally) -> None:
    stage.produce(RECORDS)
    shutil.rmtree(_checkpoint(stage))
    _drain(stage)
    tally.went_on += 1


def _delete_tables(stage: Stage, other: Stage, tally: Tally) -> None:
    """Repaired by restoring the tables: only they have the records."""
    aside = stage.lake.with_name("tables")
    aside.mkdir()
    tables = [path for path in stage.lake.iterdir() if (path / "_delta_log").is_dir()]
    for path in tables:
        path.rename(aside / path.name)
    try:
        _refused(stage, tally, "bronze_events")
    finally:
        for path in tables:
            shutil.rmtree(path, ignore_errors=True)
            (aside / path.name).rename(path)
        aside.rmdir()
    _drain(stage)


def _mount_another(stage: Stage, other: Stage, tally: Tally) -> None:
    shutil.rmtree(_checkpoint(stage))
    shutil.copytree(_checkpoint(other), _checkpoint(stage))
    _refused(stage, tally, "doctor --repair")
    _repair(stage, tally)


def _restore_older(stage: Stage, other: Stage, tally: Tally) -> None:
    older = stage.lake.with_name("older")
    shutil.copytree(_checkpoint(stage), older)
    stage.produce(RECORDS)
    _drain(stage)
    shutil.rmtree(_checkpoint(stage))
    older.rename(_checkpoint(stage))
    _refused(stage, tally, "doctor --repair")
    _repair(stage, tally)


def _damage_once(stage: Stage, number: int, which: str, kind: str, dice: Random, tally: Tally) -> None:
    stage.produce(RECORDS)
    if number % 2:
        stage.arm(["ingest.manifest.before"])
        assert stage.run("--available-now") == -9
    else:
        _drain(stage)
    _damage(_file(_checkpoint(stage), which), kind, dice)
    began = time.monotonic()
    code = stage.run("--available-now")
    if code == DONE:
        tally.went_on += 1
        return
    _note_refusal(stage, tally, code, time.monotonic() - began, "doctor --repair")
    _repair(stage, tally)


def _files_of(stage: Stage) -> list[str]:
    """Names for `_file`: each file that Spark reads at its start, the ones before the newest, and its checksum."""
    names = ["metadata", "offsets/last", "offsets/before", "commits/last", "commits/before", "sources/0/0"]
    return names + [f"{name} crc" for name in names] + ["offsets/next", "commits"]


def _file(folder: Path, which: str) -> Path:
    name, _, checksum = which.partition(" ")
    parent, _, place = name.partition("/")
    if place in ("last", "before", "next"):
        numbers = sorted(int(path.name) for path in (folder / parent).glob("[0-9]*"))
        number = {"last": numbers[-1], "before": numbers[-2:][0], "next": numbers[-1] + 1}[place]
        path = folder / parent / str(number)
    else:
        path = folder / name
    return path.with_name(f".{path.name}.crc") if checksum else path


def _damage(path: Path, kind: str, dice: Random) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        return
    data = path.read_bytes() if path.exists() else b"v1\n{}\n{}"
    if kind == "missing":
        path.unlink(missing_ok=True)
    else:
        cut = data[: dice.randrange(len(data))]
        path.write_bytes({"truncated": cut, "emptied": b"", "junk": dice.randbytes(len(data))}[kind])


def _refused(stage: Stage, tally: Tally, words: str) -> None:
    began = time.monotonic()
    code = stage.run("--available-now")
    _note_refusal(stage, tally, code, time.monotonic() - began, words)


def _note_refusal(stage: Stage, tally: Tally, code: int, seconds: float, words: str) -> None:
    assert code == LOSS, f"ended with {code}: {stage.lines()[-1]}"
    assert words in stage.lines()[-1], f"the last line is {stage.lines()[-1]}"
    tally.refused += 1
    tally.slowest_refusal_s = max(tally.slowest_refusal_s, seconds)


def _repair(stage: Stage, tally: Tally) -> None:
    """Run doctor, then a start that succeeds."""
    began = time.monotonic()
    done = stage.command("doctor", "--repair")
    assert done.returncode == DONE, f"doctor ended with {done.returncode}: {done.stdout}{done.stderr}"
    _drain(stage)
    tally.slowest_repair_s = max(tally.slowest_repair_s, time.monotonic() - began)
