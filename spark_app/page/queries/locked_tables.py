"""Tables of a lake in DuckDB: views of their current files, with everything else out of reach."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from spark_app.lake.delta.table_schema import open_table
from spark_app.lake.files.storage import Storage
from spark_app.lake.lake import Lake
from spark_app.model.text import near, quoted
from spark_app.model.views import Views

MEMORY = "512MB"


TABLE = re.compile(r"[a-z0-9_]+")
OF_DUCKDB = re.compile("(?i)duckdb_|current_setting")


class Refused(Exception):
    """The SQL can never be run; the text is the reason."""


class NoTable(Refused):
    """It names a table that the lake does not have now."""


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory, of `MEMORY` at most, whose times are in UTC."""
    con = duckdb.connect(
        config={
            "threads": "1",
            "memory_limit": MEMORY,
            "temp_directory": "",
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    con.sql("SET TimeZone = 'UTC'")
    return con


def names_in(sql: str, tables: Iterable[str], has_functions: bool = True) -> list[str]:
    """The tables that one SELECT names; case does not count. If the lake has none yet, any name is one.

    The SQL is parsed only: to bind it would open the files and addresses that its functions name.

    Args:
        has_functions: it may have functions that make rows. Some read files, such as those of the tables.

    Raises:
        Refused: the SQL is something else, or names a table that there is not.
    """
    known = sorted(tables)
    con = connect()
    try:
        statements = con.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            raise Refused("it is not one SELECT")
        [text] = con.execute("SELECT json_serialize_sql($sql)", {"sql": sql}).fetchone() or [""]
        named, own = _names_of(json.loads(text), has_functions)
        if not has_functions:
            _refuse_others(con, named - {*known})
    except duckdb.Error as error:
        raise Refused(first_line(error)) from error
    except RecursionError:
        raise Refused("it is nested too deeply") from None
    spelled = {name.casefold(): name for name in reversed(known)}
    found = {name if name in known else spelled.get(name.casefold(), name) for name in named}
    names = sorted(name for name in found if name in known or name.casefold() not in own)
    for name in names:
        if name not in known and known:
            kind = NoTable if TABLE.fullmatch(name) else Refused
            raise kind(f"there is no table {name}; {near(name, known)}")
    return names


def _refuse_others(con: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """Such a name may be a file, or a view of DuckDB's own, also where the SQL gives it to one of its parts."""
    of_duckdb = {str(name).casefold() for (name,) in con.execute("SELECT view_name FROM duckdb_views()").fetchall()}
    for name in sorted(names):
        if not TABLE.fullmatch(name.casefold()) or name.casefold() in of_duckdb:
            raise Refused(f"there is no table {name}")


def _names_of(parsed: Any, has_functions: bool) -> tuple[set[str], set[str]]:
    """(names of tables, names in lower case that the SQL gives to its own parts) in SQL as DuckDB serializes it."""
    named: set[str] = set()
    own: set[str] = set()
    left = [parsed]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if part.get("type") == "BASE_TABLE":
                named.add(part["table_name"])
                if not has_functions and (part.get("schema_name") or part.get("catalog_name")):
                    raise Refused("name a table by its name alone")
            if part.get("type") == "TABLE_FUNCTION" and not has_functions:
                raise Refused("functions that make rows are not for you")
            if OF_DUCKDB.match(part.get("function_name", "")):
                raise Refused(f"{part['function_name']}() is not about the lake: it shows settings and paths")
            own |= {one["key"].casefold() for one in part.get("cte_map", {}).get("map", ())}
            left += part.values()
        elif isinstance(part, list):
            left += part
    return named, own


def open_tables(
    con: duckdb.DuckDBPyConnection,
    lake: Lake,
    names: Iterable[str],
    views: Views | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Make the tables views of their current files, and lock everything else away: no other file, no network.

    Args:
        views: some of the names may be these.
        columns: table -> the only columns that it has; None = all.
    """
    sources = views.sources if views else {}
    wanted = dict.fromkeys(table for name in names for table in sources.get(name, [name]))
    opened = [key for name in wanted for key in view_of(con, lake, name, None if columns is None else columns[name])]
    for name in names:
        if views and name in sources:
            create_view(con, views, name)
    paths = [lake.storage.uri(key) for key in opened] if lake.storage.is_local else []
    con.sql("SET allowed_paths = $paths", params={"paths": paths})
    con.sql("SET enable_external_access = false")
    con.sql("SET lock_configuration = true")


def view_of(con: duckdb.DuckDBPyConnection, lake: Lake, name: str, columns: Sequence[str] | None = None) -> list[str]:
    """Make a table a view of its current files, whose keys are returned; of these columns alone, if any are given."""
    storage = lake.storage
    table = open_table(lake, name)
    keys = [f"{name}/{path}" for path in table.get_add_actions()["path"].to_pylist()]
    empty = con.from_arrow(pa.schema(table.schema()).empty_table())
    rows = _with_all_columns(rows_of(con, storage, table, keys), empty) if keys else empty
    if columns is not None:
        rows = rows.project(", ".join(map(quoted, columns)))
    if keys or columns is not None:
        rows.create_view(name)
    else:
        con.register(name, pa.schema(table.schema()).empty_table())
    return keys


def create_view(con: duckdb.DuckDBPyConnection, views: Views, name: str) -> None:
    """Create a view over tables that are views already."""
    found = {table: con.view(table) for table in views.sources[name]}
    types = {table: dict(zip(rows.columns, map(str, rows.types), strict=True)) for table, rows in found.items()}
    con.sql(views.sql(name, types, quoted)).create_view(name)


def _with_all_columns(rows: duckdb.DuckDBPyRelation, empty: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows of files with the columns of their table that no file has yet."""
    known = {name.casefold() for name in rows.columns}
    several = zip(empty.columns, empty.types, strict=True)
    missing = [(name, kind) for name, kind in several if name.casefold() not in known]
    added = (f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in missing)
    return rows.project(", ".join(("*", *added))) if missing else rows


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]


def rows_of(
    con: duckdb.DuckDBPyConnection, storage: Storage, table: DeltaTable, keys: Sequence[str]
) -> duckdb.DuckDBPyRelation:
    """The rows of some of the table's files, at least one, which may lack columns on a local disk.

    DuckDB opens files of a local disk itself. For those of a bucket it would need an extension, so Arrow opens them.

    Args:
        keys: of the files, as `storage` has them.
    """
    if storage.is_local:
        return con.read_parquet([storage.uri(key) for key in keys], union_by_name=True)
    import pyarrow.dataset as ds

    schema = pa.schema(table.schema().to_arrow())
    return con.from_arrow(ds.dataset(list(keys), schema=schema, format="parquet", filesystem=storage.arrow()))
