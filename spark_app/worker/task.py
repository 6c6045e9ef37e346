"""The pass: one reading of each record of a task, from raw bytes to one file per table.

In: Arrow batches of `SOURCE_SCHEMA`. Out: one `Report` that names every file written and counts every record. Nothing
is decided here: a file that no manifest names does not exist for any reader.

The pass works on a closed set of schema ids and tables. What lies outside is reported; the driver settles it and, if
that admits anything, runs the pass again. Rows of such a run that could not be placed are missing from its report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.decode.decoder import STRICT, decoder_for, why_none
from spark_app.model.catalog import Catalog, DecodeOptions, SchemaKey
from spark_app.model.causes import Cause, Reject
from spark_app.model.record_schemas import OMITTED_SCHEMA
from spark_app.model.reports import FileEntry, Report, add_counts
from spark_app.model.table_names import TableNames
from spark_app.storage import failpoints
from spark_app.worker import files, framing, table_rows, unwrap
from spark_app.worker.fit import fit, table_columns
from spark_app.worker.keys import read_keys
from spark_app.worker.route import Routed, Routing, route

T = TypeVar("T", pa.Table, pa.Array)
WRITERS = ThreadPoolExecutor(4, thread_name_prefix="write")
MOST_REPORTED = 10_000  # distinct new values or ids a task names; the rest waits for the next batch


@dataclass(frozen=True)
class TaskPlan:
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
        settled: this is the run after settling; what is still new waits.
        bare: the schema of records without a frame; None = they are refused.
        framed_keys: decode record keys.
        options: how payloads are decoded.
        wrapper: the records' messages hold other messages; None = they are the events.
        buffer_bytes: decoded bytes a task holds before it writes files.
        alone_bytes: a record whose value is larger has files of its own.
        max_record_bytes: a larger value is not taken; the source leaves it out.
    """

    root: str
    prefix: str
    layout: TableNames
    routing: Routing
    topic_ids: dict[str, str]
    landed_at: int
    write_bronze: bool = True
    land_only: bool = False
    settled: bool = False
    bare: framing.UnframedSchema | None = None
    framed_keys: bool = False
    options: DecodeOptions = STRICT
    wrapper: unwrap.Wrapper | None = None
    buffer_bytes: int = 256 << 20
    own_file_bytes: int = 16 << 20
    max_record_bytes: int = 64 << 20
    compression: str = "zstd"


def run(batches: Iterator[pa.RecordBatch], plan: TaskPlan, catalog: Catalog, task: str) -> Report:
    """The pass over one task's records; `task` is part of the file names and must be unique."""
    failpoints.arm(plan.root)
    work = _TaskRun(plan, catalog, task)
    for batch, is_alone in _set_apart(batches, plan.own_file_bytes):
        if is_alone:
            work.flush()
        work.take(batch)
        if is_alone or work.buffered > plan.buffer_bytes:
            work.flush()
    work.flush()
    return work.report


