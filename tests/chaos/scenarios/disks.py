"""Full disks: the lake's (with Spark's checkpoint), that of temporary files, and one without inodes; while the app runs
and at its start. The app waits and continues. Needs root, to mount small disks."""

from __future__ import annotations

import contextlib
import os
import time
from random import Random

from scripts.local.errors import LocalError
from tests.chaos.disk import empty, fill, fill_files, small_disk
from tests.chaos.flow import SMALL_BATCHES, Flow
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill

KINDS = ("lake", "files", "temporary", "lake_at_start", "temporary_at_start")
FULL_S = (5.0, 20.0)
GOES_ON_S = 60.0
LAKE_SIZE, LAKE_FILES, TEMPORARY_SIZE = "600m", 60_000, "100m"


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Fill the disks so often, each kind in turn, on one lake."""
    try:
        with (
            small_disk(lab.folder / "small", LAKE_SIZE, LAKE_FILES) as lake,
            small_disk(lab.folder / "temporary", TEMPORARY_SIZE) as temporary,
        ):
            return _run(_Fills(lab, lake, temporary), size, dice)
    except LocalError as error:
        return Outcome(0, {"not run": str(error)}, {})


class _Fills:
    def __init__(self, lab: Lab, lake: os.PathLike[str], temporary: os.PathLike[str]):
        self.lake, self.temporary = lake, temporary
        folder = lab.folder / "disks"
        folder.mkdir()
        settings = {"LAKE__PATH": os.fspath(lake), "LAKE__MIN_FREE_BYTES": "1", "GOLD__INTERVAL_S": "1"}
        self.stage = Stage(folder, lab.kafka, lab.registry, "full_disks", None, **settings)
        self.stage.lake = lab.folder / "small"


def _run(fills: _Fills, size: Size, dice: Random) -> Outcome:
    stage = fills.stage
    stage.produce(size.records, partitions="3")
    goes_on: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    with _temporary_at(fills.temporary):
        flow = Flow(stage, **SMALL_BATCHES)
        flow.await_start()
        try:
            for number in range(size.times):
                kind = KINDS[number % len(KINDS)]
                seconds = _fill(fills, flow, kind, dice)
                goes_on[kind] = max(goes_on[kind], seconds)
                if seconds >= GOES_ON_S or flow.app.poll() is not None:
                    flow.faults[f"{number + 1}: {kind}"] = {"exit code": flow.app.poll(), "unit after_s": seconds}
                    break
            faults = flow.finish()
        finally:
            kill(flow.app)
    figures = {f"{kind}_next_unit_s": seconds for kind, seconds in goes_on.items()}
    waits = sum("waiting" in line and "no space left" in line for line in stage.lines())
    return Outcome(number + 1, faults, figures | {"waits": waits})


def _fill(fills: _Fills, flow: Flow, kind: str, dice: Random) -> float:
    """Seconds from the end of the shortage to the next unit."""
    disk = fills.temporary if kind.startswith("temporary") else fills.lake
    if kind.endswith("_at_start"):
        kill(flow.app)
    make = fill_files if kind == "files" else fill
    make(disk)  # type: ignore[arg-type]
    if kind.endswith("_at_start"):
        flow.restart()
    time.sleep(dice.uniform(*FULL_S))
    ended = flow.app.poll() is not None
    empty(disk)  # type: ignore[arg-type]
    return GOES_ON_S if ended else flow.await_units(timeout=GOES_ON_S)


@contextlib.contextmanager
def _temporary_at(folder: os.PathLike[str]):  # type: ignore[no-untyped-def]
    """Set the app's temporary folder."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = os.fspath(folder)
    try:
        yield
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
