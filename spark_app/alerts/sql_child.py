"""Runs one SQL check: `python -m spark_app.alerts.sql_child`, in a process of its own that a time limit can end.

It reads {"lake", "sql", "bind"} as JSON and prints {"holds": true, false or null}, {"refused": why the SQL can never
be judged}, or {"failed": why it was not judged this time}. DuckDB reads the current files of the tables that the SQL
names, and nothing else: no other file, no network; it can write nothing.
"""

from __future__ import annotations

import difflib
import json
import resource
import sys
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from spark_app.storage.lake import Lake

CPU_S = 60
MEMORY = "512MB"


def main() -> None:
    for what, most in ((resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))
    asked = json.load(sys.stdin)
    print(json.dumps(check(Lake(asked["lake"]), asked["sql"], asked["bind"])))


def check(lake: Lake, sql: str, bind: bool) -> dict[str, Any]:
    """Judge the SQL. With `bind` only look whether it can be judged."""
    con = duckdb.connect(config={"threads": "1", "temp_directory": "", "python_enable_replacements": "false"})
    try:
        statements = con.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            return {"refused": "it is not one SELECT"}
        names = con.get_table_names(sql, qualified=False)
    except duckdb.Error as error:
        return {"refused": _first_line(error)}
    tables = lake.tables()
    for name in sorted(names):
        if name not in tables and tables:
            near = difflib.get_close_matches(name, tables, n=3) or tables[:5]
            return {"refused": f"there is no table {name}; there is {', '.join(near)}"}
    if not tables:
        return {"failed": "the lake has no tables yet"}
    try:
        _open(con, lake, sorted(names))
        if [str(kind) for kind in con.sql(sql).types] != ["BOOLEAN"]:
            return {"refused": "it must give one column, true or false"}
        rows = [] if bind else con.execute(sql).fetchmany(2)
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.PermissionException) as e:
        return {"refused": _first_line(e)}
    except Exception as error:  # memory, a file that is gone, a cast of a value: the next run may do better
        return {"failed": _first_line(error)}
    if len(rows) > 1:
        return {"failed": "it gives more than one row"}
    return {"holds": rows[0][0] if rows else None}


def _open(con: duckdb.DuckDBPyConnection, lake: Lake, names: list[str]) -> None:
    """Make the tables views of their current files, and lock everything else away."""
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


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]


if __name__ == "__main__":
    main()
