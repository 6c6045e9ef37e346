"""The rows of a task until they are files: one file per table each time the buffers are written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from spark_app.lake.delta import parquet as files
from spark_app.model.columns import FieldIds, paths_of
from spark_app.model.reports import FileEntry
from spark_app.units.worker import table_rows
from spark_app.units.worker.task_plan import TaskPlan

Groups = dict[pa.Schema, list[pa.Table]]  # silver rows by their schema, each with the number of its table
WRITERS = ThreadPoolExecutor(4, thread_name_prefix="write")


class Buffers:
    """
    Attributes:
        bytes: of all rows that are buffered.
        silver: the rows of silver tables.
    """

    def __init__(self, plan: TaskPlan, ids: FieldIds, task: str):
        """`task` is part of the file names and must be unique."""
        self._plan = plan
        self._ids = ids
        self._storage = plan.storage
        self._prefix = f"{plan.prefix}-{task}"
        self._written = 0  # files, so far
        self.clear()

    def clear(self) -> None:
        self.bytes = 0
        self._own: dict[str, list[pa.Table]] = {}  # of the tables that every lake has
        self.silver: Groups = {}

    def add(self, table: str, rows: pa.Table) -> None:
        """Buffer rows of a table that is not silver."""
        self._own.setdefault(table, []).append(rows)
        self.bytes += rows.nbytes

    def add_silver(self, rows: pa.Table) -> None:
        """Buffer rows of silver tables, each with the number of its table."""
        self.silver.setdefault(rows.schema, []).append(rows)
        self.bytes += rows.nbytes

    def keep_silver(self, rows: Groups) -> None:
        """Keep these rows of silver tables only, and free the others."""
        self.silver = rows

    def new_columns(self) -> list[str]:
        """The paths of the columns that have no field id yet."""
        own = {rows.schema for parts in self._own.values() for rows in parts}
        paths = (path for schema in (*own, *self.silver) for path in paths_of(schema) if path != table_rows.NUMBER)
        return self._ids.lacking(paths)

    def write(self, names: list[str]) -> Iterator[tuple[str, FileEntry]]:
        """Write the files side by side, because they wait for the disk more than for the processor.

        Args:
            names: the routing names by the numbers of their tables.
        """
        parts = self._parts(names)
        first, self._written = self._written, self._written + len(parts)
        named = [(table, f"{self._prefix}-{first + i:05d}.parquet", rows) for i, (table, rows) in enumerate(parts)]
        return WRITERS.map(self._write, *zip(*named, strict=True)) if named else iter(())

    def _parts(self, names: list[str]) -> list[tuple[str, pa.Table]]:
        """(table, rows): bronze, quarantine, deferred, dropped, then one of each silver table."""
        layout = self._plan.layout
        others = (layout.bronze, layout.quarantine, layout.deferred, layout.dropped)
        own = [name for name in others if name in self._own]
        parts = [(name, pa.concat_tables(self._own[name], promote_options="default")) for name in own]
        split = table_rows.split_by_table(self.silver.values())
        return parts + [(layout.silver_of(names[number]), rows) for number, rows in split]

    def _write(self, table: str, name: str, rows: pa.Table) -> tuple[str, FileEntry]:
        plan = self._plan
        compression = plan.bronze_compression if table == plan.layout.bronze else plan.compression
        return table, files.write_file(self._storage, table, name, rows, compression, ids=self._ids)
