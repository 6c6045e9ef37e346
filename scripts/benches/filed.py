"""Records from Parquet files instead of Kafka, as the input of a unit."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_app.model.offsets import Span
from spark_app.model.record_schemas import SOURCE_SCHEMA
from spark_app.sources.bronze import first_records
from spark_app.units.driver.job_input import Records

BATCH = 50_000  # records


@dataclass(frozen=True)
class Share:
    """The files of one task; `moved` is added to their offsets."""

    paths: tuple[Path, ...]
    moved: int = 0
    limit: int | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        return ()

    def limited(self, most: int) -> Share:
        return replace(self, limit=most)

    def read(self) -> Iterator[pa.RecordBatch]:
        return first_records(self._batches(), self.limit)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH, use_threads=False):
                    yield self._move(batch)

    def _move(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        return pa.RecordBatch.from_pydict(
            columns | {"offset": pc.add(columns["offset"], self.moved)}, schema=SOURCE_SCHEMA
        )


@dataclass(frozen=True)
class Filed:
    """One file per partition."""

    session: SparkSession
    paths: tuple[Path, ...]

    @functools.cached_property
    def _count(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in self.paths)

    def records(self, tasks: int, moved: int = 0) -> Records:
        """The records, divided among at most so many tasks."""
        shares = [Share(self.paths[first::tasks], moved) for first in range(min(tasks, len(self.paths)))]
        return Records(self.session, tuple(shares), self._count)
