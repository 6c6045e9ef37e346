"""Joins the columns of reference tables to rows of silver."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_app.lake.files.reference_files import read_copy
from spark_app.lake.files.storage import Storage
from spark_app.model.projections import Join
from spark_app.tables.expectations.checks import LINEAGE, fields_named, select_fields
from spark_app.tables.references.lookup import Index

# Of this process, (lake, reference table) -> (content, index): the newest content that was asked for.
_indexes: dict[tuple[str, str], tuple[str, Index]] = {}


def join(rows: pa.Table, joins: Iterable[Join], types: pa.Schema, storage: Storage) -> pa.Table:
    """The rows, as many and in the same order, with the joined columns. Those that the rows have replace a column of
    the same name, whatever its case; others stand before the columns of the lineage.

    Args:
        rows: with the columns of the message and of the lineage.
        types: the types of columns that the rows may lack.
        storage: the lake, which has the copies of the reference tables.

    Raises:
        FileNotFoundError: a copy is no longer kept.
    """
    joined: dict[str, pa.Array] = {}
    for one in joins:
        fields = fields_named([one.on], rows.schema, types) or pa.schema([(one.on, pa.string())])
        found = _index_of(one, storage).look_up(select_fields(rows, fields).column(0))
        joined |= zip(one.columns, found.select(list(one.columns)).columns, strict=True)
    return with_columns(rows, joined) if joined else rows


def with_columns(rows: pa.Table, joined: dict[str, pa.Array]) -> pa.Table:
    """The rows with columns that replace those of the same name, or stand before the lineage."""
    folded = {name.casefold() for name in joined}
    kept = [name for name in rows.column_names if name.casefold() not in folded]
    first = next((place for place, name in enumerate(kept) if name == LINEAGE.names[0]), len(kept))
    names = [*kept[:first], *joined, *kept[first:]]
    return pa.table({name: joined[name] if name in joined else rows.column(name) for name in names})


def _index_of(one: Join, storage: Storage) -> Index:
    place = storage.root, one.reference
    content, index = _indexes.get(place, ("", None))
    if index is None or content != one.content:
        index = Index(read_copy(storage, one.reference, one.content))
        _indexes[place] = one.content, index
    return index
