"""Measures what a lake in a bucket costs: batches into it, beside the same batches into a lake on local disk.

Each number of tables has two lakes, which take turns in one run; the one that goes first alternates. The object store
is a real one on this machine, so its answers take no time on a network, but CPU time of the same cores; that is given
apart. The requests are counted after the timed batches, in batches whose requests go through a proxy. These make no
checkpoints: with many tables each batch has some, and which ones is no matter of the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from scripts.benches import frames, result
from scripts.benches.cases import WARMING, Case
from scripts.benches.counting import Counting
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.stand import Workshop, open_workshop
from scripts.benches.targets import REQUESTS
from scripts.local.objectstore import ObjectStore
from spark_app.model.address import StorageAddress

COUNTED = 3  # batches
LEASE_S = 3600.0  # so that it is not renewed while requests are counted
BY_THE_CLOCK = r"^(?!.*/(synced|followers/\w+)\.json$)"  # these are written by the clock, whatever the batches do
NEVER = 1 << 40  # commits
VERBS = ("PUT", "HEAD", "LIST", "GET", "DELETE")


@dataclass
class Pair:
    """Two lakes of the same records.

    Attributes:
        address: of the lake in the bucket.
        requests: verb -> number of requests of each counted batch.
    """

    disk: Case
    bucket: Case
    address: StorageAddress
    requests: dict[str, list[int]] = field(default_factory=dict)

    @property
    def tables(self) -> int:
        return self.disk.tables

    @property
    def bound(self) -> int:
        """PUTs of a batch: its files, a log entry for each table, the manifest, the mark that it is applied."""
        return self.bucket.files() + len(self.bucket.last.tables) + 2

    @property
    def manifest_bytes(self) -> int:
        return len(self.bucket.last.text.encode())

    def measure(self, number: int) -> None:
        for case in (self.disk, self.bucket) if number % 2 else (self.bucket, self.disk):
            case.measure(number >= WARMING)

    def count(self, workshop: Workshop, store: ObjectStore) -> None:
        """Open the lake in the bucket once more, through a proxy, and count the requests of its batches."""
        opened = self.bucket.stand.opened
        opened.units.committer.close()
        opened.lake.lease.release()
        counted = []
        with Counting(store.url) as counting:
            stand = workshop.stand(self.tables, replace(self.address, endpoint=counting.url), checkpoint_every=NEVER)
            self.bucket.stand = stand
            for _ in range(WARMING + COUNTED):
                counting.take()
                self.bucket.batch()
                counted.append(counting.take(BY_THE_CLOCK))
            stand.opened.units.committer.close()
            stand.opened.lake.lease.release()
        self.requests = by_verb(counted[WARMING:])

    def ratios(self) -> list[float]:
        """Seconds of each batch in the bucket as a multiple of those on disk."""
        return [one / other for one, other in zip(self.bucket.totals(), self.disk.totals(), strict=True)]

    def cpu_ratios(self) -> list[float]:
        return [one / other for one, other in zip(self.bucket.cpu, self.disk.cpu, strict=True)]

    def time_row(self) -> list[object]:
        ratios, cpu = self.ratios(), self.cpu_ratios()
        seconds = [self.disk.total(), self.bucket.total(), median(ratios), min(ratios), max(ratios)]
        used = [median(self.disk.cpu), median(self.bucket.cpu), median(cpu), median(self.bucket.apart_cpu)]
        return [self.tables, *seconds, *used]

    def request_row(self) -> list[object]:
        asked = [median(self.requests[verb]) for verb in VERBS]
        drivers = [median(self.disk.driver_cpu), median(self.bucket.driver_cpu)]
        return [self.tables, self.bucket.files(), self.bound, *map(int, asked), self.manifest_bytes, *drivers]

    def found(self) -> dict[str, Any]:
        lakes = {"disk": self.disk.found(), "bucket": self.bucket.found()}
        counted = {"bound": self.bound, "requests": self.requests, "manifest_bytes": self.manifest_bytes}
        return {"tables": self.tables, "files": self.bucket.files()} | counted | lakes

    def figures(self) -> Iterator[Figure]:
        suffix = f"{self.tables:,} tables"
        yield Figure.of(f"seconds of a batch on local disk, {suffix}", self.disk.totals())
        yield Figure.of(f"seconds of a batch into a bucket, {suffix}", self.bucket.totals())
        yield Figure.of(f"seconds of a batch, bucket / local disk, {suffix}", self.ratios())
        yield Figure.of(f"CPU of a batch, bucket / local disk, {suffix}", self.cpu_ratios())
        yield Figure(f"bytes of a manifest, {suffix}", self.manifest_bytes)
        yield Figure(f"PUTs of a batch into a bucket, {suffix}", median(self.requests["PUT"]))
        beyond = {"PUT": self.bound, "HEAD": 0, "LIST": 0}
        for verb, target in REQUESTS.items():
            values = [number - beyond[verb] for number in self.requests[verb]]
            yield Figure.of(f"{target.what}, {suffix}", values, target)


def by_verb(counted: list[Counter[str]]) -> dict[str, list[int]]:
    """Verb -> number of requests of each batch."""
    merged = [Counter({**one, "DELETE": one["DELETE"] + one["DELETES"], "DELETES": 0}) for one in counted]
    others = {verb for one in merged for verb, times in one.items() if times} - set(VERBS)
    return {verb: [one[verb] for one in merged] for verb in (*VERBS, *sorted(others))}


def run(options: Options) -> Result:
    """Measure and print."""
    with open_workshop() as workshop, ObjectStore(workshop.folder / "store") as store:
        pairs = [_prepare(workshop, store, tables, options) for tables in options.tables]
        for number in range(WARMING + options.batches):
            for pair in pairs:
                pair.measure(number)
            result.log_progress(f"batch {number + 1} of {WARMING + options.batches}: " + ", ".join(map(_brief, pairs)))
        for pair in pairs:
            result.log_progress(f"counting the requests of a batch into {pair.tables} tables ...")
            pair.count(workshop, store)
        _show(pairs)
        print(f"medians of {options.batches} batches of {options.records:,} records")
        details = {"records": options.records, "partitions": options.partitions, "storage": options.storage}
        figures = [figure for pair in pairs for figure in pair.figures()]
        return Result(figures, details | {"pairs": [pair.found() for pair in pairs]})


def _prepare(workshop: Workshop, store: ObjectStore, tables: int, options: Options) -> Pair:
    result.log_progress(f"preparing {options.records:,} records for {tables} tables ...")
    records = workshop.records(frames.play(tables), options.records, options.partitions)
    address = replace(store.address(f"tables-{tables}", workshop.folder / f"local-{tables}"), lease_s=LEASE_S)
    disk = Case(tables, options.records, records, workshop.stand(tables), store.pid)
    return Pair(disk, Case(tables, options.records, records, workshop.stand(tables, address), store.pid), address)


def _brief(pair: Pair) -> str:
    cases = (pair.disk, pair.bucket)
    seconds = " and ".join(f"{sum(case.seconds[-1]):.2f}" for case in cases if case.seconds)
    return f"{pair.tables} tables {seconds} s" if seconds else f"{pair.tables} tables warming up"


def _show(pairs: list[Pair]) -> None:
    ratios = ("ratio", "least", "most")
    result.show(
        ["tables", "s/batch disk", "s3", *ratios, "CPU s disk", "s3", "ratio", "store's CPU s"],
        [pair.time_row() for pair in pairs],
    )
    result.show(
        ["tables", "files", "bound", *VERBS, "manifest bytes", "driver CPU s disk", "s3"],
        [pair.request_row() for pair in pairs],
    )
