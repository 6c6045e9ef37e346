"""Trains the JVM's class archive: while an image is built, or beside the app of the first ./scripts/run.

Input: the settings of the run, so that class path and JVM options are the same. Output: the archive at
`spark.class_archive`. No broker is needed: batches come from Spark's rate source, and the Kafka clients connect to an
address where nothing listens. Everything else is the app's own code on a temporary lake.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_app.lake.lake import Lake
from spark_app.model.offsets import Span
from spark_app.model.record_schemas import SOURCE_SCHEMA
from spark_app.settings import config
from spark_app.settings.models import Settings
from spark_app.sources.kafka import spark_source
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitOptions, UnitRunner
from spark_app.units.spark import jvm, session

NOBODY = "127.0.0.1:9"
BATCHES = 3


class Noise:
    """Records whose values are not frames."""

    spans: tuple[Span, ...] = ()

    def limited(self, most: int) -> Noise:
        return self

    def read(self) -> Iterator[pa.RecordBatch]:
        row = {"value": b"noise", "topic": "noise", "partition": 0, "timestamp": 0, "timestamp_type": 0}
        yield pa.RecordBatch.from_pylist([row | {"offset": number} for number in range(1000)], SOURCE_SCHEMA)


def main() -> int:
    """Write the archive; returns 1 if there is none."""
    settings = config.load().without_cluster
    archive = Path(settings.spark.class_archive)
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        print("training the class archive, a minute or more: Spark starts, and ingests some batches", flush=True)
        spark = session.start(settings, quiet=True)
        process = jvm.process()
        lake = Lake(folder)
        stream_batches(spark, lake, settings)
        read_tables(spark, lake)
        query_kafka(spark, settings)
        print("the JVM writes the archive", flush=True)
        jvm.end(clean=True)
        process.wait()  # without a limit: a slow machine must not fail the build of an image
    size = archive.stat().st_size if archive.is_file() else 0
    print(f"class archive {archive}: {size / 1e6:.0f} MB", flush=True)
    return 0 if size else 1


def stream_batches(spark: SparkSession, lake: Lake, settings: Settings) -> None:
    """Run some micro-batches of noise through the job, the manifest and the committer, into bronze and quarantine."""
    lake.prepare()
    opened = OpenLake.of(lake, settings)
    units = UnitRunner(spark, opened)
    done = threading.Event()

    def ingest_batch(_: DataFrame, batch_id: int) -> None:
        if batch_id >= BATCHES:
            return done.set()
        report = units.run(Records(spark, (Noise(),)), batch_id + 1, UnitOptions({}))
        opened.commit(report, "ingest", {"batch": batch_id, "start": {}, "end": {}, "topic_ids": {}})

    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    checkpoint = str(lake.path(lake.checkpoint))
    writer = ticks.writeStream.foreachBatch(ingest_batch).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="100 milliseconds").start()
    while not done.is_set():
        query.awaitTermination(1)  # raises the query's error
    query.stop()
    opened.units.committer.close()


def read_tables(spark: SparkSession, lake: Lake) -> None:
    """Load the Spark classes that gold and the shell use: read and group files and Delta tables."""
    for name in lake.tables():
        table = spark.read.format("delta").load(lake.storage.uri(lake.table(name)))
        table.createOrReplaceTempView(name)
        spark.sql(f"select partition, count(*), min(timestamp), max(timestamp) from {name} group by 1").show()
        files = spark.read.parquet(
            *(lake.storage.uri(key) for key in lake.storage.list(name) if key.endswith(".parquet"))
        )
        files.groupBy("partition").agg(F.count(F.lit(1)), F.max("timestamp")).toArrow()


def query_kafka(spark: SparkSession, settings: Settings) -> None:
    """Load the classes of Spark's Kafka source; the request times out."""
    brief = {"kafka.request.timeout.ms": "1000", "kafka.default.api.timeout.ms": "1000", "fetchOffset.numRetries": "1"}
    nobody = {"kafka.bootstrap.servers": NOBODY, "subscribe": "nothing"}
    plain = settings.kafka.model_copy(update={"security_protocol": "PLAINTEXT"})  # a login would contact other servers
    options = spark_source.jvm_options(plain) | brief | nobody
    try:
        spark.read.format("kafka").options(**options).load().collect()
    except Exception as error:  # py4j's own type; any error except a timeout is a bug here
        if "TimeoutException" not in str(error):
            raise


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    jvm.forget_context()
    sys.exit(code)
