"""The pass: one reading of each record of a task, from raw bytes to one file per table.

In: Arrow batches of `SOURCE_SCHEMA`. Out: one `Report` that names every file written and counts every record. Nothing
is decided here: a file that no manifest names does not exist for any reader.

The pass works on a closed set of schema ids and tables. What lies outside is reported; the driver settles it and, if
that admits anything, runs the pass again. Rows of such a run that could not be placed are missing from its report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.records import Catalog, Cause, FileEntry, Layout, MessageIndex, Reject, Report, add_counts
from spark_app.worker import files, framing, tables
from spark_app.worker.decode import decoder_for
from spark_app.worker.fit import fit
from spark_app.worker.route import Routing, route

CLASH = "its columns clash with those of the other messages: they differ only by case, or are our own"
WRITERS = ThreadPoolExecutor(4, thread_name_prefix="write")
MOST_REPORTED = 10_000  # distinct new values or ids a task names; the rest waits for the next batch


@dataclass(frozen=True)
class Plan:
    """All that a pass must know besides the catalog. Small: it travels with every task.

    Attributes:
        root: the lake's folder.
        prefix: begins every file name: the unit's sequence number and a random part of this attempt.
        layout: names of the tables.
        routing: the closed set of tables.
        topic_ids: topic -> Kafka's id of it.
        landed_at: microseconds since 1970.
        write_bronze: False where the records come from bronze.
        land_only: decode nothing, defer every record.
        settled: this is the run after settling; what is still new waits (ids) or is over the cap (tables).
        buffer_bytes: decoded bytes a task holds before it writes files.
    """

    root: str
    prefix: str
    layout: Layout
    routing: Routing
    topic_ids: dict[str, str]
    landed_at: int
    write_bronze: bool = True
    land_only: bool = False
    settled: bool = False
    buffer_bytes: int = 256 << 20
    compression: str = "zstd"


def run(batches: Iterator[pa.RecordBatch], plan: Plan, catalog: Catalog, task: str) -> Report:
    """The pass over one task's records; `task` is part of the file names and must be unique."""
    work = _Task(plan, catalog, task)
    for batch in batches:
        work.take(batch)
        if work.buffered > plan.buffer_bytes:
            work.flush()
    work.flush()
    return work.report


