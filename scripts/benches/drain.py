"""Measures draining a topic: the app, to bronze and a silver table for each game, compared with alternatives.

Each run is a separate process with its own lake. Its time is from the start of the process to the commit of the last
batch, by the mark in Spark's checkpoint; against rivals with gold, to the last commit of gold, which all make after the
last batch. Its CPU time is that of the process and its descendants (driver, JVM and workers) from start to end, by the
kernel's accounting; the app's gold is included, the broker is not. Before, each side drains a small topic, to write
class archives and to fill the page cache. The sides take turns, so that other work on the machine affects them equally;
ratios are taken round by round.

The reasons: docs/decisions/measurements.md.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scripts.benches import result, topics, usage
from scripts.benches.bases import App
from scripts.benches.lakes import count_rows, count_silver, gold_made, stored_bytes
from scripts.benches.options import Options
from scripts.benches.progress import Progress
from scripts.benches.result import Figure, Result
from scripts.benches.rivals import given
from scripts.benches.servers import app_settings, open_servers, spawn
from scripts.benches.shape import Shape
from scripts.benches.sides import APP, BASE, Side, promised
from scripts.benches.topics import Contents
from scripts.local import results
from scripts.local.artifacts import ROOT
from scripts.local.errors import LocalError
from scripts.local.options import TOPIC
from scripts.local.server import last_line
from spark_app.settings.models import Batch

WRONG = 65
LOOK_S = 0.05
WARM_RECORDS = 2000


@dataclass(frozen=True)
class Run:
    """One run of one side. Rates are records per second; the warm one leaves the first batch out.

    Attributes:
        started: start of the process, in seconds since 1970.
        cpu_seconds: of the process and its descendants, from start to end.
        driver_seconds: the part of the process itself, without JVM and workers.
        bronze, silver: rows; the raw copies have no silver.
        stored: bytes of the files of bronze and of silver.
        gold_seconds: from the last batch to the end of gold; None without gold.
    """

    side: Side
    batch_records: int
    records: int
    progress: Progress
    started: float
    cpu_seconds: float
    driver_seconds: float
    bronze: int
    silver: int
    stored: tuple[int, int]
    gold_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """From the start of the process to the commit of the last batch."""
        return self.progress.ended - self.started

    @property
    def whole_seconds(self) -> float:
        """As `seconds`, including gold."""
        return self.seconds + (self.gold_seconds or 0)

    @property
    def rate(self) -> int:
        return round(self.records / self.seconds)

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per record."""
        return self.cpu_seconds / self.records * 1e6

    @property
    def warm_rate(self) -> int | None:
        times = self.progress
        seconds = times.seconds - times.first_seconds
        return round((self.records - times.first_records) / seconds) if seconds and times.first_records else None

    def found(self) -> dict[str, Any]:
        """All numbers, for the table and the JSON line."""
        times, (bronze, silver) = self.progress, (size / self.records for size in self.stored)
        sizes = {"side": str(self.side), "batch_records": self.batch_records}
        seconds = {"seconds": self.seconds, "start_seconds": times.began - self.started}
        seconds |= {"first_seconds": times.first_seconds, "cpu_seconds": self.cpu_seconds, "cpu_us": self.cpu_us}
        rates = {"rate": self.rate, "warm_rate": self.warm_rate, "gold_seconds": self.gold_seconds}
        rows = {"bronze": self.bronze, "silver": self.silver, "batches": len(times.done)}
        return sizes | seconds | rates | {"bronze_bytes": bronze, "silver_bytes": silver} | rows


HEADERS = {
    "side": "side",
    "batch_records": "batch",
    "seconds": "seconds",
    "start_seconds": "of it start",
    "first_seconds": "first batch",
    "cpu_seconds": "CPU s",
    "cpu_us": "us/record",
    "rate": "records/s",
    "gold_seconds": "gold s",
    "bronze_bytes": "bronze B",
    "silver_bytes": "silver B",
}


@dataclass(frozen=True)
class Topic:
    """A filled topic."""

    name: str
    brokers: str
    registry: str
    shape: Shape
    contents: Contents


def run(options: Options) -> Result:
    """Fill a topic, drain it in turns, and print."""
    shape = replace(options.shape, records=options.records, partitions=options.partitions)
    sides = (Side(APP), *options.against)
    with open_servers() as (folder, kafka, registry):
        apps = {side: _app(side, folder) for side in sides if side.is_app}

        def fill(name: str, filled: Shape) -> Topic:
            contents = topics.fill(kafka.bootstrap, registry.url, name, filled)
            return Topic(name, kafka.bootstrap, registry.url, filled, contents)

        small = fill("warmth", replace(shape, records=min(WARM_RECORDS, shape.records)))
        result.log_progress(f"filling the topic with {shape.words()} ...")
        topic = fill(TOPIC, shape)
        sizes = options.batch_records or (Batch().max_records,)
        for side in sides:
            drain(folder / "lake", small, side, sizes[0], apps.get(side))
        turns = [(size, side) for _ in range(options.rounds) for size in sizes for side in sides]
        runs = [drain(folder / "lake", topic, side, size, apps.get(side)) for size, side in turns]
        with usage.meter() as meter:
            source = meter.source
    result.show(list(HEADERS.values()), [[run.found()[key] for key in HEADERS] for run in runs])
    value_bytes = topic.contents.value_bytes / shape.records
    print(f"{shape.words()}, every record another, {value_bytes:.1f} bytes a value; medians of {options.rounds} rounds")
    figures = [Figure(f"bytes of a record's value, {shape.message} events", value_bytes)]
    for size in sizes:
        figures += _figures([run for run in runs if run.batch_records == size], options.against, shape)
    details = {"topic": shape.found(), "bad": topic.contents.bad, "value_bytes": value_bytes, "cpu_by": source}
    return Result(figures, details | {"runs": [run.found() for run in runs]})


