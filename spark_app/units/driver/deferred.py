"""Decodes deferred records from bronze: records whose schema could not be resolved when they arrived, whose table was
paused, or that `--land-only` wrote. It uses the same job and manifest as ingest.

`deferred_events` holds only coordinates. A unit of this kind removes files from it and adds a file with those of their
records that still wait. `DeferredFiles` selects the files, so that the cost depends on the records that became ready.

A record waits for its schema, for its table if that is paused, or for nothing. The key of what it waits for is a text:
that of the schema, or "table:" and the name of the silver table. Finding ready records needs only a comparison of keys,
and only files with ready records are read. Files are immutable: each is summarised once, mostly from the log's
statistics. No file has more records than a unit, so none is rewritten twice because of its size; records of a frequent
schema get files of their own, which are removed as a whole.

The reasons: docs/decisions/waiting.md.
"""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_app.lake.delta.manifest import Change
from spark_app.lake.delta.rewrite import complete
from spark_app.lake.delta.table_handles import Tables
from spark_app.model.catalog import Catalog, SchemaKey, read_schema_key, wait_for_change
from spark_app.model.causes import Cause
from spark_app.model.errors import ContractError
from spark_app.model.log import log
from spark_app.model.record_schemas import BRONZE_SCHEMA, COORDINATES, DEFERRED_SCHEMA
from spark_app.model.reports import FileEntry, Report
from spark_app.protobuf.schemas.resolver import NO_LOCK, RETRY_WAIT_S
from spark_app.sources.bronze import ranges_of
from spark_app.units.driver.ingest import MOST_AT_ONCE, SizeBackoff
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import FROM_BRONZE, read_bronze
from spark_app.units.driver.unit import UnitRunner
from spark_app.units.worker.table_rows import count_values, quarantine_rows

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
        if sum(len(part) for part in chunk) >= MOST_READ:
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


