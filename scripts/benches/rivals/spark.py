"""Common parts of the Spark rivals: a raw copy by Spark's own sink; a query whose batches go to a table for each game
and to quarantine; an aggregate query for each game."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from scripts.benches.rivals import given
from spark_app.lake.lake import Lake
from spark_app.settings import config
from spark_app.settings.models import Settings
from spark_app.units.spark import session

TOGETHER = "silver_events"  # partitioned by game
POLL_RECORDS = "5000"  # Kafka's default of 500 costs a sixth of all CPU time
COORDINATES = ("topic", "partition", "offset", "timestamp")
Decode = Callable[[DataFrame], DataFrame]  # adds `message`: a struct, NULL if the payload is bad


ProcessBatch = Callable[[DataFrame, int], None]  # a batch and its number


# The app's settings for Spark's jobs: fewer tasks, a Delta log read in 2 parts, small files.
TUNED = (
    "spark.sql.shuffle.partitions",
    "spark.databricks.delta.snapshotPartitions",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "spark.sql.sources.parallelPartitionDiscovery.threshold",
    "spark.sql.files.openCostInBytes",
    "spark.sql.parquet.columnarReaderBatchSize",
)


def open_session(name: str) -> tuple[SparkSession, Settings, Lake]:
    """A session with the app's settings, or as a user opens one: only with the settings that Kafka and Delta need."""
    settings = config.load()
    opened = _open(settings, name) if given.has_own_flags() else session.start(settings, name, quiet=True)
    return opened, settings, Lake(settings.lake.path)


def _open(settings: Settings, name: str) -> SparkSession:
    """A session with no JVM flags except the app's class archive, which makes the start faster."""
    archive = settings.spark.class_archive
    options = {
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, Path(settings.spark.jars).glob("*.jar"))),
        "spark.driver.extraJavaOptions": f"-XX:SharedArchiveFile={archive}" if archive else "",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.appName(name).master("local[*]")
    for key, value in options.items():
        builder = builder.config(key, value)
    opened = builder.getOrCreate()
    opened.sparkContext.setLogLevel("ERROR")
    return opened


def untuned(tuned: SparkSession) -> SparkSession:
    """Another session on the same JVM, with Spark's default settings for its jobs."""
    other = tuned.newSession()
    for key in TUNED:
        other.conf.unset(key)
    return other


def read(spark: SparkSession, settings: Settings, limit: int | None, headers: bool = False) -> DataFrame:
    """The topic from its beginning, with at most so many records per batch."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings.kafka.brokers)
    reader = reader.option("subscribe", settings.kafka.topic).option("startingOffsets", "earliest")
    reader = reader.option("kafka.max.poll.records", POLL_RECORDS)
    if limit is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(limit))
    found = reader.option("includeHeaders", str(headers).lower()).load()
    return found.select("key", "value", *(["headers"] if headers else []), *COORDINATES)


def copy(spark: SparkSession, settings: Settings, lake: Lake, checkpoint: Path) -> None:
    """Kafka to <lake>/bronze without decoding and without more durability than Spark has."""
    write(read(spark, settings, settings.batch.max_records, headers=True), lake, checkpoint)


def write(records: DataFrame, lake: Lake, checkpoint: Path) -> None:
    """Write all available records to <lake>/bronze."""
    query = records.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start(str(lake.path("bronze"))).awaitTermination()


def each_batch(stream: DataFrame, lake: Lake, process_batch: ProcessBatch) -> None:
    """Process all available records batch by batch."""
    checkpoint = str(lake.path(lake.checkpoint))
    query = stream.writeStream.foreachBatch(process_batch).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def aggregate(spark: SparkSession, lake: Lake, side_by_side: int) -> None:
    """Compute <lake>/gold_<game> again from all of silver."""
    if lake.path(TOGETHER).exists():
        return _aggregate(spark, lake, "events", "game_name")
    with ThreadPoolExecutor(side_by_side) as pool:
        list(pool.map(lambda game: _aggregate(spark, lake, game), given.games()))


def split(decoded: DataFrame, games: Sequence[str]) -> dict[str, DataFrame]:
    """Table -> its rows: one for each game, and one for rows that could not be decoded."""
    parts = {"quarantine": decoded.where("message is null").drop("message")}
    for game in games:
        parts[f"silver_{game}"] = _columns(decoded.where(F.col("message.game_name") == game))
    return parts


def keep_together(decoded: DataFrame) -> dict[str, DataFrame]:
    """Table -> its rows: one for all games, and one for rows that could not be decoded."""
    good = decoded.where("message is not null")
    return {"quarantine": decoded.where("message is null").drop("message"), TOGETHER: _columns(good)}


def _columns(decoded: DataFrame) -> DataFrame:
    return decoded.select("message.*", *(F.col(name).alias(f"_{name}") for name in COORDINATES))


def append(parts: Mapping[str, DataFrame], lake: Lake, side_by_side: int, batch: int) -> None:
    """Append the rows to their tables; parallel writes pass the batch number to Delta, so that a retry writes nothing
    twice."""
    once = {"txnAppId": "rival", "txnVersion": str(batch)} if side_by_side > 1 else {}
    with ThreadPoolExecutor(side_by_side) as pool:
        list(pool.map(lambda part: _append(part[1], lake, part[0], once), parts.items()))


def _append(rows: DataFrame, lake: Lake, table: str, once: dict[str, str]) -> None:
    writer = rows.write.format("delta").mode("append").option("mergeSchema", "true").options(**once)
    if table == TOGETHER:
        writer = writer.partitionBy("game_name")
    writer.save(str(lake.path(table)))


def _aggregate(spark: SparkSession, lake: Lake, game: str, *keys: str) -> None:
    rows = spark.read.format("delta").load(str(lake.path(f"silver_{game}")))
    moment = F.col("event_timestamp")
    columns = [F.count(F.lit(1)).alias("session_count"), F.min(moment).alias("first"), F.max(moment).alias("last")]
    players = rows.groupBy(*keys, "gamer_id").agg(*columns)
    players.write.format("delta").mode("overwrite").save(str(lake.path(f"gold_{game}")))
