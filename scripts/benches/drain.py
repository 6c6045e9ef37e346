"""Draining a topic: the app, to bronze and a silver table for each game, against what users would do instead.

Counted, for all alike: from the plan of the first batch to the commit of the last, by the marks that Spark leaves in
the checkpoint; against rivals that make gold, to the last commit of gold, which all make after the last batch. So the
start of JVM and session is not counted, the first batch with its cold code and compaction are. CPU time is that of
driver, JVM and workers between the marks, without gold and the broker. Each run is a process of its own with a lake of
its own; the sides take turns, so that other work on the machine meets them alike.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from scripts.benches import result, topics
from scripts.benches.lakes import count_rows, count_silver, gold_made
from scripts.benches.options import RIVALS, Options
from scripts.benches.progress import Progress
from scripts.benches.result import Figure, Finding
from scripts.benches.rivals import given
from scripts.benches.servers import app_settings, open_servers, spawn
from scripts.benches.shape import Shape
from scripts.benches.targets import Target
from scripts.local import results
from scripts.local.errors import LocalError
from scripts.local.options import TOPIC
from scripts.local.server import last_line
from spark_app.settings import Batch

WRONG = 65
LOOK_S = 0.05
APP = "app"


@dataclass(frozen=True)
class Run:
    """One side, once. Rates are records per second; the warm one leaves the first batch out.

    Attributes:
        bronze, silver: rows; the floor has no silver.
        gold_seconds: from the last batch to the end of gold; None where nobody makes it.
    """

    side: str
    batch_records: int
    records: int
    progress: Progress
    bronze: int
    silver: int
    gold_seconds: float | None = None

    @property
    def rate(self) -> int:
        return round(self.records / self.progress.seconds)

    @property
    def warm_rate(self) -> int | None:
        times = self.progress
        seconds = times.seconds - times.first_seconds
        return round((self.records - times.first_records) / seconds) if seconds and times.first_records else None

    @property
    def whole_seconds(self) -> float:
        """Gold included."""
        return self.progress.seconds + (self.gold_seconds or 0)

    def row(self) -> list[object]:
        """For the table, in the order of its headers."""
        times = self.progress
        seconds = [times.seconds, times.first_seconds, times.cpu_seconds]
        return [self.side, self.batch_records, *seconds, self.rate, self.warm_rate, self.gold_seconds]

    def found(self) -> dict[str, Any]:
        keys = ("side", "batch_records", "seconds", "first_seconds", "cpu_seconds", "rate", "warm_rate", "gold_seconds")
        placed = {"bronze": self.bronze, "silver": self.silver, "batches": len(self.progress.done)}
        return dict(zip(keys, self.row(), strict=True)) | placed


def run(options: Options) -> Finding:
    """Fill a topic, drain it in turns, print."""
    shape = replace(options.shape, records=options.records, partitions=options.partitions)
    sides = (APP, *options.against)
    with open_servers() as (folder, kafka, registry):
        result.tell(f"filling the topic with {shape.words()} ...")
        topic = Topic(kafka.bootstrap, registry.url, shape, topics.fill(kafka.bootstrap, registry.url, TOPIC, shape))
        sizes = options.batch_records or (Batch().records,)
        turns = [(size, side) for _ in range(options.rounds) for size in sizes for side in sides]
        runs = [drain(folder / "lake", topic, side, size) for size, side in turns]
    _show(runs)
    print(f"{shape.words()}: medians of {options.rounds} rounds")
    figures = [f for size in sizes for f in _figures([r for r in runs if r.batch_records == size], options, shape)]
    return Finding(figures, {"topic": shape.found(), "bad": topic.bad, "runs": [r.found() for r in runs]})


@dataclass(frozen=True)
class Topic:
    """A topic that is filled; `bad` of its records are no events."""

    brokers: str
    registry: str
    shape: Shape
    bad: int


def drain(lake: Path, topic: Topic, side: str, batch_records: int) -> Run:
    """One side, once, on a lake that is thrown away."""
    settings = app_settings(lake, topic.brokers, topic.registry) | {given.VARIABLE: json.dumps(topic.shape.found())}
    settings |= {"PROTOLAKE_BATCH__RECORDS": str(batch_records), "PROTOLAKE_TABLES__CAP": str(topic.shape.games)}
    progress = Progress(lake / "_protolake" / "checkpoint", given.copied(lake) if side.endswith("rows") else None)
    _call(_command(side), settings, progress)
    placed = _verify(lake, side, topic)
    made = gold_made(lake)
    gold_seconds = None if made is None else made - progress.ended
    done = Run(side, batch_records, topic.shape.records, progress, *placed, gold_seconds)
    shutil.rmtree(lake)
    result.tell(f"{side}: {progress.seconds:.1f} s in batches of {batch_records:,}, load {results.load()[0]}")
    return done


def _command(side: str) -> list[str]:
    app = ["-m", "spark_app", "run", "--available-now"]
    return app if side == APP else ["-m", f"scripts.benches.rivals.{side}"]


def _call(arguments: list[str], settings: dict[str, str], progress: Progress) -> None:
    """Run a process to its end; its last words are the error when it fails."""
    with tempfile.NamedTemporaryFile("w") as log:
        process = spawn(arguments, settings, log, log)
        try:
            while process.poll() is None:
                progress.look(process.pid)
                time.sleep(LOOK_S)
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            said = last_line(Path(log.name))
            raise LocalError(f"{' '.join(arguments)} ended with {process.returncode}: {said}", process.returncode)


def _verify(lake: Path, side: str, topic: Topic) -> tuple[int, int]:
    """Rows in bronze and silver: all must end with every record, or there is nothing to compare."""
    rows = count_rows(lake)
    bronze, silver = rows["bronze_events" if side == APP else "bronze"], count_silver(rows)
    records = topic.shape.records
    if bronze != records or (side != "floor" and silver != records - topic.bad):
        raise LocalError(
            f"{side} ended with {bronze:,} in bronze and {silver:,} in silver of {records:,} records", WRONG
        )
    return bronze, silver


def _show(runs: list[Run]) -> None:
    headers = ["side", "batch", "seconds", "of it first batch", "CPU s", "records/s", "records/s after first", "gold s"]
    result.show(headers, [run.row() for run in runs])


def _figures(runs: list[Run], options: Options, shape: Shape) -> Iterator[Figure]:
    """Of runs with batches of one size."""
    app = [run for run in runs if run.side == APP]
    size = f"{app[0].batch_records:,} a batch"
    yield Figure(f"records/s, app, {size}", median(run.rate for run in app))
    for rival in options.against:
        other = [run for run in runs if run.side == rival]
        what, target = f"app / {rival}, {size}", target_of(rival, shape)
        whole = all(run.gold_seconds is not None for run in other)
        yield Figure(f"records/s, {what}", _ratio(other, app, "seconds"), None if whole else target)
        if whole:
            ratio = median(run.whole_seconds for run in other) / median(run.whole_seconds for run in app)
            yield Figure(f"records/s to gold, {what}", ratio, target)
        yield Figure(f"records per CPU second, {what}", _ratio(other, app, "cpu_seconds"))
        if all(run.warm_rate for run in (*app, *other)):
            yield Figure(f"records/s after the first batch, {what}", _warm_rate(app) / _warm_rate(other))


def target_of(rival: str, shape: Shape) -> Target | None:
    """What the design promises against this rival; None where it promises nothing."""
    found = RIVALS[rival]
    if rival == "floor":
        return found.get(shape.message)
    return next((found[fewest] for fewest in sorted(found, reverse=True) if shape.games >= fewest), None)


def _ratio(some: list[Run], others: list[Run], what: str) -> float:
    top, bottom = (median(getattr(r.progress, what) for r in runs) for runs in (some, others))
    return float(top / bottom)


def _warm_rate(runs: list[Run]) -> float:
    return median(run.warm_rate or 0 for run in runs)
