"""Measures the CPU time of a trigger with few records or none, compared with the app at an earlier commit.

Each run is a process with its own lake and topic: it ingests a few records, settles, and then its topic gets records at
a steady rate. CPU time is that of driver, JVM, workers and of children that live for milliseconds, by the kernel's
accounting; broker and producer are not included. The sides take turns.
"""

from __future__ import annotations

import contextlib
import json
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
from scripts.benches.sides import APP, Side, trigger_target
from scripts.benches.usage import Meter
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
    """One run of one side, in milliseconds of CPU per trigger.

    Attributes:
        workers_ms: of the Python processes that live at the end.
        rest_ms: of processes that have ended.
    """

    side: Side
    trigger_ms: float
    driver_ms: float
    jvm_ms: float
    workers_ms: float

    @property
    def rest_ms(self) -> float:
        return self.trigger_ms - self.driver_ms - self.jvm_ms - self.workers_ms

    def found(self) -> dict[str, Any]:
        parts = {"trigger_ms": self.trigger_ms, "driver_ms": self.driver_ms, "jvm_ms": self.jvm_ms}
        return {"side": str(self.side)} | parts | {"workers_ms": self.workers_ms, "rest_ms": self.rest_ms}


def run(options: Options) -> Result:
    """Measure and print."""
    sides = (Side(APP), *options.against)
    with open_servers() as (folder, kafka, registry):
        apps = {side: App.of(side, folder) for side in sides}
        turns = [side for _ in range(options.rounds) for side in sides]
        runs = [
            _measure(folder / "lake", kafka, registry, side, apps[side], options, f"{TOPIC}_{number}")
            for number, side in enumerate(turns)
        ]
    headers = ["side", "ms of CPU a trigger", "driver", "JVM", "workers", "children"]
    result.show(headers, [[*one.found().values()] for one in runs])
    details = {"seconds": options.seconds, "rate": options.rate, "runs": [one.found() for one in runs]}
    return Result(list(_figures(runs, options)), details)


def _measure(lake: Path, kafka: Kafka, registry: Registry, side: Side, app: App, options: Options, topic: str) -> Run:
    topics.fill(kafka.bootstrap, registry.url, topic, Shape(WARM_RECORDS))
    settings = app.settings(lake, kafka.bootstrap, registry.url) | {"PROTOLAKE_KAFKA__TOPIC": topic}
    log = lake.with_suffix(".log")
    with usage.meter() as meter, log.open("w") as output:
        process = spawn(["-m", "spark_app", "run"], settings, output, output, app.root, meter)
        try:
            _settle(process, lake, log)
            with _records(kafka, registry, options, topic):
                made = _watch(meter, process, side, options)
            if process.poll() is not None:
                raise LocalError(f"{side} has ended: {last_line(log)}", process.returncode or WRONG)
        finally:
            stop(process)
    shutil.rmtree(lake)
    result.log_progress(f"{side}: {made.trigger_ms:.1f} ms of CPU a trigger")
    return made


@contextlib.contextmanager
def _records(kafka: Kafka, registry: Registry, options: Options, topic: str) -> Iterator[None]:
    """Records at the rate, until the end."""
    if not options.rate:
        yield
        return
    shape = json.dumps(Shape(WARM_RECORDS).found())
    sender = ["-m", "scripts.benches.steady", kafka.bootstrap, registry.url, topic, shape, str(options.rate)]
    producer = spawn(sender, {}, subprocess.DEVNULL)
    try:
        yield
    finally:
        stop(producer)


def _settle(process: subprocess.Popen[str], lake: Path, log: Path) -> None:
    """Wait until the app has ingested the records and has settled."""
    deadline = time.monotonic() + PATIENCE_S
    while not (lake / Lake.manifests / "finished").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise LocalError(f"the app finished no unit in {PATIENCE_S:.0f} s: {last_line(log)}", WRONG)
        time.sleep(LOOK_S)
    if (rows := count_rows(lake)["bronze_events"]) != WARM_RECORDS:
        raise LocalError(f"{WARM_RECORDS:,} records were sent, {rows:,} are in bronze", WRONG)


def _watch(meter: Meter, process: subprocess.Popen[str], side: Side, options: Options) -> Run:
    time.sleep(SETTLE_S)
    driver = psutil.Process(meter.pid(process.pid))
    before = [meter.so_far(process.pid), *_by_kind(driver)]
    began = time.monotonic()
    time.sleep(options.seconds)
    after = [meter.so_far(process.pid), *_by_kind(driver)]
    triggers = (time.monotonic() - began) / Batch().interval_s
    return Run(side, *((late - early) / triggers * 1000 for early, late in zip(before, after, strict=True)))


def _by_kind(driver: Any) -> tuple[float, float, float]:
    """CPU seconds of the driver, the JVM and the workers."""
    jvm = workers = 0.0
    for one in driver.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.name() == "java":
                jvm += _cpu_seconds(one)
            elif "python" in one.name():
                workers += _cpu_seconds(one)
    return _cpu_seconds(driver), jvm, workers


def _cpu_seconds(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _figures(runs: list[Run], options: Options) -> Iterator[Figure]:
    what = f"with {options.rate:,} records/s" if options.rate else "without records"
    sides = {side: [one.trigger_ms for one in runs if one.side == side] for side in (Side(APP), *options.against)}
    for side, found in sides.items():
        yield Figure.of(f"ms of CPU a trigger {what}, {side}", found)
    for side in options.against:
        ratios = [app / other for app, other in zip(sides[Side(APP)], sides[side], strict=True)]
        target = None if options.rate else trigger_target(side)
        yield Figure.of(f"CPU of a trigger {what}, app / {side}", ratios, target)