class DeferredDecoder:
    """Decodes deferred records. It holds the unit lock while it builds a unit and while it lists files."""

    def __init__(
        self,
        session: SparkSession,
        opened: OpenLake,
        units: UnitRunner,
        unit_lock: AbstractContextManager[object] = NO_LOCK,
    ):
        self._session = session
        self._opened = opened
        self._settings = opened.settings
        self._manifests = opened.units.manifests
        self._schemas = opened.resolver
        self._units = units
        self._unit_lock = unit_lock
        self._table = opened.settings.layout.deferred
        self._waiting = DeferredFiles(opened.units.committer.tables, self._table)
        self._attempts = SizeBackoff(opened.lake.local_state, opened.lake.deferred, opened.settings.batch.max_attempts)
        self._resolved = pa.array([], pa.string())
        self._resolved_of: Catalog | None = None

    def step(self, wait_s: float | None = RETRY_WAIT_S) -> Report | None:
        """Decode records that are ready as one unit. Returns the report, an empty one after a failure or if only a
        schema became known, or None if nothing is ready.

        Args:
            wait_s: seconds to wait for the registry's answers; None = without limit.
        """
        unmet = self._look()
        if not self._waiting.files:
            return None
        moved = self._schemas.retry_waiting(wait_s, unmet, self._unit_lock)
        with self._unit_lock:
            self._refresh()
            keys = self._find_ready_keys()
            ready = [file for file in self._waiting.files if file.count(keys)]
            if ready:
                return self._decode_ready(ready, keys)
        return Report() if moved and unmet else None

    def merge(self) -> bool:
        """Merge small files if there are enough of them; True if files were merged."""
        enough = self._settings.lake.compact_files
        with self._unit_lock:
            self._refresh()
        self._waiting.read_counts()
        if not self._waiting.files_to_merge(enough):
            return False
        with self._unit_lock:
            self._refresh()
            files = self._waiting.files_to_merge(enough)
            if files:
                adds = [self._opened.units.write(self._table, rows) for rows in group_by_key(self._waiting.read(files))]
                self._commit(Report(), files, adds)
        return bool(files)

    def _look(self) -> list[SchemaKey]:
        """Read the list of files; returns the schemas that records wait for and that are not in the ledger."""
        with self._unit_lock:
            self._refresh()
            keys = list(self._schemas.ledger.entries)
            known = [None, *map(str, keys), *map(wait_for_change, keys)]
        self._waiting.read_counts()
        known = pa.array([*known, *self._waiting.table_keys], pa.string())
        found = (file.keys.filter(pc.invert(pc.is_in(file.keys, value_set=known))) for file in self._waiting.files)
        return [*dict.fromkeys(read_schema_key(key) for keys in found for key in keys.to_pylist())]

    def _refresh(self) -> None:
        self._opened.units.apply_pending()  # the pending unit may have removed records from the table
        self._waiting.refresh()

    def _find_ready_keys(self) -> pa.Array:
        """The keys of the records that are ready: of schemas that are decodable or refused, of tables that are let in,
        and NULL."""
        waiting = self._opened.paused.waiting(letting_in=True)
        stopped = {key_of_table(self._settings.layout.silver_of(name)) for name in waiting}
        let_in = self._waiting.table_keys - stopped
        return pa.concat_arrays([self._find_resolved_keys(), pa.array(sorted(let_in), pa.string())])

    def _find_resolved_keys(self) -> pa.Array:
        """The keys of schemas that are decodable or refused, and NULL."""
        catalog = self._schemas.ledger.catalog()
        if catalog is not self._resolved_of:
            keys = [*catalog.decodable, *catalog.refused]
            waits = [None, *map(str, keys), *map(wait_for_change, keys)]
            self._resolved, self._resolved_of = pa.array(waits, pa.string()), catalog
        return self._resolved

    def _decode_ready(self, files: list[DeferredFile], keys: pa.Array) -> Report:
        """Decode the ready records of the first files as one unit."""
        first = next(self._ready(files, keys))
        limit = self._attempts.limit(first=str(first.select(COORDINATES).slice(0, 1).to_pylist()))
        most = max(limit, 1)
        files = list(fitting(files, most, lambda file: file.count(keys)))
        files = list(fitting(files, MOST_READ, lambda file: file.rows))
        rows = pa.Table.from_batches(_first_rows(self._ready(files, keys), most), DEFERRED_SCHEMA)
        ready = rows.sort_by([(name, "ascending") for name in COORDINATES])
        report = self._decode(ready) if limit else self._give_up(ready)
        if report is None:
            return Report()
        if report.bronze != ready.num_rows:
            raise ContractError(f"{ready.num_rows} records are deferred, but bronze has {report.bronze} of them")
        adds = report.files.pop(self._table, [])
        if sum(file.rows for file in files) > ready.num_rows:
            rest = self._rest(files, keys, ready.num_rows)
            adds += [self._opened.units.write(self._table, rows) for rows in group_by_key(rest)]
        self._commit(report, files, adds, self._count_released(ready))
        self._attempts.succeeded()
        return report

    def _count_released(self, ready: pa.Table) -> dict[str, int]:
        """Routing name of a paused table -> its rows."""
        rows, layout = count_values(ready[TABLE]), self._settings.layout
        return {name: rows.get(layout.silver_of(name), 0) for name in self._opened.paused.pauses}

    def _commit(
        self,
        report: Report,
        files: list[DeferredFile],
        adds: list[FileEntry],
        released: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        left = sum(file.rows for file in files) - report.bronze
        source = {"records": report.bronze, "left": left}
        self._opened.commit(report, "deferred", source, Change(adds, [file.path for file in files]), released)
        if report.bronze:
            log.info("deferred records decoded", records=report.bronze, left=left)

    def _ready(self, files: list[DeferredFile], keys: pa.Array) -> Iterator[pa.RecordBatch]:
        """The rows that are ready, in the order of the files."""
        batches = (batch.filter(pc.is_in(keys_of(batch), value_set=keys)) for batch in self._waiting.read(files))
        return (batch for batch in batches if len(batch))

    def _rest(self, files: list[DeferredFile], keys: pa.Array, decoded: int) -> Iterator[pa.RecordBatch]:
        """All rows except the first `decoded` of `_ready`."""
        for batch in self._waiting.read(files):
            is_ready = pc.is_in(keys_of(batch), value_set=keys)
            ready = batch.filter(is_ready)
            yield batch.filter(pc.invert(is_ready))
            yield ready.slice(decoded)
            decoded = max(0, decoded - len(ready))

    def _decode(self, ready: pa.Table) -> Report | None:
        sequence = self._manifests.last + 1
        origin = replace(FROM_BRONZE, lets_in=True)
        return self._attempts.run(lambda: self._units.run(self._read(ready), sequence, origin))

    def _read(self, ready: pa.Table) -> Records:
        return read_bronze(self._session, self._opened, ranges_of(ready), self._units.tasks(ready.num_rows))

    def _give_up(self, ready: pa.Table) -> Report:
        """Quarantine a record that crashes the job by itself."""
        layout = self._settings.layout
        batches = (batch.select(BRONZE_SCHEMA.names) for batch in self._read(ready).read())
        record = pa.Table.from_batches(batches, BRONZE_SCHEMA)
        causes, details = [Cause.DECODE_CRASH], ["the pass failed with this record alone"]
        rows = quarantine_rows(record, causes, details, [""], [""], int(time.time() * 1_000_000))
        entry = self._opened.units.write(layout.quarantine, rows)
        return Report(files={layout.quarantine: [entry]}, bronze=1, quarantine={Cause.DECODE_CRASH.value: 1})


def _first_rows(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, most)
        most -= len(batch)
        if most <= 0:
            return
