"""The records that a replay has to decode, sorted once by coordinates and stored in a temporary file.

Without this list each unit would search all of quarantine for its records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from spark_app.model.record_schemas import COORDINATES

COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
PACKED = pa.schema([("packed", pa.binary())])


class ReplayQueue:
    """Rows in ascending order of their coordinates; the file is removed with the object."""

    def __init__(self, rows: DataFrame):
        schema = to_arrow_schema(rows.schema, timezone="UTC")
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the queue
        # Through Spark and not as files of the workers, which may be on other machines.
        with pa.ipc.new_stream(self._file, schema, options=COMPRESSED) as sorted_rows:
            for row in rows.orderBy(*COORDINATES).mapInArrow(_pack, "packed binary").toLocalIterator():
                sorted_rows.write_table(pa.ipc.open_stream(row.packed).read_all().cast(schema))
        self._file.seek(0)
        self._batches = iter(pa.ipc.open_stream(self._file))
        self._next = schema.empty_table()

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


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for each batch."""
    for batch in batches:
        packed = pa.BufferOutputStream()
        with pa.ipc.new_stream(packed, batch.schema, options=COMPRESSED) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([packed.getvalue().to_pybytes()], pa.binary())], schema=PACKED)
