"""Rows of quarantine in DuckDB, without those that a replay has placed."""

from __future__ import annotations

from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.record_schemas import COORDINATES
from spark_app.page.queries.locked_tables import connect, open_tables
from spark_app.page.queries.quoting import quoted
from spark_app.settings.models import Settings

SAME = " AND ".join(f"q.{name} IS NOT DISTINCT FROM r.{name}" for name in COORDINATES)


class OpenRows:
    """
    Attributes:
        exist: whether the lake has a quarantine.
    """

    def __init__(self, lake: Lake, settings: Settings):
        layout = settings.tables.layout
        there = [table for table in (layout.quarantine, layout.resolved) if lake.has_table(table)]
        self.exist = layout.quarantine in there
        if not self.exist:
            return
        self._con = connect()
        open_tables(self._con, lake, there)
        self._columns = frozenset(self._con.table(layout.quarantine).columns)
        self._all = f"FROM {quoted(layout.quarantine)} q"
        placed = layout.resolved in there
        self._open = f"{self._all} ANTI JOIN {quoted(layout.resolved)} r ON {SAME}" if placed else self._all

    def column(self, name: str) -> str:
        """The column; NULL if no record has it yet."""
        return f"q.{quoted(name)}" if name in self._columns else "NULL"

    def select(self, what: str, behind: str = "", *values: Any, placed: bool = False) -> list[tuple[Any, ...]]:
        """The rows of a SELECT.

        Args:
            behind: what follows the tables, with a ? for each value.
            placed: also the records that a replay has placed.
        """
        return self._con.execute(f"SELECT {what} {self._all if placed else self._open} {behind}", values).fetchall()
