"""Rows of Parquet files of the lake in Spark.

Spark's own reader opens files of a local disk. For files of a bucket it would need jars of 700 MB, so workers read them
with Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spark_app.storage.storage import Storage

FOLDER = "_protolake_folder"  # the column with the name of the folder, and so of the table, of a row's file
BATCH_BYTES = 16 << 20


def read_rows(session: SparkSession, storage: Storage, keys: Sequence[str], fields: T.StructType) -> DataFrame:
    """The fields of all rows, and `FOLDER`. A column that a file lacks is NULL.

    Args:
        keys: of the files, as `storage` has them.
    """
    if not keys:
        return session.createDataFrame([], fields).withColumn(FOLDER, F.lit(""))
    if storage.is_local:
        rows = session.read.schema(fields).parquet(*map(storage.uri, keys))
        # A regular expression costs far more.
        folder = F.substring_index(F.substring_index(F.col("_metadata.file_path"), "/", -2), "/", 1)
        return rows.withColumn(FOLDER, folder)
    wanted = T.StructType([*fields.fields, T.StructField(FOLDER, T.StringType())])
    schema = to_arrow_schema(wanted, timezone="UTC")
    tasks = min(len(keys), session.sparkContext.defaultParallelism)
    named = session.createDataFrame([(key,) for key in keys], "key string").repartition(tasks)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for key in batch["key"].to_pylist():
                yield from _batches(storage, key, schema)

    return named.mapInArrow(read, wanted)


def _batches(storage: Storage, key: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches of about `BATCH_BYTES`."""
    folder = key.rpartition("/")[0].rpartition("/")[2]
    with storage.open_input(key) as source, pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        there = {name for name in schema.names if name in file.schema_arrow.names}
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        widest = max((-(-group.total_byte_size // max(group.num_rows, 1)) for group in groups), default=1)
        rows = max(1, min(100_000, BATCH_BYTES // max(widest, 1)))
        for batch in file.iter_batches(rows, columns=sorted(there), use_threads=False):
            columns = [
                pa.repeat(folder, len(batch))
                if field.name == FOLDER
                else batch[field.name].cast(field.type)
                if field.name in there
                else pa.nulls(len(batch), field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
