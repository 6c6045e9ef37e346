"""Creates the input of a unit from Kafka or bronze, and reads the lake's tables with Spark.

Tables are read from the files that the log names, because Spark's Delta reader takes seconds to start and no batch runs
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from spark_app.lake.delta.parquet import read_batches
from spark_app.lake.files.storage import Storage
from spark_app.model.offsets import Offsets
from spark_app.model.record_schemas import COORDINATES, LINEAGE_COORDINATES, LINEAGE_SCHEMA
from spark_app.settings.models import Settings
from spark_app.sources import bronze
from spark_app.sources.kafka.input import Share as KafkaShare
from spark_app.sources.kafka.spans import SpanSplitter, spans_between
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitOptions

FROM_BRONZE = UnitOptions({}, write_bronze=False, bump_in_place=True)
FOLDER = "_protolake_folder"  # the column with the name of the folder, and so of the table, of a row's file
MOST_ROWS, BATCH_BYTES = 100_000, 16 << 20  # of an Arrow batch


def read_kafka(
    session: SparkSession,
    settings: Settings,
    splitter: SpanSplitter,
    own_workers_after: int,
    start: Offsets,
    end: Offsets,
    tasks: int,
) -> Records:
    """The records from `start` (included) to `end` (excluded).

    Args:
        own_workers_after: more units of one task in a row than this are worth workers of their own.
    """
    batch = settings.batch
    partitions = sum(map(len, end.values()))
    bounds = partitions, batch.max_arrow_records, batch.max_arrow_bytes, batch.max_record_bytes
    spans = spans_between(start, end)
    shares = tuple(KafkaShare(settings.kafka, own, *bounds) for own in splitter.split(spans, tasks))
    count = sum(span.offsets for span in spans)
    return Records(session, shares, count, own_workers=splitter.single > own_workers_after)


def read_bronze(
    session: SparkSession, opened: OpenLake, ranges: bronze.Ranges | None = None, tasks: int = 1
) -> Records:
    """All records of bronze, or those of the ranges."""
    name, batch = opened.settings.tables.bronze, opened.settings.batch
    opened.units.refresh(name)
    if ranges is None:
        keys = opened.units.committer.tables.files(name)
    else:
        keys = opened.units.committer.tables.files_between(name, "offset", *bronze.bounds(ranges))
    storage, bounds = opened.lake.storage, (batch.max_arrow_records, batch.max_arrow_bytes)
    pieces = bronze.find_row_groups(storage, keys, ranges)
    shares = bronze.split_among_tasks(pieces, tasks) or [()]
    count = sum(piece.rows for piece in pieces)
    return Records(session, tuple(bronze.Share(storage, own, ranges, *bounds) for own in shares), count)


def read_table(
    session: SparkSession, opened: OpenLake, name: str, wanted: Iterable[str] | None = None
) -> DataFrame | None:
    """The current content of a table; None if the table does not exist.

    Args:
        wanted: names of the columns to read; None = all.
    """
    opened.units.refresh(name)
    columns = opened.units.committer.tables.columns(name)
    if columns is None:
        return None
    columns = columns if wanted is None else pa.schema([columns.field(one) for one in wanted])
    keys = opened.units.committer.tables.files(name)
    return read_rows(session, opened.lake.storage, keys, from_arrow_schema(columns)).drop(FOLDER)


def read_silver(session: SparkSession, opened: OpenLake, names: Iterable[str]) -> DataFrame | None:
    """Coordinates and "table" of all rows of the silver tables with these routing names; None if they have no files."""
    keys = []
    for table in map(opened.settings.layout.silver_of, names):
        opened.units.refresh(table)
        keys += opened.units.committer.tables.files(table)
    if not keys:
        return None
    columns = pa.schema([LINEAGE_SCHEMA.field(name) for name in LINEAGE_COORDINATES])
    rows = read_rows(session, opened.lake.storage, keys, from_arrow_schema(columns))
    return rows.select(*coordinates_of_row(), F.col(FOLDER).alias("table"))


def coordinates_of_row() -> list[Column]:
    """The coordinates of a silver row, under the column names of the other tables."""
    return [F.col(own).alias(name) for own, name in zip(LINEAGE_COORDINATES, COORDINATES, strict=True)]


def read_rows(session: SparkSession, storage: Storage, keys: Sequence[str], fields: T.StructType) -> DataFrame:
    """The fields of all rows, and `FOLDER`. A column that a file lacks is NULL. Spark's own reader opens files of a
    local disk; for files of a bucket it would need jars of 700 MB, so workers read them with Arrow.

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
