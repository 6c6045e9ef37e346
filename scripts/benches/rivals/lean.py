"""A raw copy as a user writes it: Kafka to one Delta table, without headers, everything in one batch."""

from scripts.benches.rivals import spark
from spark_app.units.spark import jvm

if __name__ == "__main__":
    opened, settings, lake = spark.open_session("lean")
    spark.write(spark.read(opened, settings, limit=None), lake, lake.path(lake.checkpoint))
    jvm.end(clean=False)
