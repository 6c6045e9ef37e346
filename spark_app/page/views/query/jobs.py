"""Runs one SELECT over the tables of a lake."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import duckdb

from spark_app.lake.delta.table_schema import columns_of, open_table
from spark_app.lake.lake import Lake
from spark_app.page.clear_text import hidden_tables, hidden_text
from spark_app.page.format import amount, json_value, shortened
from spark_app.page.queries.locked_tables import Refused, connect, names_in, open_tables
from spark_app.settings.models import Settings

MOST_ROWS = 1000
MOST_COLUMNS = 500
MOST_BYTES = 4 << 20  # of the answer
AT_ONCE = 50  # rows
LONGEST_ERROR = 2000
LONGEST_SQL = 100_000  # characters
ABOUT_SQL = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
TIMES = ("TIMESTAMP", "DATE")


def seen_tables(lake: Lake, settings: Settings, user: str) -> dict[str, Any]:
    """{"tables": [names]}: those that a user sees."""
    return {"tables": sorted(_seen(lake, settings, user, lake.tables()))}


def _seen(lake: Lake, settings: Settings, user: str, tables: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Table -> its columns that a user sees, of these tables those of which there are any."""
    from spark_app.page.lineage.rights import UserRights  # only users with rights of their own need it

    rights = UserRights(settings)
    known = [table for table in tables if settings.users[user].may_see(table)]
    found = {table: rights.of(table, columns_of(open_table(lake, table)).names)[user] for table in known}
    return {table: columns for table, columns in found.items() if columns}


def one_query(lake: Lake, settings: Settings, sql: str, user: str = "") -> dict[str, Any]:
    """The rows of a SELECT, which may not read hidden tables.

    Args:
        user: of the settings; "" = who has the token of the page.

    Returns:
        "columns", each {"name", "type", "kind": number, time or other}; "rows" of `json_value`s; "cut", why rows are
        missing, or ""; "seconds". Otherwise {"failed": why}.
    """
    if len(sql) > LONGEST_SQL:
        return {"failed": f"the SQL has more than {amount(LONGEST_SQL)} characters"}
    is_limited = bool(user) and not settings.users[user].sees_all
    seen = _seen(lake, settings, user, lake.tables()) if is_limited else None
    tables = lake.tables() if seen is None else list(seen)
    views = settings.views(tables)
    if is_limited and not tables:
        return {"failed": "there is no table that you may see"}
    try:
        names = names_in(sql, [*tables, *views.sources], has_functions=not is_limited)
    except Refused as refused:
        return {"failed": _words(refused.__cause__ or refused)}
    concealed = sorted(set(names) & hidden_tables(lake, settings))
    if concealed:
        return {"failed": hidden_text(concealed[0])}
    con = connect()
    try:
        open_tables(con, lake, names, views, seen)
        began = time.monotonic()
        con.execute(sql)
        return _result(con) | {"seconds": time.monotonic() - began}
    except (duckdb.Error, MemoryError) as error:
        if is_limited and not isinstance(error, ABOUT_SQL):  # it may have a value of a column that is hidden
            return {"failed": f"the query failed ({type(error).__name__})"}
        return {"failed": _words(error).replace(f"{lake.storage.root}/", "")}


def _words(error: BaseException) -> str:
    return shortened(str(error).strip() or "the query needs more memory than it may have", LONGEST_ERROR)


def _result(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    described = con.description or []
    columns = [{"name": shortened(one[0]), "type": str(one[1]), "kind": _kind(str(one[1]))} for one in described]
    if len(columns) > MOST_COLUMNS:
        return {"failed": f"the result has {amount(len(columns))} columns; the page shows at most {MOST_COLUMNS}"}
    rows: list[list[Any]] = []
    size = 0
    while found := con.fetchmany(AT_ONCE):
        for row in found:
            if len(rows) == MOST_ROWS:
                return {"columns": columns, "rows": rows, "cut": f"These are the first {amount(MOST_ROWS)} rows."}
            rows.append([json_value(value) for value in row])
            size += len(json.dumps(rows[-1]))
            if size > MOST_BYTES:
                cut = f"These are the first {amount(len(rows))} rows: more would be over {MOST_BYTES >> 20} MiB."
                return {"columns": columns, "rows": rows, "cut": cut}
    return {"columns": columns, "rows": rows, "cut": ""}


def _kind(type_name: str) -> str:
    if type_name.endswith("]"):
        return "other"
    plain_name = type_name.removeprefix("U")
    return "number" if plain_name.startswith(NUMBERS) else "time" if type_name.startswith(TIMES) else "other"
