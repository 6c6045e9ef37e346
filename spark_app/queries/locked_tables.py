"""Tables of a lake in DuckDB: views of their current files, with everything else out of reach."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from spark_app.storage.lake import Lake

MEMORY = "512MB"


class Refused(Exception):
    """The SQL can never be run; the text says why."""


def connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": "1", "temp_directory": "", "python_enable_replacements": "false"})


def names_in(sql: str, tables: Iterable[str]) -> list[str]:
    """The tables that one SELECT names. If the lake has none yet, any name is one. No file is read: DuckDB binds the
    functions of a statement to find its tables, and some of them would open files and addresses then.

    Raises:
        Refused: the SQL is something else, or names a table that there is not.
    """
    known = sorted(tables)
    con = connect()
    con.sql("SET enable_external_access = false")
    con.sql("SET lock_configuration = true")
    try:
        statements = con.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            raise Refused("it is not one SELECT")
        names = sorted(con.get_table_names(sql, qualified=False))
    except duckdb.Error as error:
        raise Refused(first_line(error)) from error
    for name in names:
        if name not in known and known:
            near = difflib.get_close_matches(name, known, n=3) or known[:5]
            raise Refused(f"there is no table {name}; there is {', '.join(near)}")
    return names


def open_tables(con: duckdb.DuckDBPyConnection, lake: Lake, names: Iterable[str]) -> None:
    """Make the tables views of their current files, and lock everything else away: no other file, no network."""
    files: dict[str, list[str]] = {}
    for name in names:
        table = DeltaTable(lake.storage.uri(lake.table(name)))
        files[name] = table.file_uris()
        view = con.read_parquet(files[name], union_by_name=True) if files[name] else None
        if view is None:
            con.register(name, pa.schema(table.schema()).empty_table())
        else:
            view.create_view(name)
    con.sql(f"SET memory_limit = '{MEMORY}'")
    con.sql("SET TimeZone = 'UTC'")
    con.sql("SET allowed_paths = $paths", params={"paths": [file for of in files.values() for file in of]})
    con.sql("SET enable_external_access = false")
    con.sql("SET lock_configuration = true")


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
