"""A pyspark shell on the lake: every table registered by its name, read only, with three queries to begin with."""

from __future__ import annotations

import code
import readline
import rlcompleter
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_app import session
from spark_app.errors import ConfigurationError
from spark_app.lake import Lake
from spark_app.settings import Settings


def start(settings: Settings) -> None:
    """Open the shell.

    Raises:
        ConfigurationError: the lake has no table yet.
    """
    lake = Lake(settings.lake.path)
    if not lake.tables():
        raise ConfigurationError(
            f"lake.path: no tables at {lake.root} yet; start the stack and wait for its first batch"
        )
    spark = session.start(settings, "protolake-shell", quiet=True)
    names = register(spark, lake)
    scope: dict[str, Any] = {"spark": spark, "sc": spark.sparkContext, "F": F}
    scope["tables"] = lambda: register(spark, lake)
    readline.set_completer(rlcompleter.Completer(scope).complete)
    readline.parse_and_bind("tab: complete")
    try:
        code.interact(banner=_banner(settings, lake, names), local=scope, exitmsg="")
    finally:
        session.end(clean=False)


def register(spark: SparkSession, lake: Lake) -> list[str]:
    """One view per table, named after it. A view cannot be written, and it follows the table's new rows and columns
    each time this is called. Delta would delete and update through a view that is nothing but the table: the condition
    makes it more than that, and costs nothing."""
    for name in lake.tables():
        spark.read.format("delta").load(str(lake.table(name))).where("true").createOrReplaceTempView(name)
    return lake.tables()


def _banner(settings: Settings, lake: Lake, names: list[str]) -> str:
    layout = settings.tables.layout
    silver = next((n for n in names if n.startswith(layout.silver.split("{")[0])), layout.bronze)
    gold = next((n for n in names if n.startswith(layout.gold.split("{")[0])), silver)
    return f"""
Protolake shell: {len(names)} tables of {lake.root}, read only; tables() registers new ones and new columns.
Spark session as 'spark', pyspark.sql.functions as 'F'. Try:

  spark.sql("show tables").show(50, False)
  spark.sql("select _schema_id, count(*), max({settings.event.time}) from {silver} group by 1 order by 1").show()
  spark.sql("select * from {gold} limit 10").show(10, False)
"""
