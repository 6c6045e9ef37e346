"""Statements that find which rows fail which checks, prepared once for all rows with the same columns.

Days are written as hours where that saves DuckDB its calendar, which takes several times as long as all other steps of
a check. In UTC a day has 24 hours, so the result is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST = 100  # statements that are kept
# INTERVAL 7 DAY, INTERVAL '7' DAY, INTERVAL '7 days'. With six digits the hours fit into an interval.
DAYS = re.compile(rb"INTERVAL\s+'?(\d{1,6})'?\s+(DAY|WEEK)S?'?", re.IGNORECASE)
HOURS = {b"DAY": 24, b"WEEK": 168}
MOMENT = pa.timestamp("us", "UTC")


class _Rows:
    """The input of a statement: the rows of its current run, which DuckDB requests by Arrow's C interface."""

    def __init__(self, rows: pa.Table):
        self.now = rows

    def __arrow_c_schema__(self) -> Any:
        return self.now.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.now.__arrow_c_stream__(requested_schema)


class _Statement:
    """A prepared statement, and the view that it reads. `number` is in the names of both."""

    def __init__(self, con: DuckDBPyConnection, number: int, schema: pa.Schema, checks: Sequence[str]):
        self._con, self._name = con, f"checks {number}"
        self._none = schema.empty_table()
        self._rows = _Rows(self._none)
        # No column can have the name of the view, because it has a space. So no check can name it.
        self._view = f"the rows {number}"
        con.register(self._view, self._rows)
        try:
            bitmask = _bitmask([write_in_hours(con, check, schema) for check in checks])
            con.execute(f'PREPARE "{self._name}" AS SELECT {bitmask} AS failed FROM "{self._view}"')
        except BaseException:
            con.unregister(self._view)
            raise

    def run(self, rows: pa.Table) -> np.ndarray:
        self._rows.now = rows
        try:
            failed: np.ndarray = self._con.execute(f'EXECUTE "{self._name}"').fetchnumpy()["failed"]
        finally:
            self._rows.now = self._none
        return failed

    def close(self) -> None:
        self._con.execute(f'DEALLOCATE "{self._name}"')
        self._con.unregister(self._view)


class Statements:
    """The statements of one connection. Preparing one takes as long as running it on 20,000 rows."""

    def __init__(self, con: DuckDBPyConnection):
        self._con = con
        self._numbers = count()
        self._kept: dict[tuple[pa.Schema, tuple[str, ...]], _Statement] = {}

    def run(self, rows: pa.Table, checks: tuple[str, ...]) -> np.ndarray:
        """An int64 bitmask per row: bit i is 1 if `checks[i]` is not true.

        Raises:
            duckdb.Error: DuckDB cannot evaluate one of the checks for these columns.
        """
        key = rows.schema, checks
        statement = self._kept.get(key)
        if statement is None:
            if len(self._kept) == MOST:
                self._kept.pop(next(iter(self._kept))).close()
            statement = self._kept[key] = _Statement(self._con, next(self._numbers), rows.schema, checks)
        return statement.run(rows)


def _bitmask(checks: Sequence[str]) -> str:
    # The line breaks end a comment at the end of a check.
    cases = (f"CASE WHEN TRY((\n{check}\n)) THEN 0::BIGINT ELSE {1 << i}::BIGINT END" for i, check in enumerate(checks))
    return " | ".join(cases)


def write_in_hours(con: DuckDBPyConnection, check: str, schema: pa.Schema) -> str:
    """The check with hours instead of the days that it adds to a column, or subtracts from one, that is a moment.

    Args:
        check: a check that `checks.check_columns` accepts.
        schema: the columns that it can name.
    """
    moments = {field.name.lower() for field in schema if field.type == MOMENT}
    text = f"SELECT {check}"
    rows = con.sql("SELECT json_serialize_sql($1::VARCHAR)", params=[text]).fetchall()
    written = text.encode()  # positions are in bytes
    for begin, end in sorted(_places_added_to(json.loads(rows[0][0]), moments), reverse=True):
        if found := DAYS.fullmatch(written, begin, end):
            hours = int(found[1]) * HOURS[found[2].upper()]
            written = written[:begin] + b"INTERVAL %d HOUR" % hours + written[end:]
    return written.decode().removeprefix("SELECT ")


def _places_added_to(tree: Any, columns: set[str]) -> Iterator[tuple[int, int]]:
    """The positions in the text (begin, end) of what is added to one of the columns or subtracted from one."""
    left = [tree]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict) and part.get("class") != "LAMBDA":  # its parameters may have names of columns
            left += part.values()
            if part.get("is_operator") and part["function_name"] in ("+", "-") and len(part["arguments"]) == 2:
                first, second = (argument["expression"] for argument in part["arguments"])
                for one, other in ((first, second), (second, first)):
                    if len(names := one.get("column_names", ())) == 1 and names[0].lower() in columns:
                        begin = other["query_location"]
                        yield begin, begin + other["query_location_length"]
