"""Aggregates silver files in Python workers: with small files, Spark SQL spends most of its time on opening them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.followers.gold.aggregates import Grouping
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.storage import Storage
from spark_app.model.errors import last_message_line
from spark_app.model.log import log
from spark_app.units.driver.job_input import spread
from spark_app.units.worker.block_pandas import block_pandas
from spark_app.units.worker.shuffle import from_stream, to_stream

TASK_BYTES = 4 << 20  # with fewer bytes per task, a second task costs more than it saves
FILE_BYTES = 64 << 10  # the cost of opening a file, in bytes read

Files = Mapping[str, list[str]]  # routing name -> keys
Found = tuple[str, bytes | str]  # (routing name, partial aggregate as an Arrow stream or error text)


def aggregate(
    session: SparkSession, storage: Storage, files: Files, groupings: Mapping[str, Grouping]
) -> dict[str, pa.Table]:
    """Routing name -> one row per key. Tables with unreadable files are left out; if the job fails, all are.

    Raises:
        Exception: the disk is full or the JVM has ended.
    """
    shares = split_among_tasks(storage, files, session.sparkContext.defaultParallelism)
    parts: dict[str, list[pa.Table]] = {}
    failed = set()
    for name, found in _run(session, storage, shares, groupings):
        if isinstance(found, str):
            failed.add(name)
        else:
            parts.setdefault(name, []).append(from_stream(found))
    return {
        name: groupings[name].finish(groupings[name].combine(own)) for name, own in parts.items() if name not in failed
    }


def split_among_tasks(storage: Storage, files: Files, most: int) -> list[dict[str, list[str]]]:
    """Split the files among at most `most` tasks of about equal bytes, at least `TASK_BYTES` each. A table is in one
    task or in consecutive ones."""
    sizes = [(name, key, (storage.size(key) or 0) + FILE_BYTES) for name, keys in files.items() for key in keys]
    total = sum(size for *_, size in sizes)
    shares: list[dict[str, list[str]]] = [{} for _ in range(max(1, min(most, total // TASK_BYTES)))]
    before = 0
    for name, key, size in sizes:
        shares[before * len(shares) // total].setdefault(name, []).append(key)
        before += size
    return [share for share in shares if share]


def _run(
    session: SparkSession, storage: Storage, shares: list[dict[str, list[str]]], groupings: Mapping[str, Grouping]
) -> list[Found]:
    """Run the job. The requests are sent as data: in the closure, more than 1 MB would become a broadcast."""

    def reduce(parts: Iterable[list[tuple[str, Grouping, list[str]]]]) -> Iterator[Found]:
        block_pandas()
        for share in parts:
            for name, grouping, keys in share:
                yield name, _reduce(storage, grouping, keys)

    parts = [[(name, groupings[name], keys) for name, keys in share.items()] for share in shares]
    if not shares:
        return []
    try:
        return spread(session, parts, from_last=True).mapPartitions(reduce).collect()
    except (PySparkException, Py4JJavaError) as error:
        if is_full(error):
            raise
        log.warning("workers could not aggregate, so Spark SQL does", tasks=len(parts), reason=last_message_line(error))
        return []


def _reduce(storage: Storage, grouping: Grouping, keys: list[str]) -> bytes | str:
    """The partial aggregate, or the error text of an unreadable file. After an exception Spark would repeat the task,
    with the other tables in it."""
    try:
        part = grouping.reduce(storage, keys)
    except (OSError, pa.ArrowException) as error:
        return f"{type(error).__name__}: {error}"
    return to_stream(part)
