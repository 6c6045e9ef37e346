"""One task of a unit: it reads each record once, from raw bytes to one file per table.

In: Arrow batches of `SOURCE_SCHEMA`. Out: one `Report` that names every file written and counts every record. Nothing
is committed here: no reader sees a file that no manifest names.

A task works with the schema ids, tables and field ids of its plan and catalog. It reports all others; the driver
resolves them and, if that added something, runs the unit again. A run that met something new writes no files.

The reasons: docs/decisions/tasks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files import failpoints
from spark_app.model.catalog import Catalog
from spark_app.model.reports import Report
from spark_app.tables.projections.row_projections import RowProjections
from spark_app.tables.route import pick
from spark_app.units.worker import table_rows
from spark_app.units.worker.buffers import Buffers
from spark_app.units.worker.row_router import RowRouter
from spark_app.units.worker.shuffle import Pack, split_small
from spark_app.units.worker.steps import (
    Deferred,
    Dropped,
    Found,
    Left,
    Part,
    Rejected,
    Tools,
    check,
    decode,
    fit,
    frame,
    judge,
    project,
    route,
    unwrap,
    write,
)
from spark_app.units.worker.tally import Stopwatch, Tally
from spark_app.units.worker.task_plan import TaskPlan

Step = Callable[[Tools, Part], Found]
STEPS: tuple[Step, ...] = (frame, decode, unwrap, route, fit, judge, check, project, write)


def run(batches: Iterator[pa.RecordBatch], plan: TaskPlan, catalog: Catalog, task: str) -> Report:
    """Process one task's records; `task` is part of the file names and must be unique."""
    return run_and_pack(batches, replace(plan, gatherers=0), catalog, task)[0]


def run_and_pack(
    batches: Iterator[pa.RecordBatch], plan: TaskPlan, catalog: Catalog, task: str
) -> tuple[Report, dict[int, Pack]]:
    """As `run`, but the rows that are left at the end of tables with few of them are packed for the plan's gathering
    tasks. The report counts them, and those tasks report their files."""
    failpoints.arm(plan.local_state)
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


class _TaskRun:
    def __init__(self, plan: TaskPlan, catalog: Catalog, task: str, watch: Stopwatch):
        self._plan = plan
        self._task = task
        self._watch = watch
        self._tally = Tally()
        self._buffers = Buffers(plan, catalog.field_ids, task)
        projections = RowProjections(plan.definitions, plan.hmac_key_file, plan.storage)
        router = RowRouter(plan, catalog)
        self._tools = Tools(plan, catalog, self._tally, self._buffers, router, projections, watch)

    @property
    def report(self) -> Report:
        return self._tally.report

    @property
    def buffered_bytes(self) -> int:
        return self._buffers.bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Take one Arrow batch through the steps, and buffer what leaves."""
        rejected: list[Rejected] = []
        for left in _follow(self._tools, Part(batch), STEPS) if batch.num_rows else ():
            if isinstance(left, Rejected):
                rejected.append(left)
            elif isinstance(left, Deferred):
                self._defer(left)
            else:
                self._drop(left)
        self._quarantine(rejected)

    def flush(self, gatherers: int = 0) -> dict[int, Pack]:
        """Write what is buffered. With `gatherers` the rows of small tables are returned instead, as gathering task ->
        pack. A unit whose task met something new is run again, so its rows are not worth it."""
        packs: dict[int, Pack] = {}
        if self._plan.field_ids:
            self._tally.count_new_columns(self._buffers.new_columns())
        if not self.report.met_new:
            with self._watch.step("write"):
                if gatherers:
                    kept, packs = split_small(self._buffers.silver, self._tally.names, self._task, gatherers)
                    self._buffers.keep_silver(kept)
                self.report.add_files(self._buffers.write(self._tally.names))
        self._buffers.clear()
        return packs

    def _quarantine(self, rejected: list[Rejected]) -> None:
        """One Arrow batch of quarantine rows for all rejects of the batch, in the order of the records."""
        found = [
            (*reject, one.message, one.schema, failed)
            for one in rejected
            for reject, failed in zip_longest(one.rejects, one.failed)
        ]
        if not found:
            return
        rows, causes, details, messages, schemas, failed = zip(*sorted(found, key=itemgetter(0)), strict=True)
        records = rejected[0].records.take(pa.array(rows))
        moment = self._plan.landed_at
        quarantined = table_rows.quarantine_rows(records, causes, details, messages, schemas, moment, failed)
        self._buffers.add(self._plan.layout.quarantine, quarantined)
        self._tally.count_quarantined(causes, records)

    def _defer(self, left: Deferred) -> None:
        if len(left.rows):
            layout, records = self._plan.layout, pick(left.records, left.rows)
            table = layout.silver_of(left.paused) if left.paused else None
            self._buffers.add(
                layout.deferred, table_rows.deferred_rows(records, left.waits_for, self._plan.landed_at, table)
            )
            self._tally.count_deferred(len(left.rows), left.paused)

    def _drop(self, left: Dropped) -> None:
        dropped = table_rows.dropped_rows(pick(left.records, left.rows), left.failed, self._plan.landed_at)
        self._buffers.add(self._plan.layout.dropped, dropped)
        self.report.dropped += len(left.failed)


def _follow(tools: Tools, part: Part, steps: Sequence[Step]) -> Iterator[Left]:
    """Take a part through the steps, each piece of it to the last step before the next one is made; yields what
    leaves."""
    for found in steps[0](tools, part):
        if isinstance(found, Part):
            yield from _follow(tools, found, steps[1:])
        else:
            yield found
