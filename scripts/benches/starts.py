"""Measures the time of a start and of a bump of the real app as a process, on a real broker and registry.

Each round uses an empty lake and a new topic. A start is measured from the start of the process to the end of its first
unit, with the CPU time of driver, JVM and workers until then. Then records of a new schema version are sent, the app
exits with 75 and is restarted at once: a bump is measured from the exit to the end of the next unit. Settings are made
before the measurement. One warm-up start comes first.

`--first-run`: each round is the first on a machine. There is no class archive; it is trained as ./scripts/run does,
which is measured separately, and there is no warm-up start.

`--against` compares with the app at earlier commits, in turns.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from scripts.benches import result, topics, usage
from scripts.benches.bases import App
from scripts.benches.lakes import count_rows, count_silver
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.servers import open_servers, spawn, stop
from scripts.benches.shape import Shape
from scripts.benches.sides import APP as MEASURED
from scripts.benches.sides import Side
from scripts.benches.targets import BUMP, START
from scripts.local.errors import LocalError
from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from scripts.local.server import last_line
from scripts.local.training import ARCHIVE, train
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode

LOOK_S = 0.02
PATIENCE_S = 600.0  # a limit, so that every wait ends
ROWS_S = 60.0
WRONG = 65
RUN = ["-m", "spark_app", "run"]
COMPARED = {
    "seconds from start to first unit": "start_s",
    "CPU of a start": "start_cpu_s",
    "seconds from the exit for a bump to the first unit": "gap_s",
    "CPU of a bump": "gap_cpu_s",
}


@dataclass(frozen=True)
class Time:
    """One start and one bump. `rows` is the number of silver rows at the end; `training_s` is 0 if the archive
    existed."""

    side: str
    training_s: float
    start_s: float
    start_cpu_s: float
    gap_s: float
    gap_cpu_s: float
    rows: int


def run(options: Options) -> Result:
    """Measure and print."""
    shape, sides = Shape(options.records), (Side(MEASURED), *options.against)
    with open_servers() as (folder, kafka, registry):
        apps = {side: App.of(side, folder) for side in sides}
        numbers = range(1 if options.first_run else 0, 1 + options.times)
        turns = [(number, side) for number in numbers for side in sides]
        measured = [
            (number, _measure(folder, kafka, registry, number, side, apps[side], shape, options.first_run))
            for number, side in turns
        ]
    times = [one for number, one in measured if number]
    result.show(
        ["side", "training s", "start s", "CPU s", "bump s", "CPU s", "silver rows"],
        [[*asdict(one).values()] for one in times],
    )
    figures = list(_figures([one for one in times if one.side == MEASURED]))
    figures += [figure for side in options.against for figure in _compared(times, str(side))]
    return Result(figures, {"records": options.records, "times": [asdict(one) for one in times]})


def _measure(
    folder: Path, kafka: Kafka, registry: Registry, number: int, side: Side, app: App, shape: Shape, is_first: bool
) -> Time:
    """One start on an empty lake, and one bump."""
    name = f"{number}-{side.variant or MEASURED}"
    topic, lake = f"starts-{name}", folder / f"lake-{name}"
    topics.fill(kafka.bootstrap, registry.url, topic, shape)
    settings = app.settings(lake, kafka.bootstrap, registry.url) | {"PROTOLAKE_KAFKA__TOPIC": topic}
    training = _train(settings, folder / f"{topic}.jsa") if is_first else 0.0
    path = folder / f"{topic}.log"
    with usage.meter() as first, usage.meter() as second, path.open("w") as log:
        began = time.time()
        process = spawn(RUN, settings, log, log, app.root, first)
        try:
            start = _await_unit(process, lake, 0, path) - began, first.so_far(process.pid)
            before = _finished(lake)
            topics.send(kafka.bootstrap, registry.url, topic, replace(shape, versions=2), first=shape.records)
            began = _await_bump(process, path)
            process = spawn(RUN, settings, log, log, app.root, second)
            gap = _await_unit(process, lake, before, path) - began, second.so_far(process.pid)
            rows = _await_rows(lake, 2 * shape.records)
        finally:
            stop(process)
    result.log_progress(
        f"{side}, {'warm-up' if number == 0 else number}: first unit after {start[0]:.1f} s, bump {gap[0]:.1f} s"
    )
    return Time(str(side), training, *start, *gap, rows)


def _train(settings: dict[str, str], archive: Path) -> float:
    """Train a new class archive for the app; returns the seconds."""
    settings[ARCHIVE] = str(archive)
    began = time.monotonic()
    train(settings, archive.with_suffix(".log"))
    if not archive.is_file():
        raise LocalError("the class archive was not trained, see above", WRONG)
    return time.monotonic() - began


def _await_unit(app: subprocess.Popen[str], lake: Path, after: int, log: Path) -> float:
    """Time, in seconds since 1970, at which a unit after `after` was applied, by the app's mark."""
    deadline = time.monotonic() + PATIENCE_S
    while _finished(lake) <= after:
        if app.poll() is not None or time.monotonic() > deadline:
            raise LocalError(f"the app finished no unit in {PATIENCE_S:.0f} s: {last_line(log)}", app.poll() or WRONG)
        time.sleep(LOOK_S)
    return _mark(lake).stat().st_mtime


def _await_bump(app: subprocess.Popen[str], log: Path) -> float:
    """Time at which the app exited."""
    try:
        code = app.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise LocalError(f"the app did not exit for a new schema in {PATIENCE_S:.0f} s", WRONG) from None
    moment = time.time()
    if code != ExitCode.BUMP:
        raise LocalError(f"the app left with {code}, not with {ExitCode.BUMP}: {last_line(log)}", code or WRONG)
    return moment


def _mark(lake: Path) -> Path:
    return lake / Lake.manifests / "finished"


def _finished(lake: Path) -> int:
    """The last applied unit; 0 before the first."""
    try:
        return int(_mark(lake).read_text())
    except FileNotFoundError:
        return 0


def _await_rows(lake: Path, records: int) -> int:
    """Rows in silver, once every record is there: the batch with the new version may contain only few of them."""
    deadline = time.monotonic() + ROWS_S
    while (rows := count_silver(count_rows(lake))) < records and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    if rows != records:
        raise LocalError(f"{records:,} records were sent, {rows:,} are in silver", WRONG)
    return rows


def _compared(times: list[Time], side: str) -> Iterator[Figure]:
    """The app against another side, round by round."""
    ours, others = ([one for one in times if one.side == name] for name in (MEASURED, side))
    for what, name in COMPARED.items():
        ratios = [getattr(our, name) / getattr(other, name) for our, other in zip(ours, others, strict=True)]
        yield Figure.of(f"{what}, app / {side}", ratios)


def _figures(times: list[Time]) -> Iterator[Figure]:
    starts, gaps = [one.start_s for one in times], [one.gap_s for one in times]
    if any(one.training_s for one in times):
        trained = (one.training_s for one in times)
        yield Figure.of("seconds of training the class archive, once on a machine, median", trained)
    yield Figure.of("seconds from start to first unit, median", starts)
    yield Figure(START.what, float(np.percentile(starts, 95)), START)
    yield Figure.of("CPU seconds of a start, median", (one.start_cpu_s for one in times))
    yield Figure.of("seconds from the exit for a bump to the first unit, median", gaps)
    yield Figure(BUMP.what, float(np.percentile(gaps, 95)), BUMP)
