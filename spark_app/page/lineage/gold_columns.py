"""What each column of a gold table is made of, by the settings."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_app.followers.gold.definition import Definition
from spark_app.page.lineage.graph import APP, By, Edge, Place


def gold_edges(gold: str, columns: pa.Schema, silver: str, there: pa.Schema, definition: Definition) -> Iterator[Edge]:
    """The edges to each column of a gold table. A function of a field that silver has not got is one of the table.

    Args:
        columns: those that the gold table has.
        there: those that the silver table has.
    """
    for column in columns.names:
        target, aggregate = Place(gold, column), definition.aggregates.get(column)
        if column == definition.key:
            yield Edge(Place(silver, column), target, By("key"))
        elif aggregate is None:
            yield Edge(Place(APP), target, By("unknown"))
        else:
            field = definition.field_of(aggregate)
            known = field if field in there.names else ""
            yield Edge(Place(silver, known), target, By("aggregate", function=aggregate.function, reads=field))
