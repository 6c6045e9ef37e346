"""Decodes deferred records from bronze: records whose schema could not be resolved when they arrived, whose table was
paused, or that `--land-only` wrote. It uses the same job and manifest as ingest.

`deferred_events` holds only coordinates. A unit of this kind removes files from it and adds a file with those of their
records that still wait. `deferred_files` selects the files, so that the cost depends on the records that became ready.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from spark_app.lake.delta.manifest import Change
from spark_app.model.catalog import Catalog, SchemaKey, read_schema_key, wait_for_change
from spark_app.model.causes import Cause
from spark_app.model.errors import ContractError
from spark_app.model.log import log
from spark_app.model.record_schemas import BRONZE_SCHEMA, COORDINATES, DEFERRED_SCHEMA
from spark_app.model.reports import FileEntry, Report
from spark_app.protobuf.schemas.resolver import NO_LOCK, RETRY_WAIT_S
from spark_app.sources.bronze import ranges_of
from spark_app.units.driver.deferred_files import (
    MOST_READ,
    TABLE,
    DeferredFile,
    DeferredFiles,
    fitting,
    group_by_key,
    key_of_table,
    keys_of,
)
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import FROM_BRONZE, read_bronze
from spark_app.units.driver.size_backoff import SizeBackoff
from spark_app.units.driver.unit import UnitRunner
from spark_app.units.worker.table_rows import count_values, quarantine_rows


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
        self._schemas = opened.schemas
        self._units = units
        self._unit_lock = unit_lock
        self._table = opened.settings.tables.layout.deferred
        self._waiting = DeferredFiles(opened.units.committer.tables, self._table)
        self._attempts = SizeBackoff(opened.lake.here, opened.lake.deferred, opened.settings.batch.max_attempts)
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
        held = self._opened.paused.held(letting_in=True)
        stopped = {key_of_table(self._settings.tables.layout.silver_of(name)) for name in held}
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
        rows, layout = count_values(ready[TABLE]), self._settings.tables.layout
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
        layout = self._settings.tables.layout
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
