"""Writes the rows of a query as files of a table, in the workers: a result may be larger than the driver's memory."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.rewrite import row_groups
from spark_app.lake.files.storage import Storage
from spark_app.model.reports import FileEntry

ENTRY = "path string, rows long, size long, stats string, schema string"


def write_rows(rows: DataFrame, columns: pa.Schema, storage: Storage, table: str, compression: str) -> list[FileEntry]:
    """Write each partition that has rows to a file in the table's folder; no log names the files yet. If one fails, the
    others are removed.

    Args:
        columns: those of the rows.
    """
    prefix = f"sql-{uuid.uuid4().hex}"

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = row_groups(pa.Table.from_batches([one]).cast(columns) for one in batches if one.num_rows)
        first = next(pieces, None)
        if first is not None:
            name, every = f"{prefix}-{uuid.uuid4().hex}.parquet", itertools.chain([first], pieces)
            texts = files.texts_of(columns)
            entry = files.write_row_groups(storage, table, name, columns, every, compression, texts, durable=False)
            yield pa.RecordBatch.from_pylist([asdict(entry)])

    try:
        found = rows.mapInArrow(write, ENTRY).toArrow()
    except Exception:
        storage.delete(*storage.list(table, prefix))
        raise
    return [FileEntry(**one) for one in found.to_pylist()]
