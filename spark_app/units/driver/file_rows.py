"""Rows of Parquet files of the lake in Spark.

Spark's own reader opens files of a local disk. For files of a bucket it would need jars of 700 MB, so workers read them
with Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spark_app.lake.delta.parquet import read_batches
from spark_app.lake.files.storage import Storage

FOLDER = "_protolake_folder"  # the column with the name of the folder, and so of the table, of a row's file
MOST_ROWS, BATCH_BYTES = 100_000, 16 << 20  # of an Arrow batch


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
    schema = to_arrow_schema(fields, timezone="UTC")
    tasks = min(len(keys), session.sparkContext.defaultParallelism)
    named = session.createDataFrame([(key,) for key in keys], "key string").repartition(tasks)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key in (key for batch in batches for key in batch["key"].to_pylist()):
            folder = key.rsplit("/", 2)[-2]
            for rows in read_batches(storage, key, schema, schema.names, MOST_ROWS, BATCH_BYTES):
                yield rows.append_column(FOLDER, pa.repeat(folder, len(rows)))

    return named.mapInArrow(read, wanted)
