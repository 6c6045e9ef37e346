"""Joins the columns of reference tables to rows of silver.

The reasons: docs/decisions/references.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files.reference_files import read_copy
from spark_app.lake.files.storage import Storage
from spark_app.model.definitions import Join
from spark_app.tables.expectations.checks import LINEAGE, fields_named, select_fields

# Of this process, (lake, reference table) -> (content, index): the newest content that was read.
_indexes: dict[tuple[str, str], tuple[str, Index]] = {}
AT_ONCE = 100_000  # keys: Python makes an object of each to hash it
DECIMAL = pa.decimal128(20, 0)
LEAST, MOST = Decimal(-(2**63)), Decimal(2**63 - 1)  # of 64 bits


class Index:
    """The positions of the rows by the hashes of their keys, 16 bytes for each row.

    Args:
        rows: the first column has the keys: text, or whole numbers; each once, and none is NULL.
    """

    def __init__(self, rows: pa.RecordBatch):
        self._rows = rows
        hashes = _hashes(rows.column(0))
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]

    def look_up(self, keys: pa.ChunkedArray) -> pa.RecordBatch:
        """The row of each key, in the order of the keys, without its own key; all columns are NULL where there is none.

        Args:
            keys: text if the reference's keys are, else whole numbers. NULL has no row.
        """
        found = as_keys(keys, self._rows.column(0).type).combine_chunks().dictionary_encode()
        row_of = np.full(len(found.dictionary) + 1, -1, np.int64)  # the last is that of NULL
        row_of[:-1] = self._rows_of(found.dictionary)
        rows = row_of[found.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        columns = self._rows.select(self._rows.schema.names[1:])
        return columns.take(pa.array(rows, mask=rows < 0))

    def _rows_of(self, keys: pa.Array) -> np.ndarray:
        """The position of each key's row, -1 = there is none."""
        hashes, rows = _hashes(keys), np.full(len(keys), -1, np.int64)
        at = np.searchsorted(self._sorted, hashes)
        left = np.arange(len(keys))
        while len(left):
            left = left[at[left] < len(self._sorted)]
            left = left[self._sorted[at[left]] == hashes[left]]
            candidates = self._order[at[left]]
            same = pc.equal(self._rows.column(0).take(pa.array(candidates)), keys.take(pa.array(left)))
            is_it = same.to_numpy(zero_copy_only=False).astype(bool)
            rows[left[is_it]] = candidates[is_it]
            left = left[~is_it]
            at[left] += 1  # another key has the same hash
        return rows


def is_key(kind: pa.DataType) -> bool:
    """Whether a column of the type can name the row of a reference table."""
    return is_text(kind) or is_number(kind)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or kind == DECIMAL)


def as_keys(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of keys in the type of the reference's keys; a number that the type cannot hold is NULL."""
    if column.type == kind:
        return column
    if kind == pa.int64() and pa.types.is_decimal(column.type):
        least, most = pa.scalar(LEAST, DECIMAL), pa.scalar(MOST, DECIMAL)
        inside = pc.and_(pc.less_equal(column, most), pc.greater_equal(column, least))
        column = pc.if_else(inside, column, pa.scalar(None, column.type))
    return column.cast(kind)


def _hashes(keys: pa.Array) -> np.ndarray:
    if keys.type == pa.int64():
        numbers: np.ndarray = keys.to_numpy()
        return numbers
    parts = (keys.slice(first, AT_ONCE).to_pylist() for first in range(0, len(keys), AT_ONCE))
    return np.fromiter((hash(key) for part in parts for key in part), np.int64, len(keys))


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
    first = next((at for at, name in enumerate(kept) if name == LINEAGE.names[0]), len(kept))
    names = [*kept[:first], *joined, *kept[first:]]
    return pa.table({name: joined[name] if name in joined else rows.column(name) for name in names})


def _index_of(one: Join, storage: Storage) -> Index:
    key = storage.root, one.reference
    content, index = _indexes.get(key, ("", None))
    if index is None or content != one.content:
        index = Index(read_copy(storage, one.reference, one.content))
        _indexes[key] = one.content, index
    return index
