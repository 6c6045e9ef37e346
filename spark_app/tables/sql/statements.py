"""Statements that tell which rows fail which checks, prepared once for all rows with the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_app.tables.sql.intervals import write_in_hours

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST = 100  # statements that are kept


class _Rows:
    """What a statement reads: the rows of its current run, which DuckDB asks for by Arrow's C interface."""

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
