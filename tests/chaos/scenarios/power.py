"""Power cuts: what was not fsynced is lost, completely, in part, or not at all.

They are made on a simulated file system, under the whole app; and under the commit layer alone, which is cut at every
one of its operations sooner or later.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from random import Random

from spark_app.lake.files.state_files import write_durably
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.chaos import mount
from tests.chaos.commits import cut_often
from tests.chaos.gold_tables import BY_SQL
from tests.chaos.lab import Lab
from tests.chaos.mount import Mount
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill, wait_for

LONGEST_S = 15.0  # of a run, from its start or from its first unit on
PATIENCE_S = 120.0  # until that unit
UNITS_PER_LIFE = 12
RELAUNCHED = (ExitCode.BUMP, 69, 70)
PARTITIONS = 6


@dataclass
class Lives:
    """The results."""

    cuts: int = 0
    repaired: int = 0
    units: int = 0
    resumed_s: list[float] = field(default_factory=list)
    faults: dict[str, object] = field(default_factory=dict)


def commits(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Manifests, commits, compaction, clean-up and gold without Spark, cut at any operation."""
    if reason := mount.missing():
        return Outcome(0, {"mount": reason})
    with mount.mounted(lab.folder / "power") as disk:
        cuts = cut_often(disk, dice, size.times)
    return Outcome(cuts.done, cuts.faults, {"units": cuts.units, "operations": cuts.operations, "mended": cuts.mended})


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Produce everything, cut the power so often while it is ingested, drain, verify."""
    if reason := mount.missing():
        return Outcome(0, {"mount": reason})
    stage = lab.stage(
        BATCH__INTERVAL_S="0",
        BATCH__MAX_RECORDS=str(max(200, size.records // (size.times * UNITS_PER_LIFE))),
        GOLD__INTERVAL_S="0.7",
        LAKE__COMPACT_FILES="8",
        SCHEMAS__UNKNOWN_ID_GRACE_S="1",
        RUN__HOLD="false",
        **BY_SQL,
    )
    bumps = f"*=2@{size.records // 3}r,*=3@{size.records * 2 // 3}r"
    stage.produce(size.records, partitions=str(PARTITIONS), timeline=bumps, poison="0.01")
    lives = Lives()
    with mount.mounted(stage.lake) as disk:
        while lives.cuts < size.times:
            _live(stage, disk, dice, lives)
        codes = stage.drain(timeout=600 + size.records / 500, BATCH__MAX_RECORDS="20000")
        if codes[-1] != 0:
            lives.faults["drain"] = codes
        lives.faults |= stage.verify()
    return Outcome(lives.cuts, lives.faults, _figures(stage, size, lives))


def _figures(stage: Stage, size: Size, lives: Lives) -> dict[str, float]:
    return {
        "records": size.records,
        "units_between_cuts": lives.units,
        "logs_mended": sum("the machine lost power" in line for line in stage.lines()),
        "repaired_by_doctor": lives.repaired,
        "resumed_after_s_at_most": max(lives.resumed_s, default=0.0),
    }


def _live(stage: Stage, disk: Mount, dice: Random, lives: Lives) -> None:
    """One run, from a start to a cut: one in four is cut during its start."""
    seed, longest, starting = dice.randrange(1 << 30), dice.uniform(0.0, LONGEST_S), dice.random() < 0.25
    began, before = time.monotonic(), stage.unit()
    app = stage.start()
    if not starting and wait_for(app, PATIENCE_S, lambda: stage.unit() > before):
        lives.resumed_s.append(round(time.monotonic() - began, 1))
    wait_for(app, longest)
    code = app.poll()
    kill(app)
    lives.units += max(0, stage.unit() - before)
    if code is not None and code not in RELAUNCHED:
        return _repair(stage, lives, code)
    disk.cut(seed)
    _restart_machine(stage)
    lives.cuts += 1


def _restart_machine(stage: Stage) -> None:
    """Change the boot id in the durability mark, as after a restart of the machine."""
    lake = Lake(stage.lake)
    if lake.storage.exists(lake.synced):
        stored = json.loads(lake.storage.get(lake.synced)) | {"boot": "before"}
        write_durably(lake.storage, lake.synced, json.dumps(stored), "synced")


def _repair(stage: Stage, lives: Lives, code: int) -> None:
    """Do what a held app asks of a person: run `doctor --repair`."""
    lives.repaired += 1
    done = stage.command("doctor", "--repair")
    if done.returncode != 0:
        lives.faults.setdefault("held", []).append((code, stage.lines()[-3:], done.stderr[-500:]))  # type: ignore[attr-defined]
