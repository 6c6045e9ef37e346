"""Finds records, those in a silver table and those that expectations keep out of silver, and decodes the latter from
bronze.

A record is kept out while it is in quarantine with the cause `expect_failed`, or among the dropped records, and is not
in `resolved_events`; and while its table is paused.
"""

from __future__ import annotations

import datetime
import itertools
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.storage import Storage
from spark_app.model.causes import Cause
from spark_app.model.record_schemas import COORDINATES, LINEAGE_COORDINATES
from spark_app.model.reports import Report
from spark_app.recovery.backtest.history import History
from spark_app.recovery.backtest.scan import scan
from spark_app.sources.bronze import Partition, Piece, Ranges, Share, bounds, find_row_groups, offsets_of, runs
from spark_app.units.worker import task

CHUNK_RECORDS = 200_000  # of bronze, of which each chunk decodes those that are kept out
BUFFER_BYTES = 64 << 20  # decoded
NOT_IN_BRONZE = "bronze does not have the record"
NO_TABLE = "the routing value has no table"


class Records:
    """Finds records by their coordinates."""

    def __init__(self, history: History, since: datetime.datetime | None):
        """`since`: only records that landed then or later."""
        self._history = history
        self._since = since

    def kept_out(self) -> dict[Partition, np.ndarray]:
        """The ascending offsets of the records that expectations keep out of silver, by partition."""
        layout = self._history.settings.layout
        by_rules = pc.field("cause") == Cause.EXPECT_FAILED.value
        if self._since is not None:  # a record is kept out when it lands, or later
            by_rules &= pc.field("quarantined_at") >= pa.scalar(self._since)
        dropped = None if self._since is None else pc.field("dropped_at") >= pa.scalar(self._since)
        kept_out = [self._offsets(layout.quarantine, by_rules), self._offsets(layout.dropped, dropped)]
        parts = [*kept_out, self._find_waiting()]
        found: dict[Partition, np.ndarray] = {}
        resolved = self._offsets(layout.resolved) if any(kept_out) else {}
        for partition in {key for part in parts for key in part}:
            offsets = np.concatenate([part[partition] for part in parts if partition in part])
            open_ones = np.setdiff1d(offsets, resolved.get(partition, np.zeros(0, np.int64)))
            if len(open_ones):
                found[partition] = open_ones
        return found

    def _find_waiting(self) -> dict[Partition, np.ndarray]:
        """The offsets of the records whose table is paused, by partition."""
        deferred = self._history.settings.layout.deferred
        columns = self._history.tables.columns(deferred)
        if columns is None or "table" not in columns.names:
            return {}
        waiting = pc.field("table").is_valid()
        if self._since is not None:
            waiting &= pc.field("deferred_at") >= pa.scalar(self._since)
        return self._offsets(deferred, waiting)

    def in_silver(self, table: str) -> dict[Partition, np.ndarray]:
        """The ascending offsets of the rows of a silver table, by partition."""
        since = None if self._since is None else pc.field("_landed_at") >= pa.scalar(self._since)
        found = self._offsets(table, since, LINEAGE_COORDINATES)
        return {partition: np.sort(offsets) for partition, offsets in found.items()}

    def _offsets(
        self, table: str, condition: pc.Expression | None = None, columns: list[str] = COORDINATES
    ) -> dict[Partition, np.ndarray]:
        tables = self._history.tables
        schema = tables.columns(table)
        if schema is None:
            return {}
        found: dict[Partition, list[np.ndarray]] = defaultdict(list)
        for batch in scan(tables.storage, tables.files(table), schema, columns, condition):
            for partition, offsets in offsets_of(pa.Table.from_batches([batch]).rename_columns(COORDINATES)).items():
                found[partition].append(offsets)
        return {partition: np.concatenate(parts) for partition, parts in found.items()}


@dataclass(frozen=True)
class Decoded:
    """Decoded records of one silver table.

    Attributes:
        name: the routing name of the table.
        storage: a temporary folder.
        key: the file with their rows, as silver would have them.
    """

    name: str
    storage: Storage
    key: str


class BronzeDecoder:
    """
    Attributes:
        undecodable: reason -> records that cannot be decoded now; complete once `decode` has ended.
    """

    def __init__(self, history: History, found: Mapping[Partition, np.ndarray], since: datetime.datetime | None):
        """
        Args:
            found: the ascending offsets of the records, by partition.
            since: only records that landed then or later.
        """
        self._history = history
        self._found = found
        self._since = since
        self.undecodable: Counter[str] = Counter()

    def decode(self) -> Iterator[Decoded]:
        """Decode the records chunk by chunk. A file exists until the next one is read."""
        wanted = {partition: runs(offsets) for partition, offsets in self._found.items()}
        if not wanted:
            return
        names = {self._history.settings.layout.silver_of(name): name for name in self._history.names}
        left = sum(int((ends[:, 1] - ends[:, 0]).sum()) for ends in wanted.values())
        for pieces in _chunks(self._pieces(wanted)):
            with tempfile.TemporaryDirectory(prefix="protolake-backtest-") as folder:
                storage = LocalStorage(folder)
                read: list[int] = []
                report = self._run(self._records(pieces, wanted, read), storage)
                left -= sum(read)
                self._count_undecodable(report, storage)
                for table in report.files.keys() & names.keys():
                    for entry in report.files[table]:
                        yield Decoded(names[table], storage, f"{table}/{entry.path}")
        if left:
            self.undecodable[NOT_IN_BRONZE] += left

    def _pieces(self, wanted: Ranges) -> list[Piece]:
        """The row groups of bronze that may have the records."""
        tables, bronze = self._history.tables, self._history.settings.tables.bronze
        keys = tables.files_between(bronze, "offset", *bounds(wanted))
        return sorted(find_row_groups(tables.storage, keys, wanted), key=lambda piece: (piece.key, piece.group))

    def _records(self, pieces: tuple[Piece, ...], wanted: Ranges, read: list[int]) -> Iterator[pa.RecordBatch]:
        """The records of bronze; their numbers are added to `read`, also of those that landed too early."""
        batch_limits = self._history.settings.batch
        limits = batch_limits.max_arrow_records, batch_limits.max_arrow_bytes
        for batch in Share(self._history.tables.storage, pieces, wanted, *limits).read():
            read.append(batch.num_rows)
            if self._since is not None:
                batch = batch.filter(pc.greater_equal(batch.column("landed_at"), pa.scalar(self._since)))
            yield batch

    def _run(self, records: Iterator[pa.RecordBatch], storage: Storage) -> Report:
        return task.run(records, self._history.plan(storage, BUFFER_BYTES), self._history.catalog, "00000")

    def _count_undecodable(self, report: Report, storage: Storage) -> None:
        layout = self._history.settings.layout
        self.undecodable.update(report.quarantine)
        for entry in report.files.get(layout.deferred, []):
            key = f"{layout.deferred}/{entry.path}"
            for batch in scan(storage, [key], pa.schema([("waits_for", pa.string())]), ["waits_for"]):
                for schema, count in Counter(batch.column("waits_for").to_pylist()).items():
                    self.undecodable[NO_TABLE if schema is None else f"schema {schema} is not resolved"] += count


def _chunks(pieces: list[Piece]) -> Iterator[tuple[Piece, ...]]:
    """Consecutive row groups with together about `CHUNK_RECORDS` records."""
    before = itertools.accumulate((piece.rows for piece in pieces), initial=0)
    numbered = zip((rows // CHUNK_RECORDS for rows in before), pieces, strict=False)
    for _, chunk in itertools.groupby(numbered, key=lambda item: item[0]):
        yield tuple(piece for _, piece in chunk)