def _set_apart(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The records in their order; each whose value is larger comes alone, and then True with it."""
    for batch in batches:
        values, begin = batch.column("value"), 0
        if values.nbytes > most_bytes:
            large = pc.greater(pc.binary_length(values), most_bytes).fill_null(False)
            for at in pc.indices_nonzero(large).to_pylist():
                yield batch.slice(begin, at - begin), False
                yield batch.slice(at, 1), True
                begin = at + 1
        yield batch.slice(begin), False


@dataclass(frozen=True)
class _Payloads:
    """Framed payloads: the records' own values, or what wrappers hold.

    Attributes:
        values: binary; `frames` has an entry per value.
        rows: for each value the row of its record.
        outer: the wrappers, one row per value.
        within: the wrappers' message type and "/".
    """

    values: pa.Array
    frames: framing.Frames
    rows: np.ndarray
    outer: pa.Table | None = None
    within: str = ""


@dataclass
class _TaskRun:
    plan: TaskPlan
    catalog: Catalog
    task: str
    report: Report = field(default_factory=Report)
    buffered: int = 0
    _files: int = 0
    _bronze: list[pa.Table] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _columns: dict[tuple[tuple[str, ...], str], pa.Schema] = field(default_factory=dict)
    _records: pa.Table = None  # of the Arrow batch at hand
    _lineage: pa.Table = None  # of the Arrow batch at hand
    _rejects: list[tuple[int, Cause, str, str, str]] = field(default_factory=list)  # of the Arrow batch at hand
    _decoded: dict[pa.Schema, list[pa.Table]] = field(default_factory=dict)  # by the schema of the rows
    _rejected: list[pa.Table] = field(default_factory=list)
    _deferred: list[pa.Table] = field(default_factory=list)

    def take(self, batch: pa.RecordBatch) -> None:
        """Frame, group and decode one Arrow batch."""
        if batch.num_rows == 0:
            return
        values = batch.column("value")
        frames = framing.split(values, batch.column("headers"), bare=self.plan.bare)
        self._records = table_rows.bronze_rows(batch, frames, self.plan.topic_ids, self.plan.landed_at)
        self._observe(self._records)
        if self.plan.write_bronze:
            self._bronze.append(self._records)
            self.buffered += self._records.nbytes
        self._reject_oversized(frames)
        self.report.tombstones += int((frames.verdict == framing.TOMBSTONE).sum())
        if self.plan.land_only:
            self._defer(np.flatnonzero(~np.isin(frames.verdict, (framing.TOMBSTONE, framing.OMITTED))), None)
        else:
            self._lineage = table_rows.lineage_rows(self._records, self._read_keys(batch, frames))
            self._decode(_Payloads(values, frames, np.arange(len(values))))
        self._keep_rejects()

    def _reject_oversized(self, frames: framing.Frames) -> None:
        """Refuse the records whose value was too large to be taken: nobody will ever decode them."""
        if OMITTED_SCHEMA.names[0] not in self._records.column_names:
            return
        sizes, digests = (self._records.column(name) for name in OMITTED_SCHEMA.names)
        rows = pc.indices_nonzero(sizes.is_valid())
        frames.refuse(rows.to_numpy(), framing.OMITTED)
        self.report.value_bytes += pc.sum(sizes).as_py()
        # By which limit a record of bronze was left out is not known: it may have been another one then.
        limit = f", the most is {self.plan.max_record_bytes}" if self.plan.write_bronze else ""
        for row in rows.to_pylist():
            detail = f"{sizes[row]} bytes{limit}; SHA-256 {digests[row]}"
            self._rejects.append((row, Cause.RECORD_SIZE, detail, "", ""))

    def _observe(self, records: pa.Table) -> None:
        self.report.bronze += records.num_rows
        self.report.value_bytes += records.column("value").nbytes
        newest = pc.max(records.column("timestamp")).cast(pa.int64()).as_py()
        if newest is not None:
            self.report.newest = max(self.report.newest or newest, newest)
        self.report.merge(Report(spans=table_rows.spans(records)))

    def _read_keys(self, batch: pa.RecordBatch, frames: framing.Frames) -> pa.Array | None:
        """The decoded keys. Records whose key has a schema that is not settled wait with their value."""
        if not self.plan.framed_keys:
            return None
        keys = read_keys(batch, self.catalog)
        for key, rows in keys.unresolved.items():
            rows = rows[frames.verdict[rows] == framing.OK]
            if len(rows):
                self._wait(rows, key)
                frames.refuse(rows, framing.HELD)
        return keys.texts

    def _decode(self, payloads: _Payloads) -> None:
        frames = payloads.frames
        for verdict, cause in framing.CAUSES.items():
            self._reject_all(payloads.rows[frames.nameless(verdict)], cause, "", payloads.within.rstrip("/"))
        for group in frames.groups():
            self._decode_group(payloads, group)

    def _decode_group(self, payloads: _Payloads, group: np.ndarray) -> None:
        """Decode what one schema wrote as one message; `group` are positions among the payloads."""
        frames, rows = payloads.frames, payloads.rows[group]
        key, verdict = frames.key_of(group[0]), int(frames.verdict[group[0]])
        index, body = frames.indexes[frames.index[group[0]]], int(frames.body[group[0]])
        if framing.is_beyond(key):
            return self._reject_all(rows, Cause.SCHEMA_UNKNOWN, f"{key} is not a schema id: the largest is 2^31 - 1")
        refused = self.catalog.refused.get(key)
        if refused is not None:
            return self._reject_all(rows, Cause(refused[0]), refused[1], schema=str(key))
        decodable = self.catalog.decodable.get(key)
        if decodable is None:
            return self._wait(rows, key)
        if verdict != framing.OK:  # it is Protobuf, and so should have had a message index
            return self._reject_all(rows, framing.CAUSES[verdict], "", payloads.within.rstrip("/"))
        options, wrapper = self.plan.options, self.plan.wrapper if payloads.outer is None else None
        if wrapper is not None:
            options = replace(options, defaults=True)  # an empty payload is an event whose fields are all unset
        decoder = decoder_for(decodable, index, options)
        if decoder is None:
            return self._reject_all(rows, Cause.SCHEMA_INDEX, why_none(decodable, index, options))
        message = payloads.within + self.catalog.type_of(key, decoder.full_name)
        if wrapper is not None and not decoder.schema.names:
            return self._reject_all(rows, Cause.FRAME_WRAPPER, "the message has no fields", message)
        decoded = decoder.decode(pc.binary_slice(_pick(payloads.values, group), body, 2**31 - 1))
        self._reject(rows, decoded.rejects, message)
        rows = rows[decoded.rows]
        if not len(rows):
            return None
        if wrapper is not None:
            inner, frames = unwrap.unwrap(decoded.table, wrapper)
            return self._decode(_Payloads(inner, frames, rows, decoded.table, f"{message}/"))
        outer = None if payloads.outer is None else _pick(payloads.outer, group[decoded.rows])
        self._place(decoded.table, rows, key, message, outer)

    def _wait(self, rows: np.ndarray, key: SchemaKey) -> None:
        if key not in self.catalog.waiting and not self.plan.settled:
            if str(key) in self.report.new_ids or len(self.report.new_ids) < MOST_REPORTED:
                add_counts(self.report.new_ids, {str(key): len(rows)})
            return
        self._defer(rows, key)

    def _place(
        self,
        table: pa.Table,
        rows: np.ndarray,
        key: SchemaKey,
        message: str,
        outer: pa.Table | None,
    ) -> None:
        """Route decoded rows and keep them until the task writes its files. `rows` are theirs among the records."""
        routing = self.plan.routing
        by_outer = outer is not None and routing.field in outer.column_names
        routed = route(outer if by_outer else table, len(rows), routing, message)
        if outer is not None and self.plan.wrapper is not None:
            rest = unwrap.keep_rest(outer, self.plan.wrapper)
            table = table if rest is None else _with_column(table, unwrap.COLUMN, rest)
        self._report_new_values(routed, rows, message)
        self._reject(rows, routed.rejects(), message)
        for columns, codes in self._by_columns(routed):
            placed = np.flatnonzero(np.isin(routed.codes, codes))
            fitted = table
            if table.column_names:  # else there is nothing to fit, and Arrow keeps no rows without columns
                fitted, good, misfits = fit(_pick(table, placed), columns)
                self._reject(rows[placed], misfits, message)
                placed = placed[good]
            if len(placed):
                numbers = self._count_silver(routed, routed.codes[placed], str(key))
                silver = table_rows.silver_rows(fitted, _pick(self._lineage, rows[placed]), key, numbers)
                self._decoded.setdefault(silver.schema, []).append(silver)
                self.buffered += silver.nbytes

    def _by_columns(self, routed: Routed) -> list[tuple[pa.Schema, list[int]]]:
        """The codes that have a table, by the columns of their tables: those of one message type share them."""
        routing = self.plan.routing
        found: dict[tuple[tuple[str, ...], str], list[int]] = {}
        for code, verdict in enumerate(routed.verdicts):
            if verdict.name is not None:
                fixed = verdict.name if verdict.name in routing.fixed else ""
                found.setdefault((routing.messages[verdict.name], fixed), []).append(code)
        return [(self._columns_of(*alike), codes) for alike, codes in found.items()]

    def _columns_of(self, messages: tuple[str, ...], fixed: str) -> pa.Schema:
        """Columns of the tables with these message types; `fixed` names the one that has columns already."""
        if (messages, fixed) not in self._columns:
            self._columns[messages, fixed] = table_columns(
                messages, self.catalog.columns, self.plan.wrapper, self.plan.routing.fixed.get(fixed)
            )
        return self._columns[messages, fixed]

    def _count_silver(self, routed: Routed, codes: np.ndarray, key: str) -> np.ndarray:
        """Count the rows, and give for each its table's number within this task."""
        numbers = np.full(len(routed.values), -1, np.int64)
        for code, count in enumerate(np.bincount(codes, minlength=len(routed.values)).tolist()):
            name = routed.verdicts[code].name
            if count and name is not None:
                add_counts(self.report.silver, {name: count})
                add_counts(self.report.schema_ids.setdefault(name, {}), {key: count})
                numbers[code] = self._numbers.setdefault(name, len(self._numbers))
        found: np.ndarray = numbers[codes]
        return found

    def _report_new_values(self, routed: Routed, rows: np.ndarray, message: str) -> None:
        """Report routing values and message types that are new; after settling their rows wait for the next pass."""
        if self.plan.settled:
            waits = [code for code, verdict in enumerate(routed.verdicts) if verdict.new]
            return self._defer(rows[np.isin(routed.codes, waits)], None)
        new = self.report.new_values
        counts = np.bincount(routed.codes, minlength=len(routed.values)).tolist()
        for value, verdict, count in zip(routed.values, routed.verdicts, counts, strict=True):
            if verdict.new and (value in new or len(new) < MOST_REPORTED):
                add_counts(new.setdefault(str(value), {}), {message: count})

    def _reject(self, rows: np.ndarray, rejects: list[Reject], message: str) -> None:
        """Note rejects of a group; `rows` are the group's rows among the records."""
        for row, cause, detail in rejects:
            self._rejects.append((int(rows[row]), cause, detail, message, ""))

    def _reject_all(self, rows: np.ndarray, cause: Cause, detail: str, message: str = "", schema: str = "") -> None:
        self._rejects += [(row, cause, detail, message, schema) for row in rows.tolist()]

    def _keep_rejects(self) -> None:
        """One Arrow batch of quarantine rows for all rejects of the batch."""
        if not self._rejects:
            return
        rows, causes, details, messages, schemas = zip(*sorted(self._rejects), strict=True)
        records = self._records.take(pa.array(rows))
        rejected = table_rows.quarantine_rows(records, causes, details, messages, schemas, self.plan.landed_at)
        self._rejected.append(rejected)
        self.buffered += rejected.nbytes
        add_counts(self.report.quarantine, Counter(cause.value for cause in causes))
        self._rejects = []

    def _defer(self, rows: np.ndarray, waits_for: SchemaKey | None) -> None:
        if len(rows):
            deferred = table_rows.deferred_rows(_pick(self._records, rows), waits_for, self.plan.landed_at)
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
        self._records = self._lineage = None
        self.buffered = 0

    def _buffers(self) -> list[tuple[str, str, pa.Table]]:
        """(table, file name, rows): bronze, quarantine, deferred, then one of each silver table."""
        layout, names = self.plan.layout, list(self._numbers)
        own = ((layout.bronze, self._bronze), (layout.quarantine, self._rejected), (layout.deferred, self._deferred))
        parts = [(table, pa.concat_tables(rows, promote_options="default")) for table, rows in own if rows]
        split = table_rows.split_by_table(self._decoded.values())
        parts += [(layout.silver_of(names[number]), rows) for number, rows in split]
        first, self._files = self._files, self._files + len(parts)
        prefix = f"{self.plan.prefix}-{self.task}"
        return [(table, f"{prefix}-{first + i:05d}.parquet", rows) for i, (table, rows) in enumerate(parts)]

    def _write(self, table: str, name: str, rows: pa.Table) -> tuple[str, FileEntry]:
        return table, files.write_file(Path(self.plan.root) / table, name, rows, self.plan.compression)


def _with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """The table, which may have no columns and so no rows either, with one more."""
    return pa.Table.from_arrays([*table.columns, column], names=[*table.column_names, name])


def _pick(whole: T, rows: np.ndarray) -> T:
    """The rows of a table or an array, without a copy when they are all of them in order."""
    if len(rows) == len(whole) and (len(rows) < 2 or bool((np.diff(rows) == 1).all())):
        return whole
    return whole.take(pa.array(rows))
