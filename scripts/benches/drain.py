"""Draining a topic: the app, to bronze and 7 silver tables, against a raw copy by Spark's own Delta sink.

Counted, for both alike: from the plan of the first batch to the commit of the last, by the marks that Spark leaves in
the checkpoint. So the start of JVM and session is not counted, the first batch with its cold code is; compaction is
counted, gold, which the app makes after the last batch, is not. CPU time is that of driver, JVM and workers between
the same marks, without the broker. Each run is a process of its own with a lake of its
own; the sides take turns, so that other work on the machine meets them alike.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from deltalake import DeltaTable

from scripts.benches import floor, result
from scripts.benches.options import Options
from scripts.benches.progress import Progress
from scripts.benches.servers import COMPATIBILITY, app_settings
from scripts.local import environment
from scripts.local.artifacts import ROOT
from scripts.local.errors import LocalError
from scripts.local.kafka import Kafka
from scripts.local.options import TOPIC
from scripts.local.registry import Registry
from spark_app.config import Batch

TARGET = 1.3
WRONG = 65
LOOK_S = 0.05
COMMANDS = {
    "app": ["-m", "spark_app", "run", "--available-now"],
    "floor": ["-m", "scripts.benches.floor"],
}


@dataclass(frozen=True)
class Run:
    """One side, once. Rates are records per second; the warm one leaves the first batch out."""

    side: str
    batch_records: int
    records: int
    progress: Progress

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
        return [self.side, self.batch_records, *seconds, self.rate, self.warm_rate]

    def found(self) -> dict[str, Any]:
        keys = ("side", "batch_records", "seconds", "first_seconds", "cpu_seconds", "rate", "warm_rate")
        return dict(zip(keys, self.row(), strict=True)) | {"batches": len(self.progress.done)}


def run(options: Options) -> None:
    """Fill a topic, drain it in turns, print, keep."""
    with tempfile.TemporaryDirectory(prefix="protolake-bench-") as name:
        folder = Path(name)
        with Kafka(folder) as kafka, Registry(folder) as registry:
            _fill(kafka, registry, options)
            sizes = options.batch_records or (Batch().records,)
            turns = [(size, side) for _ in range(options.rounds) for size in sizes for side in COMMANDS]
            runs = [_drain(folder, kafka, registry, side, size, options.records) for size, side in turns]
    _report(runs, sizes, options)


def _fill(kafka: Kafka, registry: Registry, options: Options) -> None:
    result.tell(f"filling the topic with {options.records:,} records ...")
    told = {
        "PRODUCER_BROKERS": kafka.bootstrap,
        "PRODUCER_REGISTRY": registry.url,
        "PRODUCER_TOPIC": TOPIC,
        "PRODUCER_COMPATIBILITY": COMPATIBILITY,
        "PRODUCER_PARTITIONS": str(options.partitions),
        "PRODUCER_RETENTION_BYTES": "-1",
        "PRODUCER_RATE": "0",
        "PRODUCER_RECORDS": str(options.records),
    }
    for command in ("setup", "run"):
        _call(["-m", "producer", command], told)


def _drain(folder: Path, kafka: Kafka, registry: Registry, side: str, batch_records: int, records: int) -> Run:
    lake = folder / "lake"
    settings = app_settings(lake, kafka.bootstrap, registry.url) | {"PROTOLAKE_BATCH__RECORDS": str(batch_records)}
    progress = Progress(lake / "_protolake" / "checkpoint")
    _call(COMMANDS[side], settings, progress)
    _verify(lake, side, records)
    shutil.rmtree(lake)
    done = Run(side, batch_records, records, progress)
    result.tell(f"{side}: {progress.seconds:.1f} s in batches of {batch_records:,}, load {result.load()[0]}")
    return done


def _call(arguments: list[str], told: dict[str, str], progress: Progress | None = None) -> None:
    """Run a process to its end; its last words are the error when it fails."""
    surroundings = os.environ | environment.shared(os.environ) | told
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([sys.executable, *arguments], env=surroundings, cwd=ROOT, stdout=log, stderr=log)
        try:
            while process.poll() is None:
                if progress:
                    progress.look(process.pid)
                time.sleep(LOOK_S)
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            log.seek(0)
            said = log.read().strip().splitlines()[-1:] or ["no message"]
            raise LocalError(f"{' '.join(arguments)} ended with {process.returncode}: {said[0]}", process.returncode)


def _verify(lake: Path, side: str, records: int) -> None:
    """Both must end with every record, or there is nothing to compare."""
    bronze = _rows(lake / ("bronze_events" if side == "app" else floor.TABLE))
    silver = sum(_rows(path) for path in lake.glob("silver_*"))
    if bronze != records or (side == "app" and silver != records):
        raise LocalError(f"{side} ended with {bronze:,} and {silver:,} in silver of {records:,} records", WRONG)


def _rows(table: Path) -> int:
    return sum(DeltaTable(str(table)).get_add_actions()["num_records"].to_pylist())


def _report(runs: list[Run], sizes: tuple[int, ...], options: Options) -> None:
    headers = ["side", "batch", "seconds", "of it first batch", "CPU s", "records/s", "records/s after first"]
    result.show(headers, [r.row() for r in runs])
    for size in sizes:
        app, copy = ([r for r in runs if (r.side, r.batch_records) == (side, size)] for side in COMMANDS)
        print(result.judge(f"{size:,} per batch: floor / app", _ratio(copy, app, "seconds"), TARGET, at_most=False))
        print(f"  CPU time: {_ratio(copy, app, 'cpu_seconds'):.2f}; after the first batch: {_warm_ratio(copy, app)}")
    print(f"medians of {options.rounds} rounds of {options.records:,} records, load {result.load()}")
    result.keep("drain", {"records": options.records, "runs": [r.found() for r in runs]})


def _ratio(some: list[Run], others: list[Run], what: str) -> float:
    top, bottom = (median(getattr(r.progress, what) for r in runs) for runs in (some, others))
    return float(top / bottom)


def _warm_ratio(copy: list[Run], app: list[Run]) -> str:
    """How much faster the app is once warm; a dash where a run was one batch."""
    rates = [[r.warm_rate for r in side if r.warm_rate] for side in (app, copy)]
    return f"{median(rates[0]) / median(rates[1]):.2f}" if all(rates) else "-"
