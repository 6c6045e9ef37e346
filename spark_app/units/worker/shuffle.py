"""Gathers the rows of small silver tables: otherwise each task of a unit would write a file of a few rows per table.

A task packs its rows of the tables of which it has few, a pack for each gathering task, and Spark's shuffle brings them
there. The table's name decides the gathering task, which writes one file per table. The rows of a file are in the order
of the tasks that decoded them, whichever pack arrives first.

The reasons: docs/decisions/tasks.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_app.lake.files import failpoints
from spark_app.model.columns import FieldIds
from spark_app.model.reports import Report
from spark_app.units.worker.buffers import Buffers, Groups
from spark_app.units.worker.table_rows import NOWHERE, NUMBER, split_by_number
from spark_app.units.worker.tally import Stopwatch
from spark_app.units.worker.task_plan import TaskPlan

SMALL_ROWS = 1_000  # of a table in one task: a file of fewer costs more than to send the rows to another task


def to_stream(rows: pa.Table) -> bytes:
    """A table as bytes, on its way from one worker to another or to the driver."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def from_stream(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()


@dataclass(frozen=True)
class Pack:
    """Rows of one task for one gathering task.

    Attributes:
        task: of which they come.
        names: the routing names by the numbers of the rows' tables.
        streams: Arrow's IPC format, one of each schema.
    """

    task: str
    names: list[str]
    streams: list[bytes]


def split_small(groups: Groups, names: Sequence[str], task: str, gatherers: int) -> tuple[Groups, dict[int, Pack]]:
    """The rows of tables with many rows here, and gathering task -> pack of the others."""
    merged = [pa.concat_tables(parts) for parts in groups.values()]
    numbers = [rows.column(NUMBER).to_numpy() - NOWHERE for rows in merged]  # from 0 on
    counts = sum((np.bincount(own, minlength=len(names) + 1) for own in numbers), np.zeros(len(names) + 1, np.int64))
    small = (counts > 0) & (counts < SMALL_ROWS)
    small[0] = False  # rows of no table
    if not small.any():
        return groups, {}
    targets = np.where(small, [gatherers, *(_gatherer_of(name, gatherers) for name in names)], gatherers)
    kept: Groups = {}
    streams: dict[int, list[bytes]] = {}
    for rows, own in zip(merged, numbers, strict=True):
        for target, part in split_by_number(rows, targets[own]):
            if target == gatherers:
                kept[rows.schema] = [part]
            else:
                streams.setdefault(target, []).append(to_stream(part))
    return kept, {target: Pack(task, list(names), own) for target, own in streams.items()}


def _gatherer_of(name: str, gatherers: int) -> int:
    """The same in all processes, which Python's own hash is not."""
    return zlib.crc32(name.encode()) % gatherers


def gather(packs: Iterable[Pack], plan: TaskPlan, ids: FieldIds, task: str) -> Report:
    """Write the packed rows of all tasks to one file per table; `task` is part of the file names and must be unique."""
    failpoints.arm(plan.local_state)
    watch, report, numbers = Stopwatch(), Report(), dict[str, int]()
    buffers = Buffers(plan, ids, task)

    def write() -> None:
        with watch.step("write"):
            report.add_files(buffers.write(list(numbers)))
        buffers.clear()

    for pack in sorted(packs, key=lambda pack: pack.task):
        own = np.array([numbers.setdefault(name, len(numbers)) for name in pack.names])
        for stream in pack.streams:
            rows = from_stream(stream)
            place = rows.schema.get_field_index(NUMBER)
            buffers.add_silver(rows.set_column(place, NUMBER, pa.array(own[rows.column(NUMBER).to_numpy()])))
        if buffers.bytes > plan.buffer_bytes:
            write()
    write()
    report.steps = watch.stop()
    return report
