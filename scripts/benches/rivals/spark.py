"""What the two Spark rivals have in common: a query whose batches go to bronze, to a table for each game and to
quarantine, then an aggregate query for each game."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from scripts.benches import result
from scripts.benches.rivals import given
from spark_app import config, session
from spark_app.kafka import source
from spark_app.lake import Lake

COORDINATES = ("topic", "partition", "offset", "timestamp")
Decode = Callable[[DataFrame], DataFrame]  # adds `message`: a struct, NULL where the payload is bad


def run(decode: Decode, side_by_side: int, code: Path | None = None) -> None:
    """Take all there is.

    Args:
        side_by_side: writes at a time; more than one tell Delta their batch, against a second try.
        code: a module that the workers need.
    """
    settings = config.load()
    lake = Lake(settings.lake.path)
    spark = session.start(settings, "rival", quiet=True)
    if code:
        spark.sparkContext.addPyFile(str(code))
    games = given.games()

    def take(records: DataFrame, batch: int) -> None:
        records = records.persist()
        decoded = decode(records).persist()
        append({"bronze": records, **split(decoded, games)}, lake, side_by_side, batch)
        decoded.unpersist()
        records.unpersist()

    stream = source.stream(spark, settings, None, settings.batch.records).drop("timestamp_type")
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(lake.checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    began = time.perf_counter()
    with ThreadPoolExecutor(side_by_side) as pool:
        list(pool.map(lambda game: _aggregate(spark, lake, game), games))
    given.tell_gold(lake.root, time.perf_counter() - began)
    result.tell(f"{settings.batch.records:,} records per batch")
    session.end(clean=False)


def split(decoded: DataFrame, games: Sequence[str]) -> dict[str, DataFrame]:
    """Table -> its rows: one for each game, and what could not be decoded."""
    parts = {"quarantine": decoded.where("message is null").drop("message")}
    for game in games:
        of_game = decoded.where(F.col("message.game_name") == game)
        parts[f"silver_{game}"] = of_game.select("message.*", *(F.col(name).alias(f"_{name}") for name in COORDINATES))
    return parts


def append(parts: Mapping[str, DataFrame], lake: Lake, side_by_side: int, batch: int) -> None:
    """The rows to their tables."""
    once = {"txnAppId": "rival", "txnVersion": str(batch)} if side_by_side > 1 else {}
    with ThreadPoolExecutor(side_by_side) as pool:
        list(pool.map(lambda part: _append(part[1], lake, part[0], once), parts.items()))


def _append(rows: DataFrame, lake: Lake, table: str, once: dict[str, str]) -> None:
    rows.write.format("delta").mode("append").option("mergeSchema", "true").options(**once).save(str(lake.table(table)))


def _aggregate(spark: SparkSession, lake: Lake, game: str) -> None:
    """Gold anew from all of silver."""
    rows = spark.read.format("delta").load(str(lake.table(f"silver_{game}")))
    moment = F.col("event_timestamp")
    columns = [F.count(F.lit(1)).alias("session_count"), F.min(moment).alias("first"), F.max(moment).alias("last")]
    players = rows.groupBy("gamer_id").agg(*columns)
    players.write.format("delta").mode("overwrite").save(str(lake.table(f"gold_{game}")))
