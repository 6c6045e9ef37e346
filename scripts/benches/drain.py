"""Draining a topic: the app, to bronze and a silver table for each game, against what users would do instead.

Counted, for all alike: from the plan of the first batch to the commit of the last, by the marks that Spark leaves in
the checkpoint. So the start of JVM and session is not counted, the first batch with its cold code is; compaction is
counted, gold is not: the app and the rivals make it after the last batch. CPU time is that of driver, JVM and workers
between the same marks, without the broker. Each run is a process of its own with a lake of its own; the sides take
turns, so that other work on the machine meets them alike.
"""

import json
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from deltalake import DeltaTable

from scripts.benches import result, topics
from scripts.benches.options import Options
from scripts.benches.progress import Progress
from scripts.benches.rivals import given
from scripts.benches.servers import app_settings, spawn
from scripts.benches.shape import Shape
from scripts.local.errors import LocalError
from scripts.local.kafka import Kafka
from scripts.local.options import TOPIC
from scripts.local.registry import Registry
from spark_app.config import Batch

WRONG = 65
LOOK_S = 0.05
APP = "app"


@dataclass(frozen=True)
class Run:
    """One side, once. Rates are records per second; the warm one leaves the first batch out.

    Attributes:
        gold_seconds: of a rival's aggregate queries, after the last batch.
    """

    side: str
    batch_records: int
    records: int
    progress: Progress
    gold_seconds: float | None = None

    @property
    def rate(self) -> int:
        return round(self.records / self.progress.seconds)

    @property
    def warm_rate(self) -> int | None:
        seconds = self.progress.seconds - self.progress.first_seconds
        return round((self.records - self.progress.first_records) / seconds) if seconds else None

    def row(self) -> list[object]:
        """For the table, in the order of its headers."""
        times = self.progress
        seconds = [times.seconds, times.first_seconds, times.cpu_seconds]
        return [self.side, self.batch_records, *seconds, self.rate, self.warm_rate, self.gold_seconds]

    def found(self) -> dict[str, Any]:
        keys = ("side", "batch_records", "seconds", "first_seconds", "cpu_seconds", "rate", "warm_rate", "gold_seconds")
        return dict(zip(keys, self.row(), strict=True)) | {"batches": len(self.progress.done)}


def run(options: Options) -> None:
    """Fill a topic, drain it in turns, print, keep."""
    shape = replace(options.shape, records=options.records, partitions=options.partitions)
    sides = (APP, *options.against)
    with tempfile.TemporaryDirectory(prefix="protolake-bench-") as name:
        folder = Path(name)
        with Kafka(folder) as kafka, Registry(folder) as registry:
            result.tell(f"filling the topic with {shape.words()} ...")
            topic = Topic(
                kafka.bootstrap, registry.url, shape, topics.fill(kafka.bootstrap, registry.url, TOPIC, shape)
            )
            sizes = options.batch_records or (Batch().records,)
            turns = [(size, side) for _ in range(options.rounds) for size in sizes for side in sides]
            runs = [drain(folder / "lake", topic, side, size) for size, side in turns]
    _report(runs, sizes, shape, options)


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
    progress = Progress(lake / "_protolake" / "checkpoint")
    _call(_command(side), settings, progress)
    _verify(lake, side, topic)
    done = Run(side, batch_records, topic.shape.records, progress, given.gold_seconds(lake))
    shutil.rmtree(lake)
    result.tell(f"{side}: {progress.seconds:.1f} s in batches of {batch_records:,}, load {result.load()[0]}")
    return done


def _command(side: str) -> list[str]:
    app = ["-m", "spark_app", "run", "--available-now"]
    return app if side == APP else ["-m", f"scripts.benches.rivals.{side}"]


def _call(arguments: list[str], told: dict[str, str], progress: Progress) -> None:
    """Run a process to its end; its last words are the error when it fails."""
    with tempfile.TemporaryFile("w+") as log:
        process = spawn(arguments, told, log, log)
        try:
            while process.poll() is None:
                progress.look(process.pid)
                time.sleep(LOOK_S)
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            log.seek(0)
            said = log.read().strip().splitlines()[-1:] or ["no message"]
            raise LocalError(f"{' '.join(arguments)} ended with {process.returncode}: {said[0]}", process.returncode)


def _verify(lake: Path, side: str, topic: Topic) -> None:
    """All must end with every record, or there is nothing to compare."""
    rows = {path.parent.name: _rows(path.parent) for path in lake.glob("*/_delta_log")}
    bronze = rows["bronze_events" if side == APP else "bronze"]
    silver = sum(count for name, count in rows.items() if name.startswith("silver_"))
    records = topic.shape.records
    if bronze != records or (side != "floor" and silver != records - topic.bad):
        raise LocalError(
            f"{side} ended with {bronze:,} in bronze and {silver:,} in silver of {records:,} records", WRONG
        )


def _rows(table: Path) -> int:
    return sum(DeltaTable(str(table)).get_add_actions()["num_records"].to_pylist())


def _report(runs: list[Run], sizes: tuple[int, ...], shape: Shape, options: Options) -> None:
    headers = ["side", "batch", "seconds", "of it first batch", "CPU s", "records/s", "records/s after first", "gold s"]
    result.show(headers, [r.row() for r in runs])
    for size in sizes:
        for rival in options.against:
            app, other = ([r for r in runs if (r.side, r.batch_records) == (side, size)] for side in (APP, rival))
            ratio = _ratio(other, app, "seconds")
            print(result.judge(f"{size:,} per batch: {rival} / app", ratio, _target(rival, shape), at_most=False))
            print(
                f"  CPU time: {_ratio(other, app, 'cpu_seconds'):.2f}; after the first batch: {_warm_ratio(other, app)}"
            )
    print(f"{shape.words()}: medians of {options.rounds} rounds, load {result.load()}")
    result.keep("drain", {"topic": shape.found(), "runs": [r.found() for r in runs]})


def _target(rival: str, shape: Shape) -> float | None:
    """What the design promises against this rival; None where it promises nothing."""
    if rival == "floor":
        return {"flat": 1.3, "rich": 0.8}.get(shape.message)
    if rival == "rows":
        return 60 if shape.games >= 200 else 12
    return 4 if rival == "arrow" and shape.games >= 50 else 3 if rival == "consumer" else None


def _ratio(some: list[Run], others: list[Run], what: str) -> float:
    top, bottom = (median(getattr(r.progress, what) for r in runs) for runs in (some, others))
    return float(top / bottom)


def _warm_ratio(other: list[Run], app: list[Run]) -> str:
    """How much faster the app is once warm; a dash where a run was one batch."""
    rates = [[r.warm_rate for r in side if r.warm_rate] for side in (app, other)]
    return f"{median(rates[0]) / median(rates[1]):.2f}" if all(rates) else "-"
