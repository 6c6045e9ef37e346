"""kill -9 at random times of start and run: of the whole app, of the driver only (its JVM lives on for seconds), of the
JVM only (the driver has to detect it)."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from statistics import median

import psutil  # type: ignore[import-untyped]

from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.chaos import gold_tables
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import WAITS_FOR_SCHEMAS, Stage, kill, wait_for

GAMES = [f"game_{number}" for number in range(20)]
PARTITIONS = 12
VERSIONS = (1, 2, 3, 4, 5)
FIRST = 500  # records at most of a new version, for a running app that has ingested all others: a bump
AT_ONCE = "200000"  # records per batch without kills
START_S = 10.0  # a third of the kills is within so many seconds after a start,
RUN_S = 4.0  # the others within so many after its first unit
RESUMES_S = 120.0
UNITS_PER_LIFE = 12
VICTIMS = ("app", "app", "app", "driver", "jvm")
NOTICES_S = 60.0
MOST_REFUSED = 10  # starts in a row that meet the JVM of a killed driver or a command, which end within seconds


@dataclass
class Lives:
    """The results."""

    kills: dict[str, int] = field(default_factory=dict)
    resumed_s: list[float] = field(default_factory=list)
    bumps: int = 0
    refused_starts: int = 0
    refused_in_a_row: int = 0
    faults: dict[str, object] = field(default_factory=dict)

    def count_start(self, refused: bool) -> None:
        """
        Raises:
            AssertionError: nobody gives the lake back.
        """
        self.refused_starts += refused
        self.refused_in_a_row = self.refused_in_a_row + 1 if refused else 0
        if self.refused_in_a_row > MOST_REFUSED:
            raise AssertionError(f"{self.refused_in_a_row} starts in a row found the lake in use")


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Produce everything, kill so often while it is ingested, drain, verify."""
    batch = max(500, size.records // (size.times * UNITS_PER_LIFE))
    stage = lab.stage(
        BATCH__INTERVAL_S="0",
        BATCH__MAX_RECORDS=str(batch),
        GOLD__INTERVAL_S="0.7",
        LAKE__COMPACT_FILES="8",
        SCHEMAS__UNKNOWN_ID_GRACE_S="1",
        **gold_tables.AS_SETTING,
        **WAITS_FOR_SCHEMAS,
    )
    lives = Lives()
    share = size.records // len(VERSIONS)
    with ThreadPoolExecutor(1) as producer:
        for version in VERSIONS:
            first = min(FIRST, share // 2) if version > 1 else 0
            if first:
                _bump(stage, version, first, share * (version - 1), lives)
            sending = producer.submit(_produce, stage, share - first, version)
            while sum(lives.kills.values()) < size.times * version // len(VERSIONS) or not sending.done():
                live(stage, dice, lives)
            sending.result()
    units = max(Lake(stage.address).units(), default=0)
    codes = stage.drain(timeout=600 + size.records / 1000, BATCH__MAX_RECORDS=AT_ONCE)
    if codes[-1] != 0:
        lives.faults["drain"] = codes
    figures = {
        "records": size.records,
        **{f"kills_of_{victim}": count for victim, count in lives.kills.items()},
        "bumps": lives.bumps,
        "starts_refused": lives.refused_starts,
        "units": units,
        "resumed_after_s_median": median(lives.resumed_s or [0.0]),
        "resumed_after_s_at_most": max(lives.resumed_s, default=0.0),
    }
    return Outcome(sum(lives.kills.values()), lives.faults | stage.verify(), figures)


def _produce(stage: Stage, records: int, version: int) -> None:
    shape = {"partitions": str(PARTITIONS), "games": ",".join(GAMES), "poison": "0.01"}
    stage.produce(records, schema_version=str(version), seed=str(version), **shape)


def _bump(stage: Stage, version: int, first: int, taken: int, lives: Lives) -> None:
    """Wait until the running app has ingested so many records, then send the first ones of a new schema version."""
    logged = len(stage.lines())
    app = stage.start(BATCH__MAX_RECORDS=AT_ONCE)
    try:
        due = {"pid": app.pid, "state": "running", "bronze": taken}
        if not wait_for(app, RESUMES_S + taken / 1000, lambda: due.items() <= stage.status().items()):
            refused = stage.was_refused(app.poll(), logged)
            lives.count_start(refused)
            if refused:
                return _bump(stage, version, first, taken, lives)
            lives.faults[f"before version {version}"] = f"{taken} records were not ingested"
        _produce(stage, first, version)
        wait_for(app, RESUMES_S)
        if app.poll() != ExitCode.BUMP:
            lives.faults[f"at version {version}"] = f"exit code {app.poll()}, not {ExitCode.BUMP}"
        lives.bumps += app.poll() == ExitCode.BUMP
    finally:
        kill(app)


def live(stage: Stage, dice: Random, lives: Lives) -> None:
    """One run: until its kill, or its exit for a bump."""
    victim, in_start, moment = dice.choice(VICTIMS), dice.random() < 1 / 3, dice.random()
    began, before, logged = time.monotonic(), stage.unit(), len(stage.lines())
    app = stage.start()
    try:
        if in_start:
            wait_for(app, START_S * moment)
        else:
            if wait_for(app, RESUMES_S, lambda: stage.unit() > before):
                lives.resumed_s.append(round(time.monotonic() - began, 1))
            elif app.poll() is None:
                lives.faults["resume"] = f"no unit within {RESUMES_S:.0f} s of a start"
            wait_for(app, RUN_S * moment)
        if app.poll() is not None:
            return count_exit(app, stage, logged, lives)
        lives.count_start(refused=False)
        lives.kills[victim] = lives.kills.get(victim, 0) + 1
        _kill(victim, app, stage, lives)
    finally:
        if victim == "app" or app.poll() is None:
            kill(app)


def count_exit(app: subprocess.Popen[bytes], stage: Stage, logged: int, lives: Lives) -> None:
    """Count the end of an app that nobody killed. After a bump and after a start that met the lake in use, the restart
    policy starts the next one; all other ends are faults.

    Args:
        logged: lines of the log before its start.
    """
    lives.bumps += app.returncode == ExitCode.BUMP
    refused = stage.was_refused(app.poll(), logged)
    lives.count_start(refused)
    if not refused and app.returncode != ExitCode.BUMP:
        lives.faults.setdefault("exit", []).append(app.returncode)  # type: ignore[attr-defined]


def _kill(victim: str, app: subprocess.Popen[bytes], stage: Stage, lives: Lives) -> None:
    if victim == "driver":
        app.kill()
        app.wait()
        return
    jvm = _jvm(app)
    if victim == "jvm" and jvm is not None:
        jvm.kill()
        is_replaced = wait_for(app, NOTICES_S, lambda: _jvm(app) not in (None, jvm))  # at its start it retries
        if not is_replaced and app.poll() not in (ExitCode.BUG, ExitCode.BUMP):
            found = (app.poll(), stage.status().get("state"), stage.lines()[-3:])
            lives.faults.setdefault("jvm_killed", []).append(found)  # type: ignore[attr-defined]


def _jvm(app: subprocess.Popen[bytes]) -> psutil.Process | None:
    try:
        return next((p for p in psutil.Process(app.pid).children(recursive=True) if p.name() == "java"), None)
    except psutil.Error:
        return None
