"""A read-only DuckDB shell on a lake, with a view for each table. It is the shell of lakes in a bucket, for which Spark
needs jars of its own."""

from __future__ import annotations

import code
import readline
import rlcompleter
from typing import Any

import duckdb

from spark_app.lake.delta.table_schema import open_table
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.page.queries.locked_tables import view_of
from spark_app.settings.models import Settings


def start(settings: Settings) -> None:
    """Open the shell.

    Raises:
        ConfigurationError: the lake has no table yet.
    """
    lake = Lake(settings.lake_address)
    names = lake.tables()
    if not names:
        raise ConfigurationError(f"lake.path: no tables at {lake.uri} yet; start the app and wait for its first batch")
    con = duckdb.connect()
    con.sql("SET TimeZone = 'UTC'")
    register(con, lake)
    scope: dict[str, Any] = {"con": con, "sql": con.sql, "delta": lambda name: open_table(lake, name)}
    scope["tables"] = lambda: register(con, lake)
    readline.set_completer(rlcompleter.Completer(scope).complete)
    readline.parse_and_bind("tab: complete")
    code.interact(banner=_banner(settings, lake, names), local=scope, exitmsg="")


def register(con: duckdb.DuckDBPyConnection, lake: Lake) -> list[str]:
    """Create or replace one view per table, of the files that it has now. Returns the names."""
    for name in lake.tables():
        con.execute(f'DROP VIEW IF EXISTS "{name}"')
        view_of(con, lake, name)
    return lake.tables()


def _banner(settings: Settings, lake: Lake, names: list[str]) -> str:
    bronze = settings.tables.bronze
    return f"""
Protolake shell: {len(names)} tables of {lake.uri}, read only; tables() shows what is new in them.
DuckDB as 'con', its queries as 'sql', tables for Polars and others as 'delta'. Try:

  sql("show tables")
  sql("select schema_id, count(*) from {bronze} group by 1 order by 1")
  delta("{bronze}").version()
"""
