"""A read-only DuckDB shell on a lake, with a view for each table. It is the shell of lakes in a bucket, for which Spark
needs jars of its own."""

from __future__ import annotations

import ast
import code
import re
import readline
import rlcompleter
from collections.abc import Callable
from typing import Any

import duckdb

from spark_app.lake.delta.table_schema import open_table
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, UsageError, first_message_line
from spark_app.page.queries.locked_tables import create_view, view_of
from spark_app.settings.models import Settings


def start(settings: Settings, text: str | None = None) -> None:
    """Open the shell, or run a text in it.

    Raises:
        ConfigurationError: the lake has no table yet.
    """
    lake = Lake(settings.lake_address)
    names = lake.tables()
    if not names:
        raise ConfigurationError(f"lake.path: no tables at {lake.uri} yet; start the app and wait for its first batch")
    con = duckdb.connect()
    con.sql("SET TimeZone = 'UTC'")
    register(con, lake, settings)
    scope: dict[str, Any] = {"con": con, "sql": con.sql, "delta": lambda name: open_table(lake, name)}
    scope["tables"] = lambda: register(con, lake, settings)
    readline.set_completer(rlcompleter.Completer(scope).complete)
    readline.parse_and_bind("tab: complete")
    if text is not None:
        return run(text, scope, lambda sql: print(con.sql(sql) or ""))
    code.interact(banner=_banner(settings, lake, names), local=scope, exitmsg="")


def run(text: str, scope: dict[str, Any], query: Callable[[str], object]) -> None:
    """Run a text that is Python, or else SQL statements of which each ends with a line.

    Raises:
        UsageError: a statement failed.
    """
    try:
        ast.parse(text)
    except SyntaxError:
        for statement in filter(str.strip, re.split(r";\s*$", text, flags=re.MULTILINE)):
            try:
                query(statement)
            except Exception as error:
                raise UsageError(f"{statement.strip()[:60]}: {first_message_line(error)}") from None
    else:
        code.InteractiveInterpreter(scope).runsource(text, "shell", "exec")


def register(con: duckdb.DuckDBPyConnection, lake: Lake, settings: Settings) -> list[str]:
    """Create or replace one view per table, of the files that it has now, and those over several tables. Returns the
    names of the tables."""
    names = lake.tables()
    views = settings.views(names)
    for name in (*views.sources, *names):
        con.execute(f'DROP VIEW IF EXISTS "{name}"')
    for name in names:
        view_of(con, lake, name)
    for name in views.sources:
        create_view(con, views, name)
    return names


def _banner(settings: Settings, lake: Lake, names: list[str]) -> str:
    bronze = settings.tables.bronze
    return f"""
Protolake shell: {len(names)} tables of {lake.uri}, read only; tables() shows what is new in them.
DuckDB as 'con', its queries as 'sql', tables for Polars and others as 'delta'. Try:

  sql("show tables")
  sql("select schema_id, count(*) from {bronze} group by 1 order by 1")
  delta("{bronze}").version()
"""
