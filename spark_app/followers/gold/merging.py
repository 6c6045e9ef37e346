"""Merges new aggregates into a small gold table in memory; `GoldTables` merges large tables with Delta's MERGE.

Both give the same rows: any value replaces NULL, and NaN is the greatest number, as in Spark. A sum of integers is
exact: if one exceeds 64 bits, its column becomes `WIDE_SUM`, which no sum of 64-bit integers exceeds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.followers.gold.spec import GoldSpec
from spark_app.model.gold_functions import Merge

WIDE_SUM = pa.decimal128(38, 0)
INTEGER = pa.int64()


def narrow(part: pa.Table) -> pa.Table:
    """The table with each `WIDE_SUM` column cast to 64-bit integers, if all its values fit."""
    for position, field in enumerate(part.schema):
        if field.type == WIDE_SUM:
            with contextlib.suppress(pa.ArrowInvalid):
                part = part.set_column(position, field.name, part[field.name].cast(INTEGER))
    return part


def widen(columns: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The columns; integer columns that are `WIDE_SUM` in `other` become `WIDE_SUM`."""
    wide = {field.name for field in columns if field.type == INTEGER and other.field(field.name).type == WIDE_SUM}
    return pa.schema([field.with_type(WIDE_SUM) if field.name in wide else field for field in columns])


def beyond_64_bits(rows: pa.Table, key: Sequence[str]) -> dict[str, list[Any]]:
    """`WIDE_SUM` column -> the keys whose sum exceeds 64 bits."""
    wide = [field.name for field in rows.schema if field.type == WIDE_SUM]
    outside = {name: pc.or_(pc.greater(rows[name], 2**63 - 1), pc.less(rows[name], -(2**63))) for name in wide}
    return {name: values_of(rows.filter(mask), key) for name, mask in outside.items()}


def values_of(rows: pa.Table, key: Sequence[str]) -> list[Any]:
    """The keys of the rows: values, or tuples of them if the key has not one column."""
    if len(key) == 1:
        values: list[Any] = rows[key[0]].to_pylist()
        return values
    return list(zip(*(rows[name].to_pylist() for name in key), strict=True)) if key else [()] * len(rows)


def codes_of(tables: Sequence[pa.Table], key: Sequence[str]) -> list[pa.Array]:
    """A column for each table, which is equal where the keys are: numbers, or the key itself if it has one column. The
    columns of the key have the same types in all tables."""
    if len(key) == 1:
        return [table[key[0]] for table in tables]
    codes = np.zeros(sum(map(len, tables)), np.int64)
    for name in key:
        column = pa.chunked_array([chunk for table in tables for chunk in table[name].chunks], tables[0][name].type)
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes * len(encoded.dictionary) + indices, return_inverse=True)
    ends = np.cumsum([0, *map(len, tables)])
    return [pa.array(codes[first:last]) for first, last in itertools.pairwise(ends)]


def can_fold(columns: pa.Schema, part: pa.Schema) -> bool:
    """Whether both have the same columns, and none is nested: Arrow cannot compare nested values."""
    return set(columns.names) == set(part.names) and not any(pa.types.is_nested(field.type) for field in columns)


def fold(old: pa.Table, part: pa.Table, spec: GoldSpec) -> pa.Table:
    """Merge `part` (one row per key) into `old`: rows of known keys are merged, or replaced if the spec is not
    incremental; rows of new keys are appended. Columns and types are those of `old`, except sums that became
    `WIDE_SUM`."""
    old = old.cast(widen(old.schema, part.schema))
    part = part.select(old.column_names).cast(old.schema)
    key = spec.touched
    old_keys, new_keys = codes_of((old, part), key)
    at = pc.index_in(old_keys, value_set=new_keys)  # of each old row in `part`
    found = pc.is_valid(at)
    if spec.gap_s:  # a new row may have joined two sessions
        return pa.concat_tables([old.filter(pc.is_null(at)), part])
    columns = {}
    for name in old.column_names:
        new = old[name] if name in key else _folded(spec.merge_of(name), old[name], part[name].take(at))
        columns[name] = pc.if_else(found, new, old[name].cast(new.type))
    folded = pa.table(columns)
    new = part.filter(pc.is_null(pc.index_in(new_keys, value_set=old_keys)))
    return pa.concat_tables([folded, new.cast(folded.schema)])


def _folded(how: Merge | None, old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
    if how is None:
        return new
    if how == "+":
        total = _sum(old, new)
        return pc.coalesce(total, old.cast(total.type), new.cast(total.type))
    first, second = (new, old) if how == "least" else (old, new)
    before = pc.fill_null(pc.or_(pc.less(first, second), _is_nan(second)), False)
    return pc.if_else(pc.and_(pc.is_valid(new), pc.or_(pc.is_null(old), before)), new, old)


def _sum(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
    """The sums; NULL if either value is NULL.

    Raises:
        ArrowInvalid: a sum has more digits than its decimal type.
    """
    kind = old.type
    if pa.types.is_decimal(kind):
        wide = pa.decimal256(kind.precision, kind.scale)
        return pc.add_checked(old.cast(wide), new.cast(wide)).cast(kind)
    try:
        return pc.add_checked(old, new)
    except pa.ArrowInvalid:
        return _sum(old.cast(WIDE_SUM), new.cast(WIDE_SUM))


def _is_nan(values: pa.ChunkedArray) -> Any:
    return pc.is_nan(values) if pa.types.is_floating(values.type) else pa.scalar(False)
