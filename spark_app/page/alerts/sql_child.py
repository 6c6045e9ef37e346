"""Judges SQL of alerts in a process of its own: `python -m spark_app.page.alerts.sql_child`.

A request is a JSON object, and so is its response. One of:

- {"lake", "sql", "bind"}: one check over tables. {"holds": true, false or null}, {"refused": why the SQL can never be
  judged}, or {"failed": why it was not judged this time}.
- {"conditions", "types", "measures"}: read conditions. {"conditions": alert rule -> the SQL to judge, "columns": alert
  rule -> the columns that it names}, or {"refused": which one can never be judged, and why}.
- {"conditions", "types", "values"}: judge them for one row. {"holds": rule -> true, false or null}, or {"failed": why}.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError
from spark_app.model.text import near, quoted
from spark_app.page.queries.child_process import serve_requests
from spark_app.page.queries.locked_tables import NoTable, Refused, connect, first_line, names_in, open_tables
from spark_app.tables.expectations.checks import columns_in_expression

NUMBER = re.compile(rb"\d+(\.\d+)?")
ARITHMETIC = ("+", "-", "*", "/", "%")
SAMPLES = {"DOUBLE": 1.0, "VARCHAR": ""}


def main() -> None:
    serve_requests(respond)


def respond(request: dict[str, Any]) -> dict[str, Any]:
    if "lake" in request:
        return check(Lake(StorageAddress(**request["lake"])), request["sql"], request["bind"])
    if "values" in request:
        return judge(request["conditions"], request["types"], request["values"])
    return read_conditions(request["conditions"], request["types"], request["measures"])


def check(lake: Lake, sql: str, bind: bool) -> dict[str, Any]:
    """Judge the SQL. With `bind` only look whether it can be judged."""
    con, tables = connect(), lake.tables()
    try:
        names = names_in(sql, tables)
    except NoTable as missing:  # it may come
        return {"failed": str(missing)}
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


def read_conditions(conditions: Mapping[str, str], types: Mapping[str, str], measures: Sequence[str]) -> dict[str, Any]:
    """
    Args:
        types: column -> its type.
        measures: the names that a message may suggest.
    """
    columns, sql = {}, {}
    try:
        for rule, text in conditions.items():
            setting = f"alerts.rules.{rule}.when"
            columns[rule] = [column.lower() for column in columns_in_expression(setting, text)]
            for column in columns[rule]:
                if column not in types:
                    raise ConfigurationError(f"{setting}: there is no {column}; {near(column, measures)}")
            sql[rule] = _with_doubles(text)
            _try(setting, sql[rule], types)
    except ConfigurationError as error:
        return {"refused": str(error).replace("a check", "a condition")}
    return {"conditions": sql, "columns": columns}


def judge(conditions: Mapping[str, str], types: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Args:
        conditions: as `read_conditions` gives them.
        values: column -> its value.
    """
    tried = ", ".join(f"TRY((\n{sql}\n))" for sql in conditions.values())
    try:
        [holds] = _connection().execute(f"SELECT {tried} FROM ({_row(types)})", list(values.values())).fetchall()
    except duckdb.Error as error:
        _connection.cache_clear()  # the error may have ended its database
        return {"failed": type(error).__name__}
    return {"holds": dict(zip(conditions, holds, strict=True))}


def _try(setting: str, sql: str, types: Mapping[str, str]) -> None:
    """
    Raises:
        ConfigurationError: DuckDB cannot judge the condition, or it gives something else than true or false.
    """
    try:
        judged = _connection().execute(
            f"SELECT (\n{sql}\n) FROM ({_row(types)})", [SAMPLES[one] for one in types.values()]
        )
        [(_, kind, *_)] = judged.description
        judged.fetchall()
    except (duckdb.OutOfRangeException, duckdb.InvalidInputException):  # as sqrt(lag - 2): it has no value for this row
        return
    except duckdb.Error as error:
        raise ConfigurationError(f"{setting}: {first_line(error)}") from None
    if str(kind) != "BOOLEAN":
        raise ConfigurationError(f"{setting}: is of the type {kind}, and has to be BOOLEAN: compare it with something")


def _row(types: Mapping[str, str]) -> str:
    columns = (f"${number}::{kind} AS {quoted(column)}" for number, (column, kind) in enumerate(types.items(), 1))
    return f"SELECT {', '.join(columns) or '0'}"


def _with_doubles(text: str) -> str:
    """The condition with doubles, as the measures are, for the numbers that it compares and calculates with:
    5 * 1024 * 1024 * 1024 is too large for an INTEGER."""
    written = f"SELECT {text}".encode()  # positions are in bytes
    [[parsed]] = _connection().execute("SELECT json_serialize_sql($1::VARCHAR)", [written.decode()]).fetchall()
    ends, left = set(), [json.loads(parsed)]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            left += part.values()
            if part.get("class") in ("COMPARISON", "BETWEEN") or part.get("function_name") in ARITHMETIC:
                operands = [*part.values(), *(one["expression"] for one in part.get("arguments", ()))]
                for one in operands:
                    if isinstance(one, dict) and one.get("class") == "CONSTANT":
                        end = one["query_location"] + one["query_location_length"]
                        if NUMBER.fullmatch(written, one["query_location"], end):
                            ends.add(end)
    for end in sorted(ends, reverse=True):
        written = written[:end] + b"e0" + written[end:]
    return written.decode().removeprefix("SELECT ")


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    """A database without tables, which reaches nothing else, and where a division by zero is NULL."""
    con = connect()
    for setting in ("ieee_floating_point_ops = false", "error_on_division_by_zero = false"):
        con.sql(f"SET {setting}")
    for setting in ("enable_external_access = false", "lock_configuration = true"):
        con.sql(f"SET {setting}")
    return con


if __name__ == "__main__":
    main()
