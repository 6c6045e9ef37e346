"""Merges small files in Python workers, a task for each of the new files while there are cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.lake.delta.rewrite import AT_ONCE, LocalMerger, Merge, Merged, merge_one, refuse_if_full
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.storage import Storage
from spark_app.model.errors import last_message_line
from spark_app.model.log import log
from spark_app.units.worker.block_pandas import block_pandas

MOST_AT_ONCE = 32  # tables: the app commits them one after the other, and the next unit waits


class WorkerMerger:
    """Implements `Merger`. The files of tasks that failed are removed like other files that no log names."""

    def __init__(self, session: Callable[[], SparkSession], storage: Storage):
        """`session` gives the session of the app, which runs before the first unit."""
        self._session = session
        self._storage = storage

    @property
    def at_once(self) -> int:
        return min(AT_ONCE * self._session().sparkContext.defaultParallelism, MOST_AT_ONCE)

    def merge(self, wanted: Sequence[Merge]) -> list[Merged]:
        storage, context = self._storage, self._session().sparkContext

        def merge_all(merges: Iterable[Merge]) -> Iterator[Merged]:
            block_pandas()
            return (merge_one(storage, one) for one in merges)

        tasks = max(1, min(len(wanted), context.defaultParallelism))
        try:
            done: list[Merged] = context.parallelize(wanted, tasks).mapPartitions(merge_all).collect()
        except (PySparkException, Py4JJavaError) as error:
            if is_full(error):
                raise
            log.warning("workers could not merge files, so the app does", tasks=tasks, reason=last_message_line(error))
            return LocalMerger(storage).merge(wanted)
        refuse_if_full(storage, wanted, done)
        return done
