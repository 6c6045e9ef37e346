"""Measures the age of records in silver at a steady rate; gold and compaction are on.

The first minute is a warm-up and does not count. Memory is that of all processes of the app; CPU time is given
separately for the app and the producer, and does not include broker and registry.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from scripts.benches import result, topics, usage
from scripts.benches.ages import Ages
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.servers import app_settings, open_servers, spawn, stop
from scripts.benches.shape import Shape
from scripts.benches.targets import AGE_P50, AGE_P99, CORES, GROWTH, MEMORY, MEMORY_TABLES, STEADY_GAMES
from scripts.benches.usage import Meter
from scripts.local.errors import USAGE, LocalError
from scripts.local.options import TOPIC
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake

WARMTH_S = 60.0
WARM_RECORDS = 20_000  # before the measurement begins
LOOK_S = 0.5
SAMPLE_S = 5.0
SHORTEST_S = 240  # so that each tenth has samples on a busy machine, too
PARTS = 10
PATIENCE_S = 120.0
WRONG = 65


@dataclass
class Watch:
    """The samples of a run. A sample: seconds since the start; MiB in total, of the driver and of the JVM; files of the
    largest table; batch seconds."""

    lake: Path
    ages: Ages
    samples: list[tuple[float, int, int, int, int, float]] = field(default_factory=list)

    def run(self, app: int, seconds: float) -> None:
        """Read ages and take samples for so many seconds."""
        began = due = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            self.ages.look(now - began)
            if now >= due:
                due += SAMPLE_S
                batch = (read_json(Lake(self.lake).storage, Lake.status) or {}).get("batch") or {}
                self.samples.append((now - began, *memory_mib(app), most_files(self.lake), batch.get("seconds", 0.0)))
            time.sleep(LOOK_S)

    def parts(self, seconds: float) -> list[list[Any]]:
        """A row for each tenth of the measured time."""
        step = (seconds - WARMTH_S) / PARTS
        return [self._part(WARMTH_S + number * step, WARMTH_S + (number + 1) * step) for number in range(PARTS)]

    def _part(self, start: float, end: float) -> list[Any]:
        samples = [sample[1:] for sample in self.samples if start <= sample[0] < end]
        highest = [max(column) for column in zip(*samples, strict=True)]
        return [round(end / 60, 1), *percentiles(self.ages.between(start, end)), *highest]


def run(options: Options) -> Result:
    """Produce, sample, print."""
    watch, cpu = measure(options)
    return _report(watch, cpu, replace(options.shape, records=WARM_RECORDS), options)


def measure(
    options: Options,
    beside: Callable[[Path], AbstractContextManager[object]] = lambda lake: nullcontext(),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Watch, dict[str, float]]:
    """The samples of one run of the app, and the cores that app and producer used. `beside` gets the lake, and is open
    while samples are taken; `settings` are further ones of the app."""
    if options.seconds < SHORTEST_S:
        raise LocalError(f"--seconds {options.seconds}: this is too short to measure, give {SHORTEST_S} or more", USAGE)
    shape = replace(options.shape, records=WARM_RECORDS)
    with open_servers() as (folder, kafka, registry), usage.meter() as own, usage.meter() as other:
        topics.fill(kafka.bootstrap, registry.url, TOPIC, shape)
        lake = folder / "lake"
        given = app_settings(lake, kafka.bootstrap, registry.url) | dict(settings)
        app = spawn(["-m", "spark_app", "run"], given, meter=own)
        try:
            _await(lake, shape.records)
            address = [kafka.bootstrap, registry.url, TOPIC]
            sender = ["-m", "scripts.benches.steady", *address, json.dumps(shape.found()), str(options.rate)]
            with beside(lake):
                producer = spawn(sender, {}, subprocess.PIPE, meter=other)
                watch, cpu = _watch(lake, {"app": (own, app), "producer": (other, producer)}, options.seconds)
            _finish(producer, lake, watch.ages)
        finally:
            stop(app)
    return watch, cpu


def percentiles(ages: np.ndarray) -> list[float]:
    """p50, p95, p99 and the oldest, in seconds."""
    return [float(value) for value in np.percentile(ages, [50, 95, 99, 100])]


def memory_mib(app: int) -> tuple[int, int, int]:
    """Resident memory in total, of the driver and of the JVM; shared memory counts for each process."""
    driver = psutil.Process(app)
    found = [_resident(one) for one in [driver, *driver.children(recursive=True)]]
    everything = sum(memory for _, memory in found)
    jvm = sum(memory for name, memory in found if name == "java")
    return everything >> 20, found[0][1] >> 20, jvm >> 20


def most_files(lake: Path) -> int:
    """Data files of the table with the most, including those that vacuum has not removed yet."""
    return max(len(list(table.glob("*.parquet"))) for table in lake.glob("silver_*"))


def _resident(process: Any) -> tuple[str, int]:
    """Name and resident bytes; 0 for a process that has ended."""
    try:
        return str(process.name()), int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return "", 0


def _await(lake: Path, records: int) -> None:
    """Wait until the app has ingested the records that were sent before."""
    deadline = time.monotonic() + PATIENCE_S
    while (read_json(Lake(lake).storage, Lake.status) or {}).get("bronze", 0) < records:
        if time.monotonic() > deadline:
            raise LocalError(f"the app has not ingested {records:,} records in {PATIENCE_S:.0f} s", WRONG)
        time.sleep(LOOK_S)


def _watch(
    lake: Path, processes: dict[str, tuple[Meter, subprocess.Popen[str]]], seconds: float
) -> tuple[Watch, dict[str, float]]:
    """The samples, and the cores that app and producer used."""
    ages = Ages(lake)
    ages.look(0.0)
    ages.seconds.clear()  # of the warm-up
    watch, used = Watch(lake, ages), {who: meter.so_far(one.pid) for who, (meter, one) in processes.items()}
    meter, app = processes["app"]
    watch.run(meter.pid(app.pid), seconds)
    cores = {who: (meter.so_far(one.pid) - used[who]) / seconds for who, (meter, one) in processes.items()}
    return watch, cores


def _finish(producer: subprocess.Popen[str], lake: Path, ages: Ages) -> None:
    """Check that every acknowledged record was seen in silver."""
    producer.terminate()
    output, _ = producer.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while ages.rows() < int(output) and time.monotonic() < deadline:
        ages.look(float("inf"))
        time.sleep(LOOK_S)
    if ages.rows() != int(output):
        raise LocalError(f"{int(output):,} records were acknowledged, but {ages.rows():,} are in silver", WRONG)


def _report(watch: Watch, cores: dict[str, float], shape: Shape, options: Options) -> Result:
    parts = watch.parts(options.seconds)
    headers = ["until min", "p50 s", "p95 s", "p99 s", "oldest s", "MiB", "driver", "JVM", "files", "batch s"]
    result.show(headers, parts)
    print(f"{options.rate:,} records/s for {options.seconds:,} s, {shape.words()}")
    whole = percentiles(watch.ages.between(WARMTH_S, options.seconds))
    memory = [part[5] for part in parts]
    promised = shape.games <= STEADY_GAMES
    figures = [
        Figure(AGE_P50.what, whole[0], AGE_P50 if promised else None),
        Figure(AGE_P99.what, whole[2], AGE_P99 if promised else None),
        Figure(GROWTH.what, memory[-1] / memory[4], GROWTH if promised else None),
        Figure("MiB of driver, JVM and workers", max(memory), MEMORY if shape.games >= MEMORY_TABLES else None),
        Figure(CORES.what, cores["app"], CORES if promised else None),
        Figure("cores used by the producer", cores["producer"]),
    ]
    found = {"rate": options.rate, "seconds": options.seconds, "topic": shape.found(), "percentiles": whole}
    return Result(figures, found | {"cores": cores, "parts": parts, "samples": watch.samples})