@dataclass
class _Task:
    plan: Plan
    catalog: Catalog
    task: str
    report: Report = field(default_factory=Report)
    buffered: int = 0
    _files: int = 0
    _bronze: list[pa.Table] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _records: pa.Table = None  # of the Arrow batch at hand
    _rejects: list[tuple[int, Cause, str, str]] = field(default_factory=list)  # of the Arrow batch at hand
    _decoded: dict[tuple[int, str], list[pa.Table]] = field(default_factory=dict)
    _rejected: list[pa.Table] = field(default_factory=list)
    _deferred: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._columns = set(self.catalog.columns.names)

    def take(self, batch: pa.RecordBatch) -> None:
        """Frame, group and decode one Arrow batch."""
        if batch.num_rows == 0:
            return
        frames = framing.split(batch.column("value"))
        self._records = tables.bronze_rows(batch, frames.schema_id, self.plan.topic_ids, self.plan.landed_at)
        self._observe(self._records)
        if self.plan.write_bronze:
            self._bronze.append(self._records)
            self.buffered += self._records.nbytes
        self.report.tombstones += int((frames.verdict == framing.TOMBSTONE).sum())
        if self.plan.land_only:
            self._defer(np.flatnonzero(frames.verdict != framing.TOMBSTONE), "landed only")
            return
        for verdict, cause in framing.CAUSES.items():
            self._reject_all(np.flatnonzero(frames.verdict == verdict), cause, "")
        self._decode(frames)
        self._keep_rejects()

    def _observe(self, records: pa.Table) -> None:
        self.report.bronze += records.num_rows
        self.report.value_bytes += records.column("value").nbytes
        newest = pc.max(records.column("timestamp")).cast(pa.int64()).as_py()
        if newest is not None:
            self.report.newest = max(self.report.newest or newest, newest)
        self.report.merge(Report(spans=tables.spans(records)))

    def _decode(self, frames: framing.Frames) -> None:
        """Group rows by (schema id, message index) in one stable sort, so that a batch of one kind is not copied."""
        framed = np.flatnonzero(frames.verdict == framing.OK)
        if not len(framed):
            return
        key = (frames.schema_id[framed] * len(frames.indexes) + frames.index[framed]) << 8 | frames.body[framed]
        order = np.argsort(key, kind="stable")
        _, starts = np.unique(key[order], return_index=True)
        for rows in np.split(framed[order], starts[1:]):
            first = rows[0]
            index = frames.indexes[frames.index[first]]
            self._decode_group(rows, int(frames.schema_id[first]), index, int(frames.body[first]))

    def _decode_group(self, rows: np.ndarray, schema_id: int, index: MessageIndex, body: int) -> None:
        if schema_id > framing.LARGEST_ID:
            return self._reject_all(rows, Cause.SCHEMA_UNKNOWN, f"{schema_id} is no schema id: they end at 2^31 - 1")
        refused = self.catalog.refused.get(schema_id)
        if refused is not None:
            return self._reject_all(rows, Cause(refused[0]), refused[1])
        decodable = self.catalog.decodable.get(schema_id)
        if decodable is None:
            return self._wait(rows, schema_id)
        decoder = decoder_for(decodable, index)
        if decoder is None:
            return self._reject_all(rows, Cause.SCHEMA_INDEX, f"message index {list(index)}")
        if not decoder.schema.names:  # Arrow keeps no rows without columns
            return self._reject_all(rows, Cause.ROUTE_MISSING, "the message has no fields", decoder.full_name)
        if not set(decoder.schema.names) <= self._columns:
            return self._reject_all(rows, Cause.SCHEMA_INVALID, CLASH, decoder.full_name)
        values = _pick(self._records, rows).column("value").combine_chunks()
        decoded = decoder.decode(pc.binary_slice(values, body, 2**31 - 1))
        self._reject(rows, decoded.rejects, decoder.full_name)
        kept = rows[decoded.rows]
        fitted, good, misfits = fit(decoded.table, self.catalog.columns)
        self._reject(kept, misfits, decoder.full_name)
        self._place(fitted, kept[good], schema_id, decoder.full_name)

    def _wait(self, rows: np.ndarray, schema_id: int) -> None:
        if schema_id not in self.catalog.waiting and not self.plan.settled:
            self._report_new(self.report.new_ids, str(schema_id), len(rows))
            return
        self._defer(rows, f"schema id {schema_id} is not settled")

    def _place(self, table: pa.Table, rows: np.ndarray, schema_id: int, message: str) -> None:
        """Route decoded rows and keep them until the task writes its files. `rows` are theirs among the records."""
        routed = route(table, self.plan.routing)
        counts = np.bincount(routed.codes, minlength=len(routed.values)).tolist()
        numbers = np.full(len(routed.values), -1, np.int64)
        for code, (verdict, count) in enumerate(zip(routed.verdicts, counts, strict=True)):
            if verdict.name is not None:
                numbers[code] = self._count_silver(verdict.name, schema_id, count)
            elif verdict.new:
                self._report_new(self.report.new_values, str(routed.values[code]), count)
        numbers = numbers[routed.codes]
        self._reject(rows, routed.rejects(), message)
        placed = np.flatnonzero(numbers >= 0)
        if len(placed):
            silver = tables.silver_rows(_pick(table, placed), _pick(self._records, rows[placed]), numbers[placed])
            self._decoded.setdefault((schema_id, message), []).append(silver)
            self.buffered += silver.nbytes

    def _count_silver(self, name: str, schema_id: int, count: int) -> int:
        """Count the rows, and give the table's number within this task."""
        add_counts(self.report.silver, {name: count})
        add_counts(self.report.schema_ids.setdefault(name, {}), {str(schema_id): count})
        return self._numbers.setdefault(name, len(self._numbers))

    def _report_new(self, into: dict[str, int], key: str, count: int) -> None:
        if key in into or len(into) < MOST_REPORTED:
            add_counts(into, {key: count})

    def _reject(self, rows: np.ndarray, rejects: list[Reject], message: str) -> None:
        """Note rejects of a group; `rows` are the group's rows among the records."""
        for row, cause, detail in rejects:
            self._rejects.append((int(rows[row]), cause, detail, message))

    def _reject_all(self, rows: np.ndarray, cause: Cause, detail: str, message: str = "") -> None:
        self._rejects += [(row, cause, detail, message) for row in rows.tolist()]

    def _keep_rejects(self) -> None:
        """One Arrow batch of quarantine rows for all rejects of the batch."""
        if not self._rejects:
            return
        rows, causes, details, messages = zip(*sorted(self._rejects), strict=True)
        records = self._records.take(pa.array(rows))
        rejected = tables.quarantine_rows(records, causes, details, messages, self.plan.landed_at)
        self._rejected.append(rejected)
        self.buffered += rejected.nbytes
        add_counts(self.report.quarantine, Counter(cause.value for cause in causes))
        self._rejects = []

    def _defer(self, rows: np.ndarray, reason: str) -> None:
        if len(rows):
            deferred = tables.deferred_rows(_pick(self._records, rows), reason, self.plan.landed_at)
            self._deferred.append(deferred)
            self.buffered += deferred.nbytes
            self.report.deferred += len(rows)

    def flush(self) -> None:
        """Write what is buffered, side by side: the files wait for the disk more than for the processor.

        A pass that met something new is run again, so what it has is not worth writing.
        """
        if not (self.report.new_ids or self.report.new_values):
            entries = WRITERS.map(self._write, *zip(*self._buffers(), strict=True)) if self.buffered else ()
            for table, entry in entries:
                self.report.files.setdefault(table, []).append(entry)
        self._bronze, self._rejected, self._deferred, self._decoded = [], [], [], {}
        self.buffered = 0

    def _buffers(self) -> list[tuple[str, str, pa.Table]]:
        """(table, file name, rows): bronze, quarantine, deferred, then one of each silver table."""
        layout, names = self.plan.layout, list(self._numbers)
        own = ((layout.bronze, self._bronze), (layout.quarantine, self._rejected), (layout.deferred, self._deferred))
        parts = [(table, pa.concat_tables(rows)) for table, rows in own if rows]
        split = tables.split_by_table(list(self._decoded.values()))
        parts += [(layout.silver_of(names[number]), rows) for number, rows in split]
        first, self._files = self._files, self._files + len(parts)
        prefix = f"{self.plan.prefix}-{self.task}"
        return [(table, f"{prefix}-{first + i:05d}.parquet", rows) for i, (table, rows) in enumerate(parts)]

    def _write(self, table: str, name: str, rows: pa.Table) -> tuple[str, FileEntry]:
        return table, files.write_file(Path(self.plan.root) / table, name, rows, self.plan.compression)


def _pick(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """The rows, without a copy when they are all of them in order."""
    if len(rows) == table.num_rows and (len(rows) < 2 or bool((np.diff(rows) == 1).all())):
        return table
    return table.take(pa.array(rows))
