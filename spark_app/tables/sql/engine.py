"""Evaluates checks on rows, in DuckDB.

The reasons: docs/decisions/expectations.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_app.model.definitions import MAX_EXPECTATIONS
from spark_app.tables.sql.statements import Statements

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from duckdb.sqltypes import DuckDBPyType

# No column can have this name, because it has a space. So no check can name the table.
ROWS = "the rows"


@functools.cache
def connection() -> DuckDBPyConnection:
    """The connection of this process. It is made at the first call; a process that forks must not have it."""
    return open_database()


def open_database() -> DuckDBPyConnection:
    """A connection to an empty database in memory, which reaches no file, no network and no Python variable, and whose
    settings are locked."""
    import duckdb  # most processes check no rows

    made = duckdb.connect(
        config={
            "threads": "1",
            "enable_external_access": "false",
            "temp_directory": "",
            "python_enable_replacements": "false",
        }
    )
    # The optimizer may rewrite a check so that an error in it is no longer one: x + 1 > 0 to x > -1.
    made.sql("PRAGMA disable_optimizer")
    for setting in ("TimeZone = 'UTC'", "memory_limit = '1GB'", "lock_configuration = true"):
        made.sql(f"SET {setting}")
    return made


def type_of_expression(con: DuckDBPyConnection, text: str, columns: pa.Schema) -> DuckDBPyType:
    """The type that an expression has for rows with these columns.

    Raises:
        duckdb.Error, pa.ArrowException: it has none.
    """
    con.register(ROWS, columns.empty_table())
    try:
        [kind] = con.sql(f'SELECT (\n{text}\n) FROM "{ROWS}"').types
    finally:
        con.unregister(ROWS)
    return kind


def short_message(text: str) -> str:
    """DuckDB's message without its kind and without the lines that repeat the statement."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return re.sub(r"^(\w+ ){1,3}Error: ", "", line)


def failures(rows: pa.Table, checks: Sequence[str]) -> np.ndarray:
    """Which rows fail which checks.

    Args:
        rows: has every column that a check names.
        checks: at most 62 checks that `checks.check_columns` accepts.

    Returns:
        An int64 bitmask per row, in the order of the rows. Bit i is 1 if `checks[i]` is not true for the row: it is
        false or NULL, or its evaluation is an error. A check that DuckDB cannot evaluate for these columns at all
        fails for every row.

    Raises:
        ValueError: there are more than 62 checks.
    """
    import duckdb

    if len(checks) > MAX_EXPECTATIONS:
        raise ValueError(f"{len(checks)} checks do not fit into a bitmask: {MAX_EXPECTATIONS} do")
    failed = np.zeros(rows.num_rows, np.int64)
    if not rows.num_rows or not checks:
        return failed
    try:
        return _statements(connection()).run(rows, tuple(checks))
    except duckdb.Error as error:
        _renew_after(error)
    for i, check in enumerate(checks):
        try:
            failed |= _statements(connection()).run(rows, (check,)) << i
        except duckdb.Error as error:
            _renew_after(error)
            failed |= 1 << i
    return failed


@functools.cache
def _statements(con: DuckDBPyConnection) -> Statements:
    return Statements(con)


def _renew_after(error: Exception) -> None:
    """Forget the connection after an error that ends its database: all later statements would fail too."""
    import duckdb

    if isinstance(error, duckdb.FatalException | duckdb.InternalException):
        _statements.cache_clear()
        connection.cache_clear()
