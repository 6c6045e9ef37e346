"""Runs one SQL check: `python -m spark_app.page.alerts.sql_child`.

It reads {"lake", "sql", "bind"} as JSON and prints {"holds": true, false or null}, {"refused": why the SQL can never
be judged}, or {"failed": why it was not judged this time}.
"""

from __future__ import annotations

from typing import Any

import duckdb

from spark_app.lake.lake import Lake
from spark_app.model.place import Place
from spark_app.page.queries.asking import reply
from spark_app.page.queries.locked_tables import Refused, connect, first_line, names_in, open_tables


def main() -> None:
    reply(lambda asked: check(Lake(Place(**asked["lake"])), asked["sql"], asked["bind"]))


def check(lake: Lake, sql: str, bind: bool) -> dict[str, Any]:
    """Judge the SQL. With `bind` only look whether it can be judged."""
    con, tables = connect(), lake.tables()
    try:
        names = names_in(sql, tables)
    except Refused as refused:
        return {"refused": str(refused)}
    if not tables:
        return {"failed": "the lake has no tables yet"}
    try:
        open_tables(con, lake, names)
        if [str(kind) for kind in con.sql(sql).types] != ["BOOLEAN"]:
            return {"refused": "it must give one column, true or false"}
        rows = [] if bind else con.execute(sql).fetchmany(2)
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.PermissionException) as e:
        return {"refused": first_line(e)}
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:  # the next run may do better
        return {"failed": first_line(error)}
    except Exception as error:  # such as a cast of a value: the log gets no values of records
        return {"failed": type(error).__name__}
    if len(rows) > 1:
        return {"failed": "it gives more than one row"}
    return {"holds": rows[0][0] if rows else None}


if __name__ == "__main__":
    main()
