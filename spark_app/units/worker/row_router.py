"""Puts decoded rows into their tables: the routing value names the table, whose columns the rows are fitted to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_app.model.catalog import Catalog
from spark_app.model.causes import Reject
from spark_app.model.columns import column_of
from spark_app.protobuf import unwrap
from spark_app.protobuf.columns.fit import fit, known_types, table_columns
from spark_app.tables.route import Routed, pick, route
from spark_app.units.worker.task_plan import TaskPlan

Fitted = tuple[np.ndarray, pa.Table, list[Reject]]


class RowRouter:
    """Of one task. It keeps the columns of each table that the task has rows of."""

    def __init__(self, plan: TaskPlan, catalog: Catalog):
        self._plan = plan
        self._catalog = catalog
        self._columns: dict[tuple[tuple[str, ...], str], pa.Schema] = {}
        self._types: dict[pa.Schema, pa.Schema] = {}

    def route(self, table: pa.Table, count: int, message: str, outer: pa.Table | None) -> tuple[Routed, pa.Table]:
        """The tables of `count` rows, and the rows with what their wrappers contain besides.

        Args:
            outer: the wrappers, a row for each; None where the messages have none.
        """
        routing = self._plan.routing
        wrapper, _, own = message.rpartition("/")
        chosen, column = table, self._routing_column(own, table)
        if outer is not None and (of_outer := self._routing_column(wrapper, outer)) in outer.column_names:
            chosen, column = outer, of_outer
        routed = route(chosen, count, routing, message, column).with_paused(self._plan.paused)
        if outer is not None and self._plan.wrapper is not None:
            rest = unwrap.keep_rest(outer, self._plan.wrapper)
            table = table if rest is None else _with_column(table, unwrap.COLUMN, rest)
        return routed, table

    def _routing_column(self, message: str, table: pa.Table) -> str:
        return column_of(self._plan.routing.field, table.column_names, self._catalog.aliases.get(message, {}))

    def fit(self, routed: Routed, table: pa.Table) -> Iterator[tuple[np.ndarray, Fitted, pa.Schema]]:
        """For the rows of all tables with the same columns: (their positions, what fits, the columns). What fits:
        positions among these, the rows by the tables' columns, and the rejects of the others."""
        for columns, codes in self._by_columns(routed):
            rows = np.flatnonzero(np.isin(routed.codes, codes))
            if table.column_names:
                fitted, good, misfits = fit(pick(table, rows), columns)
                yield rows, (good, fitted, misfits), columns
            else:  # there is nothing to fit, and Arrow keeps no rows without columns
                yield rows, (np.arange(len(rows)), table, []), columns

    def types(self, columns: pa.Schema) -> pa.Schema:
        """As `known_types`, by the catalog of the task."""
        if columns not in self._types:
            self._types[columns] = known_types(columns, self._catalog)
        return self._types[columns]

    def _by_columns(self, routed: Routed) -> list[tuple[pa.Schema, list[int]]]:
        """The codes that have a table, by the columns of their tables: those of one message type share them."""
        routing = self._plan.routing
        found: dict[tuple[tuple[str, ...], str], list[int]] = {}
        for code, result in enumerate(routed.results):
            if result.name is not None:
                fixed = result.name if result.name in routing.fixed else ""
                found.setdefault((routing.messages[result.name], fixed), []).append(code)
        return [(self._columns_of(*alike), codes) for alike, codes in found.items()]

    def _columns_of(self, messages: tuple[str, ...], fixed: str) -> pa.Schema:
        """Columns of the tables with these message types; `fixed` names the one that has columns already."""
        if (messages, fixed) not in self._columns:
            self._columns[messages, fixed] = table_columns(
                messages, self._catalog.columns, self._plan.wrapper, self._plan.routing.fixed.get(fixed)
            )
        return self._columns[messages, fixed]


def _with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """The table, which may have no columns and so no rows either, with one more."""
    return pa.Table.from_arrays([*table.columns, column], names=[*table.column_names, name])
