"""Reads a Parquet file of a table in batches that have the columns of the table, whatever columns the file has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from spark_app.lake.files.storage import Storage


def read_batches(
    storage: Storage, key: str, fields: pa.Schema, sources: Sequence[str], most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches of at most `most_rows` rows and about `most_bytes` bytes.

    Args:
        fields: the names and types of the columns; one that the file lacks is NULL.
        sources: for each field the name of the column in the file.
    """
    with storage.open_input(key) as source, pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        there = set(file.schema_arrow.names) & set(sources)
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        widest = max((-(-group.total_byte_size // max(group.num_rows, 1)) for group in groups), default=1)
        size = max(1, min(most_rows, most_bytes // max(widest, 1)))
        wanted = [name for name in dict.fromkeys(sources) if name in there]
        for batch in file.iter_batches(size, columns=wanted, use_threads=False):
            columns = [
                batch[name].cast(field.type) if name in there else pa.nulls(len(batch), field.type)
                for field, name in zip(fields, sources, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=fields)
