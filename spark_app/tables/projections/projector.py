"""Gives rows of silver the columns of a projection."""

from __future__ import annotations

import pyarrow as pa

from spark_app.model.projections import Projection
from spark_app.tables.expectations.checks import LINEAGE, fields_named, select_fields
from spark_app.tables.sql.expressions import evaluate
from spark_app.tables.sql.names import columns_in


def project(rows: pa.Table, projection: Projection, types: pa.Schema, key: bytes | None) -> pa.Table:
    """The rows of silver with the columns of the projection. New columns stand before those of the lineage.

    Args:
        rows: of one table, with the columns of the message and of the lineage.
        types: the types of columns that the rows may lack; such a column is NULL.
        key: of `hmac()`; None if no expression calls it.

    Raises:
        NoType: the text names the column.
    """
    named = {name for _, text in projection.columns for name in columns_in(text)}
    needed = select_fields(rows, fields_named(named, rows.schema, types))
    made = evaluate(needed, dict(projection.columns), key)
    by_name = {name.casefold(): name for name in made}
    dropped = {name.casefold() for name in projection.drops}
    fields: dict[str, pa.ChunkedArray] = {}
    for name in rows.column_names:
        own = by_name.pop(name.casefold(), None)
        if name == LINEAGE.names[0]:
            fields |= {new: made[new] for folded, new in by_name.items() if not folded.startswith("_")}
        if own is not None:
            fields[own] = made[own]
        elif name.casefold() not in dropped:
            fields[name] = rows.column(name)
    return pa.table(fields | {new: made[new] for new in by_name.values()})
