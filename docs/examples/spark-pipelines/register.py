"""Register the tables of a lake by name in the catalog of spark-defaults.conf: register.py LAKE TABLE ..."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

lake, *tables = sys.argv[1:]
spark = SparkSession.builder.appName("register").getOrCreate()
for table in tables:
    location = (Path(lake).absolute() / table).as_uri()
    spark.sql(f"CREATE TABLE IF NOT EXISTS `{table}` USING delta LOCATION '{location}'")
spark.sql("SHOW TABLES").show(1000, False)
spark.stop()
