"""What the app is compared with: a raw copy by Spark's own Delta sink, in a session with the app's settings.

Nothing is decoded, one table is written, nothing is made durable beyond what Spark does by itself. The table is
<lake>/bronze, the checkpoint lies where the app has its own.
"""

from scripts.benches import result
from spark_app import config, session
from spark_app.kafka import source
from spark_app.lake import Lake

TABLE = "bronze"


def main() -> None:
    settings = config.load()
    lake = Lake(settings.lake.path)
    spark = session.start(settings, "floor", quiet=True)
    records = (
        spark.readStream.format("kafka")
        .options(**source.jvm_options(settings.kafka))
        .option("subscribe", settings.kafka.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(settings.batch.records))
        .load()
        .select("key", "value", "headers", "topic", "partition", "offset", "timestamp")
    )
    query = (
        records.writeStream.format("delta")
        .option("checkpointLocation", str(lake.checkpoint))
        .trigger(availableNow=True)
        .start(str(lake.table(TABLE)))
    )
    query.awaitTermination()
    result.tell(f"copied in {settings.batch.records:,} records per batch")
    session.end(clean=False)


if __name__ == "__main__":
    main()
