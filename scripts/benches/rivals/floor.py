"""A raw copy by Spark's own Delta sink, in a session with the app's settings; the app is compared with it."""

from scripts.benches.rivals import spark
from spark_app.units.spark import jvm

if __name__ == "__main__":
    opened, settings, lake = spark.open_session("floor")
    spark.copy(opened, settings, lake, lake.path(lake.checkpoint))
    jvm.end(clean=False)
