"""Finds records: those in a silver table, and those that rules keep out of silver.

A record is kept out while it is in quarantine with the cause `expect_failed`, or among the dropped records, and is not
in `resolved_events`; and while its table is paused.
"""

from __future__ import annotations

import datetime
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.causes import Cause
from spark_app.model.record_schemas import COORDINATES, LINEAGE_COORDINATES
from spark_app.recovery.backtest.history import History
from spark_app.recovery.backtest.scan import scan
from spark_app.sources.bronze import Partition, offsets_of


class Records:
    """Finds records by their coordinates."""

    def __init__(self, history: History, since: datetime.datetime | None):
        """`since`: only records that landed then or later."""
        self._history = history
        self._since = since

    def kept_out(self) -> dict[Partition, np.ndarray]:
        """The ascending offsets of the records that rules keep out of silver, by partition."""
        layout = self._history.settings.tables.layout
        by_rules = pc.field("cause") == Cause.EXPECT_FAILED.value
        if self._since is not None:  # a record is kept out when it lands, or later
            by_rules &= pc.field("quarantined_at") >= pa.scalar(self._since)
        dropped = None if self._since is None else pc.field("dropped_at") >= pa.scalar(self._since)
        kept_out = [self._offsets(layout.quarantine, by_rules), self._offsets(layout.dropped, dropped)]
        parts = [*kept_out, self._find_held()]
        found: dict[Partition, np.ndarray] = {}
        resolved = self._offsets(layout.resolved) if any(kept_out) else {}
        for partition in {key for part in parts for key in part}:
            offsets = np.concatenate([part[partition] for part in parts if partition in part])
            open_ones = np.setdiff1d(offsets, resolved.get(partition, np.zeros(0, np.int64)))
            if len(open_ones):
                found[partition] = open_ones
        return found

    def _find_held(self) -> dict[Partition, np.ndarray]:
        """The offsets of the records whose table is paused, by partition."""
        deferred = self._history.settings.tables.layout.deferred
        columns = self._history.tables.columns(deferred)
        if columns is None or "table" not in columns.names:
            return {}
        held = pc.field("table").is_valid()
        if self._since is not None:
            held &= pc.field("deferred_at") >= pa.scalar(self._since)
        return self._offsets(deferred, held)

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
