"""The records that a replay has to decode, sorted once by coordinates and stored in a temporary folder.

Without this list each unit would search all of quarantine for its records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from spark_app.worker.table_rows import COORDINATES

BATCH = 50_000


class ReplayQueue:
    """Rows in ascending order of their coordinates; the files are removed with the object."""

    def __init__(self, rows: DataFrame):
        self._folder = tempfile.TemporaryDirectory(prefix="replay-")
        folder = Path(self._folder.name) / "rows"
        rows.orderBy(*COORDINATES).write.parquet(str(folder))
        self._files = sorted(folder.glob("*.parquet"))
        self._batches = self._read()
        self._next = pq.read_schema(self._files[0]).empty_table()

    def _read(self) -> Iterator[pa.RecordBatch]:
        for path in self._files:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(BATCH, use_threads=False)

    def first(self, count: int) -> pa.Table:
        """The first `count` rows, or all if there are fewer; they stay in the queue."""
        while self._next.num_rows < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._next = pa.concat_tables([self._next, pa.Table.from_batches([batch], self._next.schema)])
        return self._next.slice(0, count)

    def drop(self, count: int) -> None:
        """Remove the first `count` rows."""
        self._next = self._next.slice(count)
