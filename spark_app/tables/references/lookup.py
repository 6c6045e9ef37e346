"""Looks up the rows of a reference table by their keys."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
