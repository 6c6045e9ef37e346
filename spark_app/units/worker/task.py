"""One task of a unit: it reads each record once, from raw bytes to one file per table.

In: Arrow batches of `SOURCE_SCHEMA`. Out: one `Report` that names every file written and counts every record. Nothing
is committed here: no reader sees a file that no manifest names.

A task works with the schema ids, tables and field ids of its plan and catalog. It reports all others; the driver
resolves them and, if that added something, runs the unit again. A run that met something new writes no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files import failpoints
from spark_app.model.catalog import Catalog, SchemaKey, wait_for_change
from spark_app.model.causes import Cause, Reject
from spark_app.model.definitions import Origin
from spark_app.model.pauses import FailedRow
from spark_app.model.record_schemas import COORDINATES, OMITTED_SCHEMA
from spark_app.model.reports import Report
from spark_app.protobuf import framing, unwrap
from spark_app.protobuf.decode.decoder import decoder_for, why_none
from spark_app.protobuf.keys import read_keys
from spark_app.tables.expectations import row_checks
from spark_app.tables.expectations.row_checks import Checked
from spark_app.tables.pick import pick
from spark_app.tables.projections.row_projections import RowProjections
from spark_app.tables.route import Routed
from spark_app.units.worker import table_rows
from spark_app.units.worker.buffers import Buffers
from spark_app.units.worker.placement import Placement
from spark_app.units.worker.shuffle import Pack, split_small
from spark_app.units.worker.stopwatch import Stopwatch
from spark_app.units.worker.tally import Tally
from spark_app.units.worker.task_plan import TaskPlan

LEAST_LANDING = 0.5  # share of rows; if fewer land, they are copied, so that the buffers do not hold the others


def run(batches: Iterator[pa.RecordBatch], plan: TaskPlan, catalog: Catalog, task: str) -> Report:
    """Process one task's records; `task` is part of the file names and must be unique."""
    return run_and_pack(batches, replace(plan, gatherers=0), catalog, task)[0]


def run_and_pack(
    batches: Iterator[pa.RecordBatch], plan: TaskPlan, catalog: Catalog, task: str
) -> tuple[Report, dict[int, Pack]]:
    """As `run`, but the rows that are left at the end of tables with few of them are packed for the plan's gathering
    tasks. The report counts them, and those tasks report their files."""
    failpoints.arm(plan.here)
    watch = Stopwatch()
    work = _TaskRun(plan, catalog, task, watch)
    for batch, is_large in _split_large_records(batches, plan.own_file_bytes):
        if is_large:
            work.flush()
        with watch.step("decode"):
            work.add(batch)
        if is_large or work.buffered_bytes > plan.buffer_bytes:
            work.flush()
    packs = work.flush(plan.gatherers)
    return replace(work.report, steps=watch.stop()), packs


