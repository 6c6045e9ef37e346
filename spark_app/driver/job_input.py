"""The input of a unit, divided among tasks, and the Spark job that reads it.

Python workers read the records directly: Spark's readers would first make a JVM row and then an Arrow row of each. The
job is an RDD job, because planning a DataFrame job takes 40 ms per unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from spark_app.kafka.consumer.read_failed import ReadFailed
from spark_app.model.offsets import Span
from spark_app.model.reports import Report
from spark_app.worker.block_pandas import block_pandas
from spark_app.worker.shuffle import Pack

Batches = Iterator[pa.RecordBatch]
# Both take a name that is unique per task attempt. A task returns, besides its report, gathering task -> pack.
Task = Callable[[Batches, str], tuple[Report, dict[int, Pack]]]
Gather = Callable[[list[Pack], str], Report]
Found = str | ReadFailed  # a report as JSON


class Share(Protocol):
    """The input of one task.

    Attributes:
        spans: the Kafka spans that `read` has read once it ends; empty for other sources.
    """

    @property
    def spans(self) -> tuple[Span, ...]: ...

    def limited(self, most: int, /) -> Share:
        """The first `most` records of it."""

    def read(self) -> Batches:
        """
        Raises:
            ReadFailed: Kafka cannot deliver the records now.
        """


@dataclass(frozen=True)
class Records:
    """The input of one unit.

    Attributes:
        count: records, as far as it is known before they are read.
    """

    session: SparkSession
    shares: tuple[Share, ...]
    count: int = 0

    def limited(self, most: int) -> Records:
        """At most `most` records per task."""
        shares = tuple(share.limited(most) for share in self.shares)
        return replace(self, shares=shares, count=min(self.count, most * len(shares)))

    def read(self) -> Batches:
        """All records, read in this process."""
        return (batch for share in self.shares for batch in share.read())

    def run(self, task: Task, gather: Gather, gatherers: int) -> Report:
        """Run the task over all shares in one Spark job; returns one merged report. With `gatherers` the job has a
        second stage of so many tasks, in which `gather` takes their packs.

        Raises:
            ReadFailed: a share could not be read; the other tasks are done.
        """
        shares, report = self.shares, Report()

        def read(numbers: Iterable[int]) -> Iterator[tuple[int, Found | Pack]]:
            block_pandas()
            for number in numbers:
                yield from _run(task, shares[number], max(1, gatherers))

        def gather_packs(pairs: Iterable[tuple[int, Found | Pack]]) -> Iterator[tuple[int, Found]]:
            block_pandas()
            packs: list[Pack] = []
            for number, item in pairs:
                if isinstance(item, Pack):
                    packs.append(item)
                else:
                    yield number, item
            if packs:
                yield 0, gather(packs, _name()).to_json()

        if not shares:
            return report
        job = self.session.sparkContext.parallelize(range(len(shares)), len(shares)).mapPartitions(read)
        if gatherers:
            job = job.partitionBy(gatherers, int).mapPartitions(gather_packs)
        try:
            results = job.collect()
        finally:
            if gatherers:
                job.cleanShuffleDependencies()  # Spark would keep the files until the JVM collects garbage
        for _, found in results:
            if isinstance(found, ReadFailed):
                raise found
            if isinstance(found, str):
                report.merge(Report.from_json(found))
        return report


def _run(task: Task, share: Share, targets: int) -> Iterator[tuple[int, Found | Pack]]:
    """The packs by their gathering tasks, and the report. A failed read is returned, not raised, because Spark would
    retry the task; to all of the gathering tasks, because some may be done when Spark reads a lost share again."""
    try:
        report, packs = task(share.read(), _name())
    except ReadFailed as unread:
        yield from ((target, unread) for target in range(targets))
        return
    report.read = {}
    for span in share.spans:
        report.read.setdefault(span.partition_name, []).append([span.start, span.end])
    yield from packs.items()
    yield 0, report.to_json()


def _name() -> str:
    """Spark gives no attempt of any task an id twice; the numbers of attempts begin anew if a stage is run again."""
    context = TaskContext.get()
    assert context is not None
    return f"{context.partitionId():05d}-{context.taskAttemptId()}"