def _app(side: Side, folder: Path) -> App:
    return App.at(side.variant, folder / f"{BASE}-{side.variant}") if side.variant else App(ROOT)


def drain(
    lake: Path,
    topic: Topic,
    side: Side,
    batch_records: int,
    app: App | None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Run:
    """One run of one side on a temporary lake; `more` are further settings."""
    settings = app.settings(lake, topic.brokers, topic.registry) if app else _rival_settings(lake, topic, side)
    settings |= {"PROTOLAKE_KAFKA__TOPIC": topic.name, "PROTOLAKE_BATCH__RECORDS": str(batch_records)}
    settings |= {"PROTOLAKE_TABLES__CAP": str(topic.shape.games), **more}
    before = given.copied(lake) if "rows" in side.name else None
    progress = Progress(lake / "_protolake" / "checkpoint", before)
    started = time.time()
    cpu_seconds, driver_seconds = _call(_command(side), settings, progress, app.root if app else ROOT)
    placed = _verify(lake, side, topic)
    made = gold_made(lake)
    gold_seconds = None if made is None else max(0.0, made - progress.ended)
    stored = stored_bytes(lake, "bronze"), stored_bytes(lake, "silver_")
    records = topic.shape.records
    used = cpu_seconds, driver_seconds
    done = Run(side, batch_records, records, progress, started, *used, *placed, stored, gold_seconds)
    shutil.rmtree(lake)
    summary = f"{side}: {done.seconds:.1f} s, {done.cpu_us:.2f} us of CPU a record, {records:,} records"
    result.log_progress(f"{summary} in batches of {batch_records:,}, load {results.load()[0]}")
    return done


def _rival_settings(lake: Path, topic: Topic, side: Side) -> dict[str, str]:
    return app_settings(lake, topic.brokers, topic.registry) | given.variables(topic.shape, side.flags)


def _command(side: Side) -> list[str]:
    app = ["-m", "spark_app", "run", "--available-now"]
    return app if side.is_app else ["-m", f"scripts.benches.rivals.{side.name}"]


def _call(arguments: list[str], settings: dict[str, str], progress: Progress, root: Path) -> tuple[float, float]:
    """Run a process to its end; returns the CPU seconds of it and its descendants, and its own. If it fails, its last
    output is the error."""
    own = 0.0
    with tempfile.NamedTemporaryFile("w") as log, usage.meter() as meter:
        process = spawn(arguments, settings, log, log, root, meter)
        try:
            while process.poll() is None:
                progress.look()
                own = usage.own_cpu_seconds(meter, process.pid) or own
                time.sleep(LOOK_S)
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            line = last_line(Path(log.name))
            raise LocalError(f"{' '.join(arguments)} exited with {process.returncode}: {line}", process.returncode)
        progress.look()
        return meter.cpu_seconds(), own


def _verify(lake: Path, side: Side, topic: Topic) -> tuple[int, int]:
    """Rows in bronze and silver; raises unless both have every record."""
    rows = count_rows(lake)
    bronze, silver = rows["bronze_events" if side.is_app else "bronze"], count_silver(rows)
    records = topic.shape.records
    if bronze != records or (side.rival.decodes and silver != records - topic.contents.bad):
        raise LocalError(
            f"{side} ended with {bronze:,} in bronze and {silver:,} in silver of {records:,} records", WRONG
        )
    return bronze, silver


def _figures(runs: list[Run], against: Sequence[Side], shape: Shape) -> Iterator[Figure]:
    """Figures of runs with batches of one size."""
    app = [run for run in runs if run.side.name == APP]
    size = f"{app[0].batch_records:,} a batch"
    yield Figure.of(f"records/s, app, {size}", (run.rate for run in app))
    yield Figure.of(f"us of CPU a record, app, {size}", (run.cpu_us for run in app))
    for rival in against:
        other = [run for run in runs if run.side == rival]
        what = f"app / {rival}, {size}"
        wall, cpu, less = promised(rival, shape)
        to_gold = rival.rival.to_gold
        yield Figure.of(f"us of CPU a record, {rival}, {size}", (run.cpu_us for run in other))
        yield Figure.of(f"records/s, {what}", _ratios(other, app, lambda r: r.seconds), None if to_gold else wall)
        if to_gold:
            yield Figure.of(f"records/s to gold, {what}", _ratios(other, app, lambda r: r.whole_seconds), wall)
        if rival.is_app:
            yield Figure.of(f"CPU per record, {what}", _ratios(app, other, lambda r: r.cpu_us), less)
        else:
            yield Figure.of(f"records per CPU second, {what}", _ratios(other, app, lambda r: r.cpu_us), cpu)
        batches = _ratios(other, app, lambda r: r.progress.seconds)
        yield Figure.of(f"records/s without the start, {what}", batches)
        if all(run.warm_rate for run in (*app, *other)):
            rates = _ratios(app, other, lambda r: float(r.warm_rate or 0))
            yield Figure.of(f"records/s after the first batch, {what}", rates)


def _ratios(some: list[Run], others: list[Run], what: Callable[[Run], float]) -> list[float]:
    """The ratio of each round."""
    return [what(one) / what(other) for one, other in zip(some, others, strict=True)]
