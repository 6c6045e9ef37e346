"""Records that the workers read themselves, each task its share; and the job that they are read by.

By way of Spark's readers each record would become a row of the JVM first, and then an Arrow row there. As a job of a
DataFrame it would need a plan, which Spark would make anew for each unit: it takes 40 ms.
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

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches, str], Report]  # Arrow batches and a name that no other try of a task has


class Share(Protocol):
    """What one task reads.

    Attributes:
        spans: what of Kafka was read when `read` has ended; none where something else is read.
    """

    @property
    def spans(self) -> tuple[Span, ...]: ...

    def limited(self, most: int, /) -> Share:
        """At most so many records of it."""

    def read(self) -> Batches:
        """
        Raises:
            Unread: Kafka does not have it now.
        """


@dataclass(frozen=True)
class Records:
    """Of one unit."""

    session: SparkSession
    shares: tuple[Share, ...]

    def limited(self, most: int) -> Records:
        """At most so many records of each task."""
        return replace(self, shares=tuple(share.limited(most) for share in self.shares))

    def read(self) -> Batches:
        """All of them, by this process."""
        return (batch for share in self.shares for batch in share.read())

    def run(self, task: Task) -> Report:
        """One report for all tasks.

        Raises:
            Unread: a share could not be read; the others are done.
        """
        shares, report = self.shares, Report()

        def read(numbers: Iterable[int]) -> Iterator[str | ReadFailed]:
            block_pandas()
            for number in numbers:
                yield _run(task, shares[number])

        job = self.session.sparkContext.parallelize(range(len(shares)), max(1, len(shares))).mapPartitions(read)
        for found in job.collect() if shares else []:
            if isinstance(found, ReadFailed):
                raise found
            report.merge(Report.from_json(found))
        return report


def _run(task: Task, share: Share) -> str | ReadFailed:
    """A report as JSON. What could not be read is no error of the task: Spark would try it again, and again."""
    context = TaskContext.get()
    assert context is not None
    try:
        report = task(share.read(), f"{context.partitionId():05d}-{context.attemptNumber()}")
    except ReadFailed as unread:
        return unread
    report.read = {}
    for span in share.spans:
        report.read.setdefault(span.partition_name, []).append([span.start, span.end])
    return report.to_json()
