"""Folding a row per key into a table of rows per key, in memory. The same as the merge of `GoldTables`, which large
tables go through: NULL gives way to any value, NaN is the greatest number, as for Spark.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.gold.definition import FOLDED, Definition


def can_fold(columns: pa.Schema, part: pa.Schema) -> bool:
    """Whether both have the same columns, whose values can be compared here."""
    return set(columns.names) == set(part.names) and not any(pa.types.is_nested(field.type) for field in columns)


def fold(old: pa.Table, part: pa.Table, definition: Definition) -> pa.Table:
    """The rows of `old` with those of `part` folded in, or in their place where that cannot be folded; then its new
    keys. Columns and types are those of `old`."""
    part = part.select(old.column_names).cast(old.schema)
    key = definition.key
    at = pc.index_in(old[key], value_set=part[key])  # of each old row in `part`
    found = pc.is_valid(at)
    columns = [old[key]]
    for name in old.column_names:
        if name == key:
            continue
        how = FOLDED[definition.aggregates[name].function] if definition.foldable else None
        columns.append(pc.if_else(found, _folded(how, old[name], part[name].take(at)), old[name]))
    folded = pa.table(columns, [key, *(name for name in old.column_names if name != key)])
    new = part.filter(pc.is_null(pc.index_in(part[key], value_set=old[key])))
    return pa.concat_tables([folded.select(old.column_names).cast(old.schema), new])


def _folded(how: str | None, old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
    if how is None:
        return new
    if how == "+":
        return pc.coalesce(_sum(old, new), old, new)
    first, second = (new, old) if how == "least" else (old, new)
    before = pc.fill_null(pc.or_(pc.less(first, second), _is_nan(second)), False)
    return pc.if_else(pc.and_(pc.is_valid(new), pc.or_(pc.is_null(old), before)), new, old)


def _sum(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
    """
    Raises:
        ArrowInvalid: it does not fit the type.
    """
    kind = old.type
    if not pa.types.is_decimal(kind):
        return pc.add_checked(old, new)
    wide = pa.decimal256(kind.precision, kind.scale)
    return pc.add_checked(old.cast(wide), new.cast(wide)).cast(kind)


def _is_nan(values: pa.ChunkedArray) -> Any:
    return pc.is_nan(values) if pa.types.is_floating(values.type) else pa.scalar(False)
