"""The input of a unit, divided among tasks, and the Spark job that reads it.

Python workers read the records directly: Spark's readers would first make a JVM row and then an Arrow row of each. The
job is an RDD job, because planning a DataFrame job takes 40 ms per unit.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark import RDD, SparkContext, SparkFiles, TaskContext
from pyspark.sql import SparkSession

from spark_app.model.offsets import ReadFailed, Span
from spark_app.model.reports import Report
from spark_app.sources.kafka import input as kafka_input
from spark_app.units.spark import jvm
from spark_app.units.worker.block_pandas import block_pandas
from spark_app.units.worker.shuffle import Pack

MOVES = 2  # of one task or one executor none can move to another

Value = TypeVar("Value")
Batches = Iterator[pa.RecordBatch]
# Both take a name that is unique per task attempt. A task returns, besides its report, gathering task -> pack.
Task = Callable[[Batches, str], tuple[Report, dict[int, Pack]]]
Gather = Callable[[list[Pack], str], Report]
Found = str | ReadFailed  # a report as JSON


def is_local(context: SparkContext) -> bool:
    """True if there is no cluster: all tasks run on this machine."""
    return str(context.master).startswith("local")


def spread(session: SparkSession, values: Sequence[Value], *, from_last: bool = False) -> RDD[Value]:
    """Each value a task. On a cluster the n-th task prefers the n-th executor, the same one in each job while the
    executors stay; Spark never lets it wait for one that is busy.

    Args:
        from_last: counts the executors from the last one, so that the tasks keep away from those of other jobs.
    """
    context = session.sparkContext
    executors = [] if is_local(context) else jvm.executor_locations(session)
    if len(executors) < MOVES:
        return context.parallelize(values, len(values))
    if from_last:
        executors.reverse()
    return jvm.parallelize_at(session, values, [executors[number % len(executors)] for number in range(len(values))])


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
        own_workers: see `jvm.use_own_workers`. Single tasks in a row would go round all processes, and the consumer of
            each would fetch all records.
    """

    session: SparkSession
    shares: tuple[Share, ...]
    count: int = 0
    own_workers: bool = False

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
        report = Report()
        if not self.shares:
            return report
        with self._claims() as claims:
            found = self._collect(task, gather, gatherers, claims)
        for _, one in found:
            if isinstance(one, ReadFailed):
                raise one
            if isinstance(one, str):
                report.merge(Report.from_json(one))
        return report

    def _collect(self, task: Task, gather: Gather, gatherers: int, claims: str) -> list[tuple[int, Found | Pack]]:
        shares = self.shares

        def read(numbers: Iterable[int]) -> Iterator[tuple[int, Found | Pack]]:
            block_pandas()
            for number in numbers:
                chosen = _choose(shares, claims, number) if claims else number
                yield from _run(task, shares[chosen], max(1, gatherers))

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

        job = self._tasks().mapPartitions(read)
        if self.own_workers and not gatherers:
            jvm.use_own_workers(job)
        if gatherers:
            job = job.partitionBy(gatherers, int).mapPartitions(gather_packs)
        try:
            return job.collect()
        finally:
            if gatherers:
                job.cleanShuffleDependencies()  # Spark would keep the files until the JVM collects garbage

    def _tasks(self) -> RDD[int]:
        """The numbers of the shares, each a task. A share of Kafka stays with its executor from unit to unit."""
        context, numbers = self.session.sparkContext, range(len(self.shares))
        return spread(self.session, numbers) if self._is_of_kafka() else context.parallelize(numbers, len(numbers))

    def _claims(self) -> AbstractContextManager[str]:
        """A folder for the claims of the tasks; "" if their processes have nothing to choose."""
        if len(self.shares) < MOVES or not self._is_of_kafka() or not is_local(self.session.sparkContext):
            return nullcontext("")
        try:
            folder = SparkFiles.getRootDirectory()
            return tempfile.TemporaryDirectory(prefix="claims-", dir=folder, ignore_cleanup_errors=True)
        except OSError:  # claims only save work
            return nullcontext("")

    def _is_of_kafka(self) -> bool:
        return any(share.spans for share in self.shares)


def _choose(shares: Sequence[Share], claims: str, task: int) -> int:
    """The share of which this process has fetched most; if it has none, that with the task's number."""
    numbers = sorted(
        range(len(shares)), key=lambda number: (-kafka_input.continued(shares[number].spans), number != task)
    )
    return claim(claims, task, numbers)


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


def claim(folder: str, task: int, shares: Iterable[int]) -> int:
    """Let a worker process choose its share. Spark gives a task to any idle process. The consumer of a process has
    already fetched what follows its last share, so with another share the first fetch would be in vain.

    Returns the first of the shares that no other task has claimed; for a task that Spark runs again, the one that it
    claimed before. There are as many shares as tasks, so each task gets one.

    Args:
        folder: an empty folder for each job, where all of its tasks run on one machine.
        shares: all of them, the preferred ones first.
    """
    claims = [f"{folder}/{share}" for share in shares]
    for path in (path for path in claims if _owner(path) == task):
        return int(os.path.basename(path))
    for path in claims:
        try:
            os.symlink(str(task), path)  # the name and its content in one step
        except FileExistsError:
            continue
        return int(os.path.basename(path))
    raise ValueError(f"task {task} is one too many for {len(claims)} shares")


def _owner(path: str) -> int | None:
    try:
        return int(os.readlink(path))
    except FileNotFoundError:
        return None
