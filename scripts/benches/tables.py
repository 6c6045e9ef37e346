"""Measures seconds per batch into few and into many silver tables: the cost must not grow with the number of tables.

Each number of tables has its own lake. A batch is the app's whole work for one: the Spark job (over records cached in
Spark, so that no source is measured), the manifest, the commits. Compaction after a batch is given separately, as a
mean of all batches, because few batches have one; gold is not measured. The sizes take turns in one run, so that other
work on the machine affects them equally.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean, median

from scripts.benches import frames, result
from scripts.benches.filed import Filed
from scripts.benches.options import Options
from scripts.benches.result import Figure, Finding
from scripts.benches.stand import Stand, Workshop, open_workshop
from scripts.benches.targets import BATCH, Target
from scripts.benches.usage import cpu_seconds
from spark_app.store.manifest import Change, Manifest, counts_of

WARMING = 2  # the first batch admits the tables, so its job runs twice
STEPS = ("job", "manifest", "commits")


@dataclass
class Case:
    """One lake and its records. `seconds` has one entry per measured batch: job, manifest, commits."""

    tables: int
    count: int
    records: Filed
    stand: Stand
    rows: int = 0  # in silver after all batches
    seconds: list[tuple[float, float, float]] = field(default_factory=list)
    compaction: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

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
        return passed - began, stored - passed, committed - stored

    def compact(self) -> float:
        """Run maintenance as the app does after a batch; returns the seconds."""
        maintainer, began = self.stand.opened.units.maintainer, time.perf_counter()
        for table, change in self.last_unit().tables.items():
            maintainer.added(table, len(change.adds))
        maintainer.step()
        return time.perf_counter() - began

    def last_unit(self) -> Manifest:
        manifests = self.stand.opened.units.manifests
        return manifests.read(manifests.last)

    def files(self) -> int:
        """Number of files that the last unit added."""
        return sum(len(change.adds) for change in self.last_unit().tables.values())

    def most_files(self) -> int:
        """The largest number of files of a table now."""
        opened = self.stand.opened
        return max(len(opened.units.committer.tables.files(name)) for name in opened.lake.tables())

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

    def found(self) -> dict[str, object]:
        sizes = {"tables": self.tables, "files": self.files(), "rows": self.rows}
        times = {"median": self.total(), "seconds": self.seconds, "cpu": self.cpu, "compaction": self.compaction}
        return sizes | {"most_files": self.most_files()} | times


def run(options: Options) -> Finding:
    """Measure and print."""
    with open_workshop() as workshop:
        cases = [_prepare(workshop, tables, options) for tables in options.tables]
        _measure(cases, options.batches)
        _show(cases)
        print(f"medians of {options.batches} batches of {options.records:,} records")
        details = {"records": options.records, "partitions": options.partitions, "cases": [c.found() for c in cases]}
        return Finding(list(_figures(cases)), details)


def _prepare(workshop: Workshop, tables: int, options: Options) -> Case:
    result.tell(f"preparing {options.records:,} records for {tables} tables ...")
    records = workshop.records(frames.play(tables), options.records, options.partitions)
    return Case(tables, options.records, records, workshop.stand(tables))


def _measure(cases: list[Case], batches: int) -> None:
    for number in range(WARMING + batches):
        for case in cases:
            used = cpu_seconds(os.getpid())
            seconds = case.batch()
            used = cpu_seconds(os.getpid()) - used
            compaction = case.compact()
            if number >= WARMING:
                case.seconds.append(seconds)
                case.compaction.append(compaction)
                case.cpu.append(used)
        result.tell(f"batch {number + 1} of {WARMING + batches}: " + ", ".join(_brief(case) for case in cases))


def _brief(case: Case) -> str:
    return f"{case.tables} tables {sum(case.seconds[-1]):.2f} s" if case.seconds else f"{case.tables} tables warming up"


def _show(cases: list[Case]) -> None:
    first = cases[0]
    result.show(
        ["tables", "files", "s/batch", *STEPS, f"ratio to {first.tables}", "CPU s", "ratio", "compacting", "files now"],
        [case.row(first) for case in cases],
    )


def _figures(cases: list[Case]) -> Iterator[Figure]:
    first = cases[0]
    yield Figure.of(f"seconds of a batch, {first.tables:,} tables", first.totals())
    for case in cases:
        yield Figure(f"seconds of compaction per batch (mean), {case.tables:,} tables", fmean(case.compaction))
        yield Figure(f"files of a table at the end, at most, {case.tables:,} tables", case.most_files())
    for case in cases[1:]:
        what = f"seconds of a batch, {case.tables:,} tables / {first.tables:,}"
        ratios = (one / of_first for one, of_first in zip(case.totals(), first.totals(), strict=True))
        yield Figure.of(what, ratios, _target(case.tables, first.tables))


def _target(tables: int, first: int) -> Target | None:
    return next((target for most, target in BATCH.items() if first == 7 and tables <= most), None)
