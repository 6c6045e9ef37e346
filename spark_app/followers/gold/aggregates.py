"""Aggregates per key over the files of a silver table, as far as Arrow gives exactly Spark's values.

Rows are reduced in chunks and the results are combined, so memory depends on the number of keys, not of rows. If
several tasks read the files, each reduces its own files, and the driver combines all parts and computes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_app.followers.gold.input_rows import ALL_ROWS, InputRows
from spark_app.lake.delta.parquet import read_batches
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import Path
from spark_app.model.gold_functions import GOLD_FUNCTIONS, WINDOW_COLUMNS, ByArrow
from spark_app.model.record_schemas import TIMESTAMP

ROWS, BYTES = 1 << 15, 16 << 20  # of a chunk: the most rows, and about the most bytes
WIDE = pa.decimal128(38, 0)  # the type of a sum of integers, which is exact
KEYS = (types.is_string, types.is_binary, types.is_signed_integer, types.is_boolean)
EVERY = pc.CountOptions(mode="all")
SOURCE = b"protolake.column"  # metadata of a field: the names of its path, with NUL between them


def with_source(found: pa.Field, path: Path, name: str) -> pa.Field:
    """A column of silver, or a field inside it, under the name that the settings give it."""
    return found if path == (name,) else found.with_name(name).with_metadata({SOURCE: "\0".join(path)})


def source_of(field: pa.Field) -> Path:
    """The path in silver to what is read for a field."""
    source: bytes = (field.metadata or {}).get(SOURCE, field.name.encode())
    return tuple(source.decode().split("\0"))


class Aggregate(NamedTuple):
    """A column of the result. `field` is a column of the table; "" = all rows."""

    name: str
    function: str
    field: str


class Grouping(NamedTuple):
    """The aggregates of one table, grouped by the columns of `key`. `fields` are what to read, see `source_of`; a
    column that a file lacks is NULL for its rows. `rows` are the rows to aggregate, of those that were read."""

    key: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    fields: pa.Schema
    rows: InputRows = ALL_ROWS

    def is_exact_in_arrow(self) -> bool:
        """Whether Arrow gives exactly Spark's results. Spark treats NaN, -0.0 and means differently, so aggregates of
        floating-point columns and means are left to Spark, and so are fields inside columns."""
        if self.rows.gap or any(len(source_of(field)) > 1 for field in self.fields):
            return False
        own = [name for name in self.key if name not in WINDOW_COLUMNS]
        return all(_is_key(self.fields.field(name).type) for name in own) and all(map(self._suits, self.aggregates))

    def reduce(self, storage: Storage, keys: Iterable[str]) -> pa.Table:
        """Reduce the rows of the files to a part: one row per key, for `combine`.

        Raises:
            OSError, pa.ArrowException: a file cannot be read, or its columns do not fit those of the table.
        """
        parts = [self._group(self._of_rows(self.rows.schema(self.fields).empty_table()), self._first())]
        for rows in _gather(batch for key in keys for batch in self._read(storage, key)):
            parts.append(self._group(self._of_rows(self.rows.of(rows)), self._first()))
            if sum(map(len, parts[1:])) > max(ROWS, len(parts[0])):
                parts = [self.combine(parts)]
        return self.combine(parts)

    def combine(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Combine several parts into one."""
        return self._group(pa.concat_tables(parts), self._next()) if len(parts) > 1 else parts[0]

    def finish(self, part: pa.Table) -> pa.Table:
        """The result of the last part: the key and the aggregates. A sum of integers has the type `WIDE`."""
        part = part if self.key else part.drop_columns([part.column_names[0]])
        names = [*self.key, *(aggregate.name for aggregate in self.aggregates)]
        counts = [False] * len(self.key)
        counts += [GOLD_FUNCTIONS[aggregate.function].counts_rows for aggregate in self.aggregates]
        columns = zip(names, part.schema.types, counts, strict=True)
        return pa.Table.from_arrays(part.columns, schema=pa.schema([pa.field(n, t, not c) for n, t, c in columns]))

    def _suits(self, aggregate: Aggregate) -> bool:
        function = GOLD_FUNCTIONS[aggregate.function]
        if function.arrow is None or not aggregate.field:
            return function.arrow is not None and function.counts_rows
        return _SUITED[function.arrow.types](self.rows.schema(self.fields).field(aggregate.field).type)

    def _read(self, storage: Storage, key: str) -> Iterator[pa.RecordBatch]:
        """The fields of a file in batches, with the types of the table."""
        return read_batches(storage, key, self.fields, [source_of(field)[0] for field in self.fields], ROWS, BYTES)

    def _of_rows(self, rows: pa.Table) -> pa.Table:
        """The key columns, at least one, then the input column of each aggregate."""
        columns = [rows[name] for name in self.key] or [pa.array(np.zeros(len(rows), np.int8))]
        for aggregate in self.aggregates:
            values = rows[aggregate.field] if aggregate.field else columns[0]
            columns.append(values.cast(WIDE) if GOLD_FUNCTIONS[aggregate.function].widens else values)
        return pa.Table.from_arrays(columns, names=list(map(str, range(len(columns)))))

    def _first(self) -> list[tuple[str, pc.FunctionOptions | None]]:
        return [(_by_arrow(a).rows, None if a.field else EVERY) for a in self.aggregates]

    def _next(self) -> list[tuple[str, pc.FunctionOptions | None]]:
        return [(_by_arrow(a).parts, None) for a in self.aggregates]

    def _group(self, rows: pa.Table, functions: list[tuple[str, pc.FunctionOptions | None]]) -> pa.Table:
        count = max(len(self.key), 1)
        keys, columns = rows.column_names[:count], rows.column_names[count:]
        wanted = [(column, *how) for column, how in zip(columns, functions, strict=True)]
        return rows.group_by(keys, use_threads=False).aggregate(wanted).rename_columns(rows.column_names)


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join the batches of small files, because reducing a few rows costs as much as reducing many."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        gathered.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _by_arrow(aggregate: Aggregate) -> ByArrow:
    how = GOLD_FUNCTIONS[aggregate.function].arrow
    assert how is not None  # see `is_exact_in_arrow`
    return how


def _is_key(kind: pa.DataType) -> bool:
    return any(is_it(kind) for is_it in KEYS)


def _is_ordered(kind: pa.DataType) -> bool:
    return _is_key(kind) or types.is_decimal128(kind) or types.is_date32(kind) or bool(kind == TIMESTAMP)


_SUITED: dict[str, Callable[[pa.DataType], bool]] = {
    "plain": lambda kind: not types.is_nested(kind),
    "integers": lambda kind: bool(types.is_signed_integer(kind)),
    "ordered": _is_ordered,
}
