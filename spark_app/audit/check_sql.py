"""Checks tables by SQL: a session of Spark that has nothing of the app runs each statement again over the versions that
its last run read. Spark is shared with what is audited; how tables are kept up is not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app.audit.snapshot import Snapshot, Table
from spark_app.audit.verdict import SQL, Verdict
from spark_app.lake import sql_tables
from spark_app.lake.files.reference_files import read_named_copy
from spark_app.lake.sql_tables import SqlTable
from spark_app.model.columns import types_of
from spark_app.model.errors import UnreachableError, first_message_line
from spark_app.model.text import in_backticks, quoted
from spark_app.units.spark.options import LOGGING

NO_RUN = "tables by SQL have no whole run yet, or failed: `status` names them"
GONE = "tables by SQL were made of versions that are gone by now: wait for their next run, and audit again"
NO_DIFFERENCE = "%.6g"  # digits of floating-point numbers: sums of them depend on the order of the rows
FLOATING = re.compile(r"DOUBLE|FLOAT")
OPTIONS = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING}",
}


def check_sql(snapshot: Snapshot, verdict: Verdict) -> None:
    """Check the tables by SQL whose last run has ended."""
    known = list(sql_tables.every(snapshot.lake))
    ready = [one for one in known if one.digest]
    verdict.note(NO_RUN, len(known) - len(ready))
    if not ready:
        return
    builder = SparkSession.builder.appName("protolake-audit")
    for key, value in OPTIONS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for one in ready:
        try:
            found = Table(snapshot.lake.storage, one.table, one.version)
            due = _compute(spark.newSession(), snapshot, one)
            verdict.rows.setdefault(one.table, found.count())
            verdict.add(SQL, one.table, *_differences(found.read(), due))
        except (DeltaError, FileNotFoundError, UnreachableError):
            verdict.note(GONE)
        except (PySparkException, Py4JError) as error:
            verdict.add(SQL, one.table, [one.statement], f"the statement cannot be run: {first_message_line(error)}")


def _compute(spark: SparkSession, snapshot: Snapshot, one: SqlTable) -> pa.Table:
    """The rows that the table has to have.

    Raises:
        DeltaError, FileNotFoundError: a version is gone.
        PySparkException: the query cannot be run.
    """
    storage, types = snapshot.lake.storage, dict[str, dict[str, str]]()
    for name, version in one.sources.items():
        if isinstance(version, str):
            copy = read_named_copy(storage, name, version, snapshot.settings.reference[name].key)
            rows = spark.createDataFrame(copy)
        else:
            table = Table(storage, name, version)
            types[name] = types_of(table.schema)
            # On a local disk not through the memory of this process.
            files = table.delta.file_uris() if storage.is_local else []
            read = spark.read.schema(from_arrow_schema(table.schema))
            rows = read.parquet(*files) if files else spark.createDataFrame(table.read())
        rows.createOrReplaceTempView(name)
    views = snapshot.settings.views(types)
    for name, query in ({name: views.sql(name, types, in_backticks) for name in views.sources} | one.views).items():
        spark.sql(query).createOrReplaceTempView(name)
    return spark.sql(one.query).toArrow()


def _differences(found: pa.Table, due: pa.Table) -> tuple[Iterator[str], str]:
    """(one text for each row that one of both lacks, why)."""
    due = due.cast(pa.schema(Schema.from_arrow(due.schema).to_arrow()))
    # Which columns, and fields inside them, cannot be NULL depends on how a source is read.
    one, other = (str(types_of(rows.schema)).replace(" not null", "") for rows in (found, due))
    if one != other:
        return iter(["columns"]), f"the statement gives other columns or types: {due.schema.names}"
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("found", found)
        con.register("due", due)
        columns = [
            f"printf('{NO_DIFFERENCE}', {quoted(name)} + 0)" if FLOATING.fullmatch(str(kind)) else quoted(name)
            for name, kind in zip(due.column_names, con.table("due").types, strict=True)
        ]
        sides = [f"SELECT {', '.join(columns)} FROM {side}" for side in ("found", "due")]
        lacking = [
            con.sql(f"SELECT * FROM ({one} EXCEPT ALL {other}) LIMIT 1000").fetchall()
            for one, other in (sides, reversed(sides))
        ]
    wrong = [f"{words} {row}" for words, rows in zip(("not due:", "missing:"), lacking, strict=True) for row in rows]
    return iter(wrong), "it differs from its statement"
