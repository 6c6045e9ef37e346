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

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches, str], Report]  # takes Arrow batches, and a name that is unique per task attempt


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
    """The input of one unit."""

    session: SparkSession
    shares: tuple[Share, ...]

    def limited(self, most: int) -> Records:
        """At most `most` records per task."""
        return replace(self, shares=tuple(share.limited(most) for share in self.shares))

    def read(self) -> Batches:
        """All records, read in this process."""
        return (batch for share in self.shares for batch in share.read())

    def run(self, task: Task) -> Report:
        """Run the task over all shares in one Spark job; returns one merged report.

        Raises:
            ReadFailed: a share could not be read; the other tasks are done.
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
    """A report as JSON. A failed read is returned, not raised, because Spark would retry the task."""
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
