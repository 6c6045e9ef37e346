"""A pyspark shell on the lake: every table registered by its name, read only, with three queries to begin with."""

from __future__ import annotations

import code
import re
import readline
import rlcompleter
from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_app.model.errors import ConfigurationError, UsageError
from spark_app.settings.models import Settings
from spark_app.spark import jvm, session
from spark_app.storage.lake import Lake


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
    spark = session.start(settings, "protolake-shell", quiet=True, queries=True)
    names = register(spark, lake)
    make_read_only(spark)
    scope: dict[str, Any] = {"spark": spark, "sc": spark.sparkContext, "F": F}
    scope["tables"] = lambda: register(spark, lake)
    readline.set_completer(rlcompleter.Completer(scope).complete)
    readline.parse_and_bind("tab: complete")
    try:
        code.interact(banner=_banner(settings, lake, names), local=scope, exitmsg="")
    finally:
        jvm.end(clean=False)


def make_read_only(spark: SparkSession) -> None:
    """Refuse whatever may change a table: statements, and what a DataFrame writes."""
    spark.sql = ReadOnly(spark)  # type: ignore[method-assign, assignment]
    for writer in ("write", "writeStream", "writeTo", "mergeInto"):
        setattr(type(spark.range(1)), writer, property(_refuse))


def _refuse(rows: DataFrame) -> NoReturn:
    raise UsageError("this shell is read-only: export rows with .toArrow() or .toPandas()")


def register(spark: SparkSession, lake: Lake) -> list[str]:
    """One view per table, named after it. A view cannot be written, and it follows the table's new rows and columns
    each time this is called. Delta would delete and update through a view that is nothing but the table: the condition
    makes it more than that, and costs nothing."""
    for name in lake.tables():
        spark.read.format("delta").load(str(lake.table(name))).where("true").createOrReplaceTempView(name)
    return lake.tables()


# Commands that change nothing, by the name of their plan, up to a capital letter. A session may have views of its own.
READING = re.compile(r"(Show|Describe|Explain|Set|Reset|Cache|Uncache|ClearCache|Refresh|Use|NoopCommand)([A-Z]|$)")
WRITING = re.compile(r"Insert|Execute|Call|Restore|Clone")  # plans that are no commands, and change something
STATEMENTS = "org.apache.spark.sql.catalyst.plans.logical"


class ReadOnly:
    """`spark.sql` for statements that read. Spark would take a view for the table that a `drop table` names, and hide
    it; other changes it refuses in words of its own, or makes tables in a folder of its own."""

    def __init__(self, spark: SparkSession):
        self._spark, self._sql = spark, spark.sql

    def __call__(self, query: str, *arguments: Any, **named: Any) -> DataFrame:
        """
        Raises:
            UsageError: the statement is no query, nor a command that only shows.
        """
        text = re.sub(r"\{[^{}]*\}", "x", query) if named else query  # Spark puts names and values there
        try:
            plan = self._spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except Exception:
            return self._sql(query, *arguments, **named)  # for its words
        if refused := next((name for name in self._changes(plan) if not READING.match(name)), None):
            raise UsageError(f"this shell is read-only: {refused} was refused, and nothing was changed")
        return self._sql(query, *arguments, **named)

    def _changes(self, plan: Any) -> Iterator[str]:
        """The names of the commands and other statements in a plan that are no queries."""
        loader: Any = self._spark.sparkContext._jvm
        kinds = [loader.java.lang.Class.forName(f"{STATEMENTS}.{name}") for name in ("Command", "ParsedStatement")]
        name = str(plan.getClass().getSimpleName())
        if WRITING.search(name) or any(kind.isInstance(plan) for kind in kinds):
            yield name
            return
        children = plan.children()
        for number in range(children.size()):
            yield from self._changes(children.apply(number))


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
