"""Where the tasks of a job run. A task may prefer an executor; Spark never lets it wait for one that is busy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from spark_app.units.spark import jvm

MOVES = 2  # of one task or one executor none can move to another

Value = TypeVar("Value")


def is_local(context: SparkContext) -> bool:
    """True if there is no cluster: all tasks run on this machine."""
    return str(context.master).startswith("local")


def spread(session: SparkSession, values: Sequence[Value], *, from_last: bool = False) -> RDD[Value]:
    """Each value a task. On a cluster the n-th task prefers the n-th executor, the same one in each job
    while the executors stay.

    Args:
        from_last: counts the executors from the last one, so that the tasks keep away from those of other jobs.
    """
    context = session.sparkContext
    executors = [] if is_local(context) else jvm.executor_places(session)
    if len(executors) < MOVES:
        return context.parallelize(values, len(values))
    if from_last:
        executors.reverse()
    return jvm.parallelize_at(session, values, [executors[number % len(executors)] for number in range(len(values))])
