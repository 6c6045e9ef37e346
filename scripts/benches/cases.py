"""A lake and its records, into which batches are measured: the whole work of the app for each, from job to commits."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from scripts.benches.filed import Filed
from scripts.benches.stand import Stand
from scripts.benches.usage import cpu_seconds
from spark_app.lake.delta.manifest import Change, Manifest, counts_of

WARMING = 2  # the first batch admits the tables, so its job runs twice
STEPS = ("job", "manifest", "commits")


@dataclass
class Case:
    """One lake and its records. `seconds` has one entry per measured batch: job, manifest, commits.

    Attributes:
        apart: a process below this one, whose CPU time is not the app's.
        last: the last unit.
        cpu: CPU seconds of each measured batch: driver, JVM and workers.
        driver_cpu: the driver's part of them.
        apart_cpu: CPU seconds of `apart` meanwhile.
    """

    tables: int
    count: int
    records: Filed
    stand: Stand
    apart: int | None = None
    rows: int = 0  # in silver after all batches
    last: Manifest = field(init=False)
    seconds: list[tuple[float, float, float]] = field(default_factory=list)
    compaction: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    driver_cpu: list[float] = field(default_factory=list)
    apart_cpu: list[float] = field(default_factory=list)

    def measure(self, is_kept: bool) -> None:
        """A batch and the maintenance after it; `is_kept` is False for a batch that only warms up."""
        before = self._used()
        seconds = self.batch()
        used = [after - at_first for after, at_first in zip(self._used(), before, strict=True)]
        compaction = self._compact()
        if is_kept:
            self.seconds.append(seconds)
            self.compaction.append(compaction)
            for kept, value in zip((self.cpu, self.driver_cpu, self.apart_cpu), used, strict=True):
                kept.append(value)

    def _used(self) -> tuple[float, float, float]:
        """CPU seconds so far: the app, its driver, and what is apart."""
        apart = cpu_seconds(self.apart) if self.apart else 0.0
        return cpu_seconds(os.getpid()) - apart, time.process_time(), apart

    def batch(self) -> tuple[float, float, float]:
        """Commit and apply one batch."""
        opened = self.stand.opened
        began = time.perf_counter()
        report = self.stand.run(self.records, self.count)
        passed = time.perf_counter()
        changes = {table: Change(files) for table, files in report.files.items()}
        manifest = Manifest(opened.units.manifests.last + 1, "ingest", self.stand.source(), changes, counts_of(report))
        opened.units.manifests.commit(manifest)
        stored = time.perf_counter()
        opened.units.committer.apply(manifest)
        committed = time.perf_counter()
        self.rows += sum(report.silver.values())
        self.last = manifest
        return passed - began, stored - passed, committed - stored

    def _compact(self) -> float:
        """Run maintenance as the app does after a batch; returns the seconds."""
        maintainer, began = self.stand.opened.units.maintainer, time.perf_counter()
        for table, change in self.last.tables.items():
            maintainer.added(table, len(change.adds))
        maintainer.step()
        return time.perf_counter() - began

    def files(self) -> int:
        """Number of files that the last unit added."""
        return sum(len(change.adds) for change in self.last.tables.values())

    def most_files(self) -> int:
        """The largest number of files of a table now."""
        tables = self.stand.opened.units.committer.tables
        return max(len(tables.files(name)) for name in self.last.tables)

    def totals(self) -> list[float]:
        """Seconds of each measured batch."""
        return [sum(batch) for batch in self.seconds]

    def total(self) -> float:
        return median(self.totals())

    def times(self) -> list[float]:
        """Medians: the whole batch, then each of its steps."""
        return [self.total(), *(median(batch[step] for batch in self.seconds) for step in range(len(STEPS)))]

    def load_of(self, other: Case) -> float:
        """CPU time of a batch as a multiple of the other's, because other work on the machine hardly changes it."""
        return median(self.cpu) / median(other.cpu)

    def row(self, first: Case) -> list[object]:
        """A row of the table, in the order of its headers."""
        ratio, cpu = self.total() / first.total(), median(self.cpu)
        kept = fmean(self.compaction), self.most_files()
        return [self.tables, self.files(), *self.times(), ratio, cpu, self.load_of(first), *kept]

    def found(self) -> dict[str, Any]:
        sizes = {"tables": self.tables, "files": self.files(), "rows": self.rows}
        times = {"median": self.total(), "seconds": self.seconds, "cpu": self.cpu, "compaction": self.compaction}
        parts = {"driver_cpu": self.driver_cpu} | ({"store_cpu": self.apart_cpu} if self.apart else {})
        return sizes | times | parts
