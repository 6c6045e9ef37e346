"""For each file of `deferred_events`: which schemas its records wait for, and how many.

Finding ready records then needs only a comparison of schema keys, and only files with ready records are read. Files are
immutable: each is summarised once, mostly from the log's statistics. No file has more records than a unit, so none is
rewritten twice because of its size; records of a frequent schema get files of their own, which are removed as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_app.driver.size_backoff import MOST_AT_ONCE
from spark_app.store.rewrite import complete
from spark_app.store.table_handles import Tables
from spark_app.worker.table_rows import DEFERRED_SCHEMA

KEY = "waits_for"
KEYS = pa.schema([DEFERRED_SCHEMA.field(KEY)])
MOST_READ = 2 * MOST_AT_ONCE  # records, ready or not, that a unit reads or that one merge reads
ALONE = 10_000  # from this many records on a schema gets a file of its own
BATCH = 50_000
LOG_STATISTICS = ("path", "num_records", f"null_count.{KEY}", f"min.{KEY}", f"max.{KEY}")  # in the log, per file
MIXED = "more than one"  # not a schema key


@dataclass(frozen=True)
class DeferredFile:
    """A file of `deferred_events`.

    Attributes:
        path: relative to the table's folder.
        keys: the distinct schemas that its records wait for; NULL = none (written by `--land-only`).
        counts: records that wait for each.
    """

    path: str
    rows: int
    keys: pa.Array
    counts: np.ndarray

    def count(self, resolved: pa.Array) -> int:
        """The number of ready records; `resolved` has the keys of resolved schemas, and NULL."""
        return int(self.counts[pc.is_in(self.keys, value_set=resolved).to_numpy(zero_copy_only=False)].sum())

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
        """The summarised files in the order of their names, which begin with the unit."""
        return [file for _, file in sorted(self._files.items()) if file is not None]

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
        for batch in self._batches(path, KEYS):
            for item in batch.column(KEY).value_counts().to_pylist():
                counts[item["values"]] += item["counts"]
        return DeferredFile(path, sum(counts.values()), pa.array(counts, pa.string()), np.array([*counts.values()]))

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


def group_by_schema(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows to write again; records of a frequent schema are separated."""
    for rows in _chunks(batches):
        keys = pc.dictionary_encode(rows[KEY].combine_chunks(), null_encoding="encode")
        codes = keys.indices.to_numpy()
        many = np.flatnonzero(np.bincount(codes) >= ALONE)
        parts = [codes == code for code in many] + [~np.isin(codes, many)]
        for part in parts:
            alike = rows.filter(pa.array(part))
            for start in range(0, alike.num_rows, MOST_AT_ONCE):
                yield alike.slice(start, MOST_AT_ONCE)


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
    """A file whose records all wait for the same schema according to the log; None if the log does not show that."""
    rows, nulls = row.get("num_records"), row.get(f"null_count.{KEY}")
    low, high = row.get(f"min.{KEY}"), row.get(f"max.{KEY}")
    if not rows or not (nulls == rows or (nulls == 0 and low is not None and low == high)):
        return None
    key = None if nulls else low
    return DeferredFile(row["path"], rows, pa.array([key], pa.string()), np.array([rows]))
