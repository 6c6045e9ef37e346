"""Evaluates rules on rows in a database of its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS = "rows of the audit"  # no column can have this name
# The optimizer moves expressions that occur twice out of TRY, and then the error of one row is an error of all.
SETTINGS = ("SET TimeZone = 'UTC'", "PRAGMA disable_optimizer", "SET lock_configuration = true")


@functools.cache
def _connection() -> DuckDBPyConnection:
    import duckdb  # most audits have no rules

    made = duckdb.connect(config={"threads": "1", "enable_external_access": "false"})
    for setting in SETTINGS:
        made.sql(setting)
    return made


@functools.cache
def columns_of(check: str) -> frozenset[str]:
    """The names in lower case that may be columns of the check."""
    rows = _connection().sql("SELECT json_serialize_sql($1::VARCHAR)", params=[f"SELECT {check}"]).fetchall()
    return frozenset(_named(json.loads(rows[0][0])))


def _named(tree: Any) -> Iterator[str]:
    """The columns in a parsed check, by loops because the tree may be deeper than Python's stack."""
    left: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]  # (node, parameters of the lambdas around it)
    while left:
        node, parameters = left.pop()
        if isinstance(node, list):
            left += ((item, parameters) for item in node)
        elif isinstance(node, dict):
            if node.get("class") == "LAMBDA" and node["syntax_type"] == "LAMBDA_KEYWORD":
                left.append((node["expr"], parameters.union(_named(node["lhs"]))))
                continue
            if node.get("class") == "COLUMN_REF" and node["column_names"][0].lower() not in parameters:
                yield node["column_names"][0].lower()
            left += ((item, parameters) for item in node.values())


def failing(rows: pa.Table, checks: Sequence[str], type_of: Callable[[str], pa.DataType]) -> list[np.ndarray]:
    """For each check which rows fail it: it is not true, or an error.

    Args:
        type_of: returns the type of a column, by its name in lower case, that the rows lack; it is NULL.
    """
    rows = with_missing(rows, frozenset[str]().union(*map(columns_of, checks)), type_of)
    return [_failing(rows, check) for check in checks]


def with_missing(rows: pa.Table, named: frozenset[str], type_of: Callable[[str], pa.DataType]) -> pa.Table:
    """The rows with those of the columns that they lack, which are NULL."""
    there = {name.lower() for name in rows.column_names}
    for name in sorted(named - there):
        rows = rows.append_column(name, pa.nulls(len(rows), type_of(name)))
    return rows


def _failing(rows: pa.Table, check: str) -> np.ndarray:
    import duckdb

    if not len(rows):
        return np.zeros(0, bool)
    connection = _connection()
    connection.register(ROWS, rows)
    try:
        found = connection.sql(f'SELECT COALESCE(TRY((\n{check}\n)), false) AS passed FROM "{ROWS}"').to_arrow_table()
    except duckdb.Error as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _connection.cache_clear()  # such an error ends the database, and all later checks would fail too
        return np.ones(len(rows), bool)
    finally:
        connection.unregister(ROWS)
    failed: np.ndarray = ~found["passed"].to_numpy()
    return failed
