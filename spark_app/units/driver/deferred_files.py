"""For each file of `deferred_events`: what its records wait for, and how many.

A record waits for its schema, for its table if that is paused, or for nothing. The key of what it waits for is a text:
that of the schema, or "table:" and the name of the silver table.

Finding ready records then needs only a comparison of keys, and only files with ready records are read. Files are
immutable: each is summarised once, mostly from the log's statistics. No file has more records than a unit, so none is
rewritten twice because of its size; records of a frequent schema get files of their own, which are removed as a whole.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_app.lake.delta.rewrite import complete
from spark_app.lake.delta.table_handles import Tables
from spark_app.model.record_schemas import DEFERRED_SCHEMA
from spark_app.units.driver.size_backoff import MOST_AT_ONCE

WAITS_FOR, TABLE = "waits_for", "table"
SINCE = "deferred_at"
KEY_COLUMNS = pa.schema([DEFERRED_SCHEMA.field(name) for name in (WAITS_FOR, TABLE, SINCE)])
OF_TABLE = "table:"
MOST_READ = 2 * MOST_AT_ONCE  # records, ready or not, that a unit reads or that one merge reads
ALONE = 10_000  # from this many records on a schema gets a file of its own
BATCH = 50_000
BOUNDS = [f"{bound}.{name}" for name in (WAITS_FOR, TABLE) for bound in ("null_count", "min", "max")]
LOG_STATISTICS = ("path", "num_records", *BOUNDS, f"min.{SINCE}")  # in the log, per file
MIXED = "more than one"  # not a key


@dataclass(frozen=True)
class DeferredFile:
    """A file of `deferred_events`.

    Attributes:
        path: relative to the table's folder.
        keys: the distinct keys of what its records wait for; NULL = nothing (written by `--land-only`).
        counts: records that wait for each.
        since: since when the first of its records is deferred.
    """

    path: str
    rows: int
    keys: pa.Array
    counts: np.ndarray
    since: datetime.datetime

    def count(self, keys: pa.Array) -> int:
        """The number of records with one of these keys."""
        return int(self.counts[pc.is_in(self.keys, value_set=keys).to_numpy(zero_copy_only=False)].sum())

    @cached_property
    def table_keys(self) -> frozenset[str]:
        """The keys of tables among `keys`."""
        return frozenset(key for key in self.keys.to_pylist() if key is not None and key.startswith(OF_TABLE))

    @property
    def kind(self) -> str | None:
        """The one key of all its records, or `MIXED`."""
        return self.keys[0].as_py() if len(self.keys) == 1 else MIXED


class DeferredFiles:
    """The files of the table. `refresh` needs the unit lock; the other methods do not."""

    def __init__(self, tables: Tables, name: str):
        self._tables = tables
        self._name = name
        self._version: int | None = None
        self._files: dict[str, DeferredFile | None] = {}  # None = not summarised yet

    @property
    def files(self) -> list[DeferredFile]:
        """The summarised files, oldest records first: a file that was written again has records of earlier units."""
        files = (file for file in self._files.values() if file is not None)
        return sorted(files, key=lambda file: (file.since, file.path))

    @property
    def table_keys(self) -> frozenset[str]:
        """The keys of the paused tables whose rows wait."""
        return frozenset[str]().union(*(file.table_keys for file in self.files))

    def refresh(self) -> None:
        """Read the list of files from the log."""
        version = self._tables.version(self._name)
        if version != self._version or version is None:
            table = self._tables.get(self._name) if version is not None else None
            actions = pa.table(table.get_add_actions(flatten=True)) if table is not None else pa.table({})
            found = actions.select([name for name in LOG_STATISTICS if name in actions.column_names]).to_pylist()
            self._files = {row["path"]: self._files.get(row["path"]) or _from_log_statistics(row) for row in found}
            self._version = version

    def read_counts(self) -> None:
        """Read and summarise the files for which the log's statistics are not enough."""
        for path in [path for path, file in self._files.items() if file is None]:
            self._files[path] = self._count_keys(path)

    def _count_keys(self, path: str) -> DeferredFile:
        counts: dict[str | None, int] = defaultdict(int)
        since: list[datetime.datetime] = []
        for batch in self._batches(path, KEY_COLUMNS):
            since.append(pc.min(batch.column(SINCE)).as_py())
            for item in keys_of(batch).value_counts().to_pylist():
                counts[item["values"]] += item["counts"]
        keys, numbers = pa.array(counts, pa.string()), np.array([*counts.values()])
        return DeferredFile(path, sum(counts.values()), keys, numbers, min(since))

    def read(self, files: Iterable[DeferredFile]) -> Iterator[pa.RecordBatch]:
        """The rows of the files, in order."""
        for file in files:
            yield from self._batches(file.path, DEFERRED_SCHEMA)

    def _batches(self, path: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        key = f"{self._name}/{path}"
        with self._tables.storage.open_input(key) as source, pq.ParquetFile(source) as file:
            there = [name for name in columns.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(BATCH, columns=there, use_threads=False):
                yield complete(batch, columns)

    def files_to_merge(self, enough: int) -> list[DeferredFile]:
        """Small files to merge, once there are `enough` of one size and kind, so that each record is rewritten only a
        few times however long it waits. Empty if there are not enough."""
        alike: dict[tuple[int, str | None], list[DeferredFile]] = defaultdict(list)
        for file in self.files:
            if file.rows < MOST_AT_ONCE // 2:
                alike[len(str(file.rows)), file.kind].append(file)
        for files in alike.values():
            if len(files) >= enough or sum(file.rows for file in files) >= MOST_READ:
                return list(fitting(files, MOST_READ, lambda file: file.rows))
        return []


def fitting(files: Iterable[DeferredFile], most: int, size: Callable[[DeferredFile], int]) -> Iterator[DeferredFile]:
    """Files from the start with at most `most` records in total; at least one."""
    total = 0
    for number, file in enumerate(files):
        total += size(file)
        if number and total > most:
            return
        yield file


def key_of_table(name: str) -> str:
    """The key of the rows of a silver table that is paused."""
    return OF_TABLE + name


def keys_of(rows: pa.RecordBatch) -> pa.Array:
    """For each row the key of what it waits for; NULL = nothing."""
    return pc.coalesce(pc.binary_join_element_wise(OF_TABLE, rows.column(TABLE), ""), rows.column(WAITS_FOR))


def group_by_key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows to write again; records with a frequent key are separated."""
    for rows in map(pa.Table.combine_chunks, _chunks(batches)):
        keys = pc.dictionary_encode(keys_of(rows.to_batches()[0]), null_encoding="encode")
        codes = keys.indices.to_numpy()
        many = np.flatnonzero(np.bincount(codes) >= ALONE)
        parts = [codes == code for code in many] + [~np.isin(codes, many)]
        for part in parts:
            alike = rows.filter(pa.array(part))
            for start in range(0, alike.num_rows, MOST_AT_ONCE):
                yield _without_unused(alike.slice(start, MOST_AT_ONCE))


def _without_unused(rows: pa.Table) -> pa.Table:
    """The rows without the column of tables, if none of them has one."""
    return rows if rows[TABLE].null_count < len(rows) else rows.drop_columns([TABLE])


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    chunk: list[pa.RecordBatch] = []
    for batch in batches:
        chunk.append(batch)
        if sum(len(held) for held in chunk) >= MOST_READ:
            yield pa.Table.from_batches(chunk, DEFERRED_SCHEMA)
            chunk = []
    if chunk:
        yield pa.Table.from_batches(chunk, DEFERRED_SCHEMA)


def _from_log_statistics(row: Mapping[str, Any]) -> DeferredFile | None:
    """A file whose records all wait for the same according to the log; None if the log does not show that."""
    rows, since, key = row.get("num_records"), row.get(f"min.{SINCE}"), _only_value(row, TABLE)
    if not rows or since is None or key is MIXED:
        return None
    key = _only_value(row, WAITS_FOR) if key is None else key_of_table(key)
    if key is MIXED:
        return None
    return DeferredFile(row["path"], rows, pa.array([key], pa.string()), np.array([rows]), since)


def _only_value(row: Mapping[str, Any], column: str) -> str | None:
    """The value that a column has in all rows of a file according to the log; `MIXED` if the log does not show one. A
    column of tables without statistics is not in the file."""
    nulls, low, high = (row.get(f"{bound}.{column}") for bound in ("null_count", "min", "max"))
    if nulls == row.get("num_records") or (column == TABLE and nulls is None and low is None):
        return None
    found: str | None = low if nulls == 0 and low is not None and low == high else MIXED
    return found
