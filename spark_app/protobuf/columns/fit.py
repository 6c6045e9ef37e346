"""Converts decoded columns to the columns of their table.

A table has the columns of all versions of its message types, and a column keeps its first type. A value of another type
is accepted if its conversion is lossless, see `conversions`; otherwise its row is rejected.

The reasons: docs/decisions/column-types.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from spark_app.lake.delta.merged_columns import find_clash, merge_columns
from spark_app.model.catalog import Catalog
from spark_app.model.causes import Cause, Reject
from spark_app.model.columns import aliased_fields
from spark_app.model.record_schemas import RESERVED
from spark_app.model.wrapper import Wrapper
from spark_app.protobuf import unwrap
from spark_app.protobuf.columns.conversions import convert

NOTHING = pa.schema([])
CLASH = "its columns clash with those of the table's other message types: they differ only by case"


def table_columns(
    messages: Iterable[str],
    known: Mapping[str, pa.Schema],
    wrapper: Wrapper | None = None,
    fixed: pa.Schema | None = None,
) -> pa.Schema:
    """The columns of a table with rows of these message types, in this order.

    Args:
        messages: message types, `Wrapper/Inner` for a wrapped one. One whose columns clash is left out.
        known: message type -> columns of all its versions.
        fixed: existing columns of a table with several message types; they come first.
    """
    fixed = fixed or NOTHING
    columns = pa.schema([field for field in fixed if field.name not in RESERVED])
    rest = pa.schema([field for field in fixed if field.name == unwrap.COLUMN])
    for message in messages:
        outer, _, inner = message.rpartition("/")
        grown = merge_columns(columns, known.get(inner, NOTHING))
        more = merge_columns(rest, _rest_of(outer, known, wrapper))
        if find_clash(grown) is None and find_clash(_inside(more)) is None:
            columns, rest = grown, more
    return pa.schema([*columns, *rest])


def _rest_of(outer: str, known: Mapping[str, pa.Schema], wrapper: Wrapper | None) -> pa.Schema:
    """The column for the wrapper's other fields; no column if there are none."""
    if wrapper is None or not outer:
        return NOTHING
    fields = [field for field in known.get(outer, NOTHING) if field.name not in wrapper.own]
    return pa.schema([(unwrap.COLUMN, pa.struct(fields))] if fields else [])


def _inside(rest: pa.Schema) -> pa.Schema:
    return pa.schema([field for column in rest for field in column.type])


def known_types(columns: pa.Schema, catalog: Catalog) -> pa.Schema:
    """The columns that a rule can name: those of the tables, and those that only other message types have, by all of
    their names."""
    known = [field for columns_of_type in catalog.columns.values() for field in columns_of_type]
    known += (one for kind, names in catalog.aliases.items() for one in aliased_fields(catalog.columns[kind], names))
    found = {field.name.lower(): field for field in reversed(known)}
    own = {name.lower() for name in columns.names}
    return pa.schema([*columns, *(field for name, field in found.items() if name not in own)])


def fit(table: pa.Table, columns: pa.Schema) -> tuple[pa.Table, np.ndarray, list[Reject]]:
    """(converted rows, their row numbers, rejected rows)."""
    if not set(table.column_names) <= set(columns.names):
        return table.slice(0, 0), np.arange(0), [(row, Cause.DECODE_TYPE, CLASH) for row in range(len(table))]
    bad: dict[int, str] = {}
    fitted = []
    for field in table.schema:
        kind = columns.field(field.name).type
        column, misfits = _fit_column(table.column(field.name), kind)
        fitted.append(column)
        if misfits:
            bad = dict.fromkeys(misfits, f"{field.name}: {field.type} does not fit {kind}") | bad
    result = pa.table(fitted, schema=pa.schema([columns.field(name) for name in table.schema.names]))
    rows = np.arange(table.num_rows)
    if bad:
        good = np.ones(table.num_rows, bool)
        good[list(bad)] = False
        rows, result = np.flatnonzero(good), result.filter(pa.array(good))
    return result, rows, [(row, Cause.DECODE_TYPE, detail) for row, detail in sorted(bad.items())]


def _fit_column(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, list[int]]:
    """(the column in the type `kind`, with NULL for each value that does not fit; the row numbers of these values)."""
    if column.type == kind:
        return column, []
    parts = [convert(chunk, kind) for chunk in column.chunks]
    fits = np.concatenate([np.ones(0, bool), *(good for _, good in parts)])
    misfits: list[int] = np.flatnonzero(~fits).tolist()
    return pa.chunked_array([values for values, _ in parts], kind), misfits
