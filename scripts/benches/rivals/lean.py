"""A raw copy as a user writes it: Kafka to one Delta table, no headers, all there is in one batch."""

from scripts.benches.rivals import spark
from spark_app import session

if __name__ == "__main__":
    opened, settings, lake = spark.open_session("lean")
    reader = opened.readStream.format("kafka").option("kafka.bootstrap.servers", settings.kafka.brokers)
    reader = reader.option("subscribe", settings.kafka.topic).option("startingOffsets", "earliest")
    reader = reader.option("kafka.max.poll.records", "5000")  # Kafka's own 500 cost a sixth
    spark.write(reader.load().select("key", "value", *spark.COORDINATES), lake, lake.checkpoint)
    session.end(clean=False)
