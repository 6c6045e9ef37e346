"""Decodes chosen records of bronze into a temporary folder, as they were sent."""

from __future__ import annotations

import datetime
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.storage import Storage
from spark_app.model.reports import Report
from spark_app.recovery.backtest.history import History
from spark_app.recovery.backtest.scan import scan
from spark_app.sources.bronze import Partition, Piece, Ranges, Share, bounds, find_row_groups, runs
from spark_app.units.worker import task

CHUNK_RECORDS = 200_000  # of bronze, of which each chunk decodes those that are kept out
BUFFER_BYTES = 64 << 20  # decoded
NOT_IN_BRONZE = "bronze does not have the record"
NO_TABLE = "the routing value has no table"


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
        """Decode the records chunk by chunk. A file exists until the next one is asked for."""
        wanted = {partition: runs(offsets) for partition, offsets in self._found.items()}
        if not wanted:
            return
        names = {self._history.settings.tables.layout.silver_of(name): name for name in self._history.names}
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
        layout = self._history.settings.tables.layout
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