def _split_large_records(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The records in their order; a record whose value is larger comes by itself, with True."""
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
    """Framed payloads: the records' own values, or those inside wrappers.

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


class _TaskRun:
    def __init__(self, plan: TaskPlan, catalog: Catalog, task: str, watch: Stopwatch):
        self._plan = plan
        self._task = task
        self._watch = watch
        self._catalog = catalog
        self._tally = Tally()
        self._buffers = Buffers(plan, catalog.field_ids, task)
        self._placement = Placement(plan, catalog)
        self._projections = RowProjections(plan.definitions, plan.hmac_key_file, plan.storage)
        # Of the Arrow batch at hand: the records as bronze has them, their lineage, and (row, cause, detail, message
        # type, schema) of those that are quarantined.
        self._records: pa.Table = None
        self._lineage: pa.Table = None
        self._rejects: list[tuple[int, Cause, str, str, str]] = []
        self._failed: dict[int, table_rows.Failed] = {}  # of the rows that rules keep out of silver

    @property
    def report(self) -> Report:
        return self._tally.report

    @property
    def buffered_bytes(self) -> int:
        return self._buffers.bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Frame, group and decode one Arrow batch."""
        if batch.num_rows == 0:
            return
        values = batch.column("value")
        frames = framing.split(values, batch.column("headers"), bare=self._plan.unframed)
        self._records = table_rows.bronze_rows(batch, frames, self._plan.topic_ids, self._plan.landed_at)
        self._tally.count_records(self._records)
        if self._plan.write_bronze:
            self._buffers.add(self._plan.layout.bronze, self._records)
        self._reject_oversized(frames)
        self.report.tombstones += int((frames.status == framing.TOMBSTONE).sum())
        if self._plan.land_only:
            self._defer(np.flatnonzero(~np.isin(frames.status, (framing.TOMBSTONE, framing.OMITTED))), None)
        else:
            self._lineage = table_rows.lineage_rows(self._records, self._read_keys(batch, frames))
            self._decode(_Payloads(values, frames, np.arange(len(values))))
        self._buffer_rejects()

    def flush(self, gatherers: int = 0) -> dict[int, Pack]:
        """Write what is buffered. With `gatherers` the rows of small tables are returned instead, as gathering task ->
        pack. A unit whose task met something new is run again, so its rows are not worth it."""
        packs: dict[int, Pack] = {}
        if self._plan.field_ids:
            self._tally.count_new_columns(self._buffers.new_columns())
        if not self.report.met_new:
            with self._watch.step("write"):
                if gatherers:
                    self._buffers.silver, packs = split_small(
                        self._buffers.silver, self._tally.names, self._task, gatherers
                    )
                self.report.add_files(self._buffers.write(self._tally.names))
        self._buffers.clear()
        self._records = self._lineage = None
        return packs

    def _reject_oversized(self, frames: framing.Frames) -> None:
        """Quarantine the records whose value was too large to be kept: nothing can ever decode them."""
        if OMITTED_SCHEMA.names[0] not in self._records.column_names:
            return
        sizes, digests = (self._records.column(name) for name in OMITTED_SCHEMA.names)
        rows = pc.indices_nonzero(sizes.is_valid())
        frames.refuse(rows.to_numpy(), framing.OMITTED)
        self.report.value_bytes += pc.sum(sizes).as_py()
        # A record that is read from bronze may have been omitted under another limit.
        limit = f", the most is {self._plan.max_record_bytes}" if self._plan.write_bronze else ""
        for row in rows.to_pylist():
            detail = f"{sizes[row]} bytes{limit}; SHA-256 {digests[row]}"
            self._rejects.append((row, Cause.RECORD_SIZE, detail, "", ""))

    def _read_keys(self, batch: pa.RecordBatch, frames: framing.Frames) -> pa.Array | None:
        """The decoded keys. A record whose key has an unresolved schema is deferred as a whole."""
        if not self._plan.framed_keys:
            return None
        keys = read_keys(batch, self._catalog)
        for key, rows in keys.unresolved.items():
            rows = rows[frames.status[rows] == framing.OK]
            if len(rows):
                self._report_or_defer(rows, key)
                frames.refuse(rows, framing.HELD)
        return keys.texts

    def _decode(self, payloads: _Payloads) -> None:
        frames = payloads.frames
        for status, cause in framing.CAUSES.items():
            self._reject_all(payloads.rows[frames.nameless(status)], cause, "", payloads.within.rstrip("/"))
        for group in frames.groups():
            self._decode_group(payloads, group)

    def _decode_group(self, payloads: _Payloads, group: np.ndarray) -> None:
        """Decode the payloads of one schema and message type; `group` are positions among the payloads."""
        frames, rows = payloads.frames, payloads.rows[group]
        key, status = frames.key_of(group[0]), int(frames.status[group[0]])
        index, body = frames.indexes[frames.index[group[0]]], int(frames.body[group[0]])
        if framing.is_beyond(key):
            return self._reject_all(rows, Cause.SCHEMA_UNKNOWN, f"{key} is not a schema id: the largest is 2^31 - 1")
        refused = self._catalog.refused.get(key)
        if refused is not None:
            return self._reject_all(rows, Cause(refused[0]), refused[1], schema=str(key))
        decodable = self._catalog.decodable.get(key)
        if decodable is None:
            return self._report_or_defer(rows, key)
        if status != framing.OK:  # it is Protobuf, and so should have had a message index
            return self._reject_all(rows, framing.CAUSES[status], "", payloads.within.rstrip("/"))
        options, wrapper = self._plan.options, self._plan.wrapper if payloads.outer is None else None
        if wrapper is not None:
            options = replace(options, defaults=True)  # an empty payload is an event whose fields are all unset
        decoder = decoder_for(decodable, index, options)
        if decoder is None:
            return self._reject_all(rows, Cause.SCHEMA_INDEX, why_none(decodable, index, options))
        message = payloads.within + self._catalog.type_of(key, decoder.full_name)
        if wrapper is not None and not decoder.schema.names:
            return self._reject_all(rows, Cause.FRAME_WRAPPER, "the message has no fields", message)
        decoded = decoder.decode(pc.binary_slice(pick(payloads.values, group), body, 2**31 - 1))
        self._reject(rows, decoded.rejects, message)
        rows = rows[decoded.rows]
        if not len(rows):
            return None
        if wrapper is not None:
            inner, frames = unwrap.unwrap(decoded.table, wrapper)
            return self._decode(_Payloads(inner, frames, rows, decoded.table, f"{message}/"))
        outer = None if payloads.outer is None else pick(payloads.outer, group[decoded.rows])
        self._place(decoded.table, rows, key, message, outer)

    def _report_or_defer(self, rows: np.ndarray, key: SchemaKey) -> None:
        """Report a schema id that is new to the driver; defer the records of one that cannot be resolved now."""
        if key in self._catalog.paused:
            self._defer(rows, wait_for_change(key))
        elif key in self._catalog.waiting or self._plan.defer_new:
            self._defer(rows, key)
        else:
            self._tally.count_new_id(key, len(rows))

    def _place(self, table: pa.Table, rows: np.ndarray, key: SchemaKey, message: str, outer: pa.Table | None) -> None:
        """Put decoded rows into the buffers of their tables. `rows` are their positions among the records."""
        routed, table = self._placement.route(table, len(rows), message, outer)
        if self._plan.defer_new:
            new = [code for code, result in enumerate(routed.results) if result.new]
            self._defer(rows[np.isin(routed.codes, new)], None)
        else:
            self._tally.count_new_values(routed, message)
        self._reject(rows, routed.rejects(), message)
        self._hold(routed, rows)
        for placed, (good, fitted, misfits), columns in self._placement.fit(routed, table):
            self._reject(rows[placed], misfits, message)
            kept = placed[good]
            if len(kept):
                silver = table_rows.silver_rows(fitted, pick(self._lineage, rows[kept]), key)
                checked = self._check(routed, routed.codes[kept], silver, columns, (key, message))
                self._note_failing(checked, rows[kept])
                self._keep_out(checked, routed, routed.codes[kept], rows[kept], message)
                self._land(checked, routed, routed.codes[kept], silver, key, columns)

    def _check(
        self, routed: Routed, codes: np.ndarray, silver: pa.Table, columns: pa.Schema, origin: Origin
    ) -> Checked:
        """Check rows by the rules of their tables; `codes` are their codes in `routed`."""
        definitions = self._plan.definitions
        if not definitions:
            return Checked()
        with self._watch.step("check"):
            checked = row_checks.check(routed, codes, silver, definitions, self._placement.types(columns), origin)
        self._tally.count_checks(checked)
        return checked

    def _hold(self, routed: Routed, rows: np.ndarray) -> None:
        """Defer the rows of paused tables."""
        for code, result in enumerate(routed.results):
            if result.held is not None:
                own, plan = rows[routed.codes == code], self._plan
                records, table = pick(self._records, own), plan.layout.silver_of(result.held)
                deferred = table_rows.deferred_rows(records, plan.held[result.held], plan.landed_at, table)
                self._buffers.add(plan.layout.deferred, deferred)
                self._tally.count_held(result.held, len(own))

    def _note_failing(self, checked: Checked, rows: np.ndarray) -> None:
        """Report the tables that the driver has to pause, each with the record of a row that fails."""
        for name, (place, rule) in checked.failing.items():
            topic, _, partition, offset = (self._records.column(n)[int(rows[place])].as_py() for n in COORDINATES)
            self._tally.pause(name, FailedRow(topic, partition, offset, rule.name, rule.check))

    def _keep_out(self, checked: Checked, routed: Routed, codes: np.ndarray, rows: np.ndarray, message: str) -> None:
        """Quarantine or drop the rows that fail rules. `rows` are their positions among the records."""
        for part in checked.kept_out:
            names = (routed.results[code].name for code in codes[part.rows].tolist())
            failed = [(self._plan.layout.silver_of(str(name)), part.rules, part.definition) for name in names]
            if part.action == "quarantine":
                detail = f"fails {', '.join(part.rules)}"
                self._failed |= zip(rows[part.rows].tolist(), failed, strict=True)
                self._reject_all(rows[part.rows], Cause.EXPECT_FAILED, detail, message)
            else:
                records = pick(self._records, rows[part.rows])
                dropped = table_rows.dropped_rows(records, failed, self._plan.landed_at)
                self._buffers.add(self._plan.layout.dropped, dropped)
                self.report.dropped += len(failed)

    def _land(
        self, checked: Checked, routed: Routed, codes: np.ndarray, silver: pa.Table, key: SchemaKey, columns: pa.Schema
    ) -> None:
        """Buffer the rows that pass, with the columns of their projections; `columns` are those of their tables. A few
        rows that fail stay among them, without a table, because a copy would cost more."""
        landing, definitions = checked.landing(len(codes)), checked.numbers
        if landing is not None and len(landing) < len(codes) * LEAST_LANDING:
            silver, codes = pick(silver, landing), codes[landing]
            definitions, landing = None if definitions is None else definitions[landing], None
        if len(codes):
            places = slice(None) if landing is None else landing
            numbers = np.full(len(codes), table_rows.NOWHERE)
            numbers[places] = self._tally.count_silver(routed, codes[places], key)
            rows = table_rows.numbered_rows(silver, definitions, numbers)
            with self._watch.step("project"):
                for part in self._projections.split(rows, definitions, self._placement.types(columns)):
                    self._buffers.add_silver(part)

    def _reject(self, rows: np.ndarray, rejects: list[Reject], message: str) -> None:
        """Note the rejects of a group; `rows` are the group's positions among the records."""
        for row, cause, detail in rejects:
            self._rejects.append((int(rows[row]), cause, detail, message, ""))

    def _reject_all(self, rows: np.ndarray, cause: Cause, detail: str, message: str = "", schema: str = "") -> None:
        self._rejects += [(row, cause, detail, message, schema) for row in rows.tolist()]

    def _buffer_rejects(self) -> None:
        """One Arrow batch of quarantine rows for all rejects of the batch."""
        if not self._rejects:
            return
        rows, causes, details, messages, schemas = zip(*sorted(self._rejects), strict=True)
        records = self._records.take(pa.array(rows))
        failed = [self._failed.get(row) for row in rows] if self._failed else []
        moment = self._plan.landed_at
        rejected = table_rows.quarantine_rows(records, causes, details, messages, schemas, moment, failed)
        self._buffers.add(self._plan.layout.quarantine, rejected)
        self._tally.count_quarantined(causes, records)
        self._rejects, self._failed = [], {}

    def _defer(self, rows: np.ndarray, waits_for: SchemaKey | None) -> None:
        if len(rows):
            deferred = table_rows.deferred_rows(pick(self._records, rows), waits_for, self._plan.landed_at)
            self._buffers.add(self._plan.layout.deferred, deferred)
            self.report.deferred += len(rows)
