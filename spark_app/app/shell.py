"""A read-only PySpark shell on the lake, with a view for each table."""

from __future__ import annotations

import code
import re
import readline
import rlcompleter
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_app.app.duckdb_shell import run
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Catalog
from spark_app.model.errors import ConfigurationError, ContractError, UsageError
from spark_app.model.text import in_backticks
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings
from spark_app.tables.admission import NO_SCHEMAS
from spark_app.tables.aliases import newest_names
from spark_app.units.spark import jvm, session

MOST_ROWS = 1000  # that a statement prints


def start(settings: Settings, text: str | None = None) -> None:
    """Open the shell, or run a text in it.

    Raises:
        ConfigurationError: the lake has no table yet.
    """
    lake = Lake(settings.lake_address)
    if not lake.tables():
        raise ConfigurationError(
            f"lake.path: no tables at {lake.uri} yet; start the stack and wait for its first batch"
        )
    spark = session.start(settings.without_cluster, "protolake-shell", quiet=True, queries=True)
    names = register(spark, lake, settings)
    make_read_only(spark)
    scope: dict[str, Any] = {"spark": spark, "sc": spark.sparkContext, "F": F}
    scope["tables"] = lambda: register(spark, lake, settings)
    readline.set_completer(rlcompleter.Completer(scope).complete)
    readline.parse_and_bind("tab: complete")
    if text is not None:
        return run(text, scope, lambda sql: spark.sql(sql).show(MOST_ROWS, False))
    code.interact(banner=_banner(settings, lake, names), local=scope, exitmsg="")


def make_read_only(spark: SparkSession) -> None:
    """Reject everything that may change a table: statements, and writers of DataFrames."""
    spark.sql = ReadOnly(spark)  # type: ignore[method-assign, assignment]
    for writer in ("write", "writeStream", "writeTo", "mergeInto"):
        setattr(type(spark.range(1)), writer, property(_refuse))


def _refuse(rows: DataFrame) -> NoReturn:
    raise UsageError("this shell is read-only: export rows with .toArrow() or .toPandas()")


def register(spark: SparkSession, lake: Lake, settings: Settings) -> list[str]:
    """Create one view per table, with the table's name, and those of `Settings.views`; returns the tables. A view
    cannot be written; call this again to see new rows and columns. A renamed field that keeps its column is there by
    its newest name, too. Delta accepts DELETE and UPDATE through a plain view of a table; the condition `true` prevents
    that at no cost."""
    catalog, messages = _known(lake)
    layout, names, columns = settings.layout, lake.tables(), dict[str, dict[str, str]]()
    for name in names:
        rows = spark.read.format("delta").load(lake.storage.uri(lake.table(name))).where("true")
        own = messages.get(layout.name_of(name), ()) if layout.is_silver(name) else ()
        others = newest_names(rows.columns, own, catalog).items() if catalog.aliases else ()
        rows.select("*", *(F.col(f"`{column}`").alias(other) for column, other in others)).createOrReplaceTempView(name)
        columns[name] = dict(rows.dtypes)
    views = settings.views(names)
    for name in views.sources:
        spark.sql(views.sql(name, columns, in_backticks)).createOrReplaceTempView(name)
        if mixed := views.mixed(name, columns):
            print(f"{name}: text, because its type differs between tables: {', '.join(mixed)}")
    return names


def _known(lake: Lake) -> tuple[Catalog, dict[str, Sequence[str]]]:
    """(the schemas, the message types of the tables); none of them where the lake's state is damaged."""
    try:
        admitted = read_durable(lake.storage, lake.admitted) or {"messages": {}}
        return Ledger(lake).catalog(), admitted["messages"]
    except ContractError:
        return NO_SCHEMAS, {}


# Names of the plans of commands that change nothing, up to a capital letter. A session may create views.
READING = re.compile(r"(Show|Describe|Explain|Set|Reset|Cache|Uncache|ClearCache|Refresh|Use|NoopCommand)([A-Z]|$)")
WRITING = re.compile(r"Insert|Execute|Call|Restore|Clone")  # plans that change something, but are no commands


class ReadOnly:
    """`spark.sql` for statements that only read. Spark itself would hide a table's view on DROP TABLE, and create
    tables in its own folder."""

    def __init__(self, spark: SparkSession):
        self._spark, self._sql = spark, spark.sql

    def __call__(self, query: str, *arguments: Any, **named: Any) -> DataFrame:
        """
        Raises:
            UsageError: the statement is neither a query nor a command that only reads.
        """
        text = re.sub(r"\{[^{}]*\}", "x", query) if named else query  # placeholders that Spark fills in
        try:
            plan = jvm.parse_plan(self._spark, text)
        except Exception:
            return self._sql(query, *arguments, **named)  # Spark raises the syntax error
        if refused := next((name for name in self._changes(plan) if not READING.match(name)), None):
            raise UsageError(f"this shell is read-only: {refused} was refused, and nothing was changed")
        return self._sql(query, *arguments, **named)

    def _changes(self, plan: Any) -> Iterator[str]:
        """The names of the commands and other statements in a plan that are not queries."""
        name = str(plan.getClass().getSimpleName())
        if WRITING.search(name) or jvm.is_statement(self._spark, plan):
            yield name
            return
        children = plan.children()
        for number in range(children.size()):
            yield from self._changes(children.apply(number))


def _banner(settings: Settings, lake: Lake, names: list[str]) -> str:
    layout = settings.layout
    silver = next((n for n in names if n.startswith(layout.silver.split("{")[0])), layout.bronze)
    gold = next((n for n in names if n.startswith(layout.gold.split("{")[0])), silver)
    return f"""
Protolake shell: {len(names)} tables of {lake.uri}, read only; tables() registers new ones and new columns.
Spark session as 'spark', pyspark.sql.functions as 'F'. Try:

  spark.sql("show tables").show(50, False)
  spark.sql("select _schema_id, count(*), max({settings.event.time}) from {silver} group by 1 order by 1").show()
  spark.sql("select * from {gold} limit 10").show(10, False)
"""
