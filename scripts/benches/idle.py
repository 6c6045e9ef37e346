"""Measures the CPU time of the app while its topic gets no records, compared with the app at an earlier commit.

Each run is a process with its own lake: it ingests a few records, settles, and then only its triggers run. CPU time is
that of driver, JVM and workers by the kernel's accounting; the broker is not included. The sides take turns.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from scripts.benches import result, topics, usage
from scripts.benches.bases import App
from scripts.benches.lakes import count_rows
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.servers import open_servers, spawn, stop
from scripts.benches.shape import Shape
from scripts.benches.sides import APP, BASE, Side, idle_target
from scripts.benches.usage import Meter
from scripts.local.artifacts import ROOT
from scripts.local.errors import LocalError
from scripts.local.kafka import Kafka
from scripts.local.options import TOPIC
from scripts.local.registry import Registry
from scripts.local.server import last_line
from spark_app.lake.lake import Lake
from spark_app.settings.models import Batch

WARM_RECORDS = 2000
SETTLE_S = 30.0  # after the records, for gold; the JVM goes on compiling for minutes
PATIENCE_S = 120.0
LOOK_S = 0.5
WRONG = 65


@dataclass(frozen=True)
class Run:
    """One run of one side. CPU times are milliseconds per trigger; those of processes are of the ones that lived during
    the whole measurement."""

    side: Side
    trigger_ms: float
    driver_ms: float
    jvm_ms: float

    def found(self) -> dict[str, Any]:
        parts = {"trigger_ms": self.trigger_ms, "driver_ms": self.driver_ms, "jvm_ms": self.jvm_ms}
        return {"side": str(self.side)} | parts


def run(options: Options) -> Result:
    """Measure and print."""
    sides = (Side(APP), *options.against)
    with open_servers() as (folder, kafka, registry):
        topics.fill(kafka.bootstrap, registry.url, TOPIC, Shape(WARM_RECORDS))
        apps = {side: _app(side, folder) for side in sides}
        turns = [side for _ in range(options.rounds) for side in sides]
        runs = [_measure(folder / "lake", kafka, registry, side, apps[side], options.seconds) for side in turns]
    result.show(["side", "ms of CPU a trigger", "driver", "JVM"], [[*one.found().values()] for one in runs])
    details = {"seconds": options.seconds, "runs": [one.found() for one in runs]}
    return Result(list(_figures(runs, options.against)), details)


def _app(side: Side, folder: Path) -> App:
    # Without the colon of the side: the folder is part of a class path.
    return App.at(side.variant, folder / f"{BASE}-{side.variant}") if side.variant else App(ROOT)


def _measure(lake: Path, kafka: Kafka, registry: Registry, side: Side, app: App, seconds: int) -> Run:
    settings = app.settings(lake, kafka.bootstrap, registry.url) | {"PROTOLAKE_KAFKA__TOPIC": TOPIC}
    log = lake.with_suffix(".log")
    with usage.meter() as meter, log.open("w") as output:
        process = spawn(["-m", "spark_app", "run"], settings, output, output, app.root, meter)
        try:
            _settle(process, lake, log)
            made = _idle(meter, process, side, seconds)
            if process.poll() is not None:
                raise LocalError(f"{side} has ended: {last_line(log)}", process.returncode or WRONG)
        finally:
            stop(process)
    shutil.rmtree(lake)
    result.log_progress(f"{side}: {made.trigger_ms:.1f} ms of CPU a trigger")
    return made


def _settle(process: subprocess.Popen[str], lake: Path, log: Path) -> None:
    """Wait until the app has ingested the records and has settled."""
    deadline = time.monotonic() + PATIENCE_S
    while not (lake / Lake.manifests / "finished").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise LocalError(f"the app finished no unit in {PATIENCE_S:.0f} s: {last_line(log)}", WRONG)
        time.sleep(LOOK_S)
    time.sleep(SETTLE_S)
    if (rows := count_rows(lake)["bronze_events"]) != WARM_RECORDS:
        raise LocalError(f"{WARM_RECORDS:,} records were sent, {rows:,} are in bronze", WRONG)


def _idle(meter: Meter, process: subprocess.Popen[str], side: Side, seconds: int) -> Run:
    driver = psutil.Process(meter.pid(process.pid))
    jvm = next(one for one in driver.children(recursive=True) if one.name() == "java")
    before = [meter.so_far(process.pid), *map(_cpu_seconds, (driver, jvm))]
    began = time.monotonic()
    time.sleep(seconds)
    after = [meter.so_far(process.pid), *map(_cpu_seconds, (driver, jvm))]
    triggers = (time.monotonic() - began) / Batch().interval_s
    return Run(side, *((late - early) / triggers * 1000 for early, late in zip(before, after, strict=True)))


def _cpu_seconds(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _figures(runs: list[Run], against: tuple[Side, ...]) -> Iterator[Figure]:
    sides = {side: [one.trigger_ms for one in runs if one.side == side] for side in (Side(APP), *against)}
    for side, found in sides.items():
        yield Figure.of(f"ms of CPU a trigger without records, {side}", found)
    for side in against:
        ratios = [app / other for app, other in zip(sides[Side(APP)], sides[side], strict=True)]
        yield Figure.of(f"CPU of a trigger without records, app / {side}", ratios, idle_target(side))
