"""Handles of the lake's Delta tables, kept open: opening one costs more than a commit to it.

Their columns have Parquet field ids, which a lake keeps for ever:

    _protolake/field_ids.json    {"_topic": 1, "player": 2, "player.name": 3, ...}

A path has one id in all tables. So two columns of a table never share one, and a column has the same id in every file.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError

from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.log import entry_key
from spark_app.lake.delta.manifest import Manifest
from spark_app.lake.delta.table_schema import columns_of, open_table
from spark_app.lake.files import failpoints
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.columns import NO_COMMENTS, NO_IDS, Comments, FieldIds, paths_of
from spark_app.model.reports import FileEntry
from spark_app.model.table_names import TableNames
from spark_app.settings.storing import LakeSettings


class ColumnIds:
    """Of one lake.

    Attributes:
        assigned: the ids that this object has read or assigned.
    """

    def __init__(self, lake: Lake):
        self._lake = lake
        self.assigned = NO_IDS

    def assign(self, paths: Iterable[str]) -> FieldIds:
        """Ids for at least these paths. New ones are the next numbers, and are durable before a file has them.

        Raises:
            ContractError: the file of ids is damaged.
        """
        wanted = self.assigned.lacking(paths)
        if wanted:
            stored: dict[str, int] = read_durable(self._lake.storage, self._lake.field_ids) or {}
            known = len(stored)
            for path in wanted:
                stored.setdefault(path, len(stored) + 1)
            if len(stored) > known:
                write_durably(self._lake.storage, self._lake.field_ids, json.dumps(stored, indent=0), "field_ids")
            self.assigned = FieldIds(stored)
        return self.assigned


INDEXED = "delta.dataSkippingNumIndexedCols"  # without it readers look for bounds of a table's first 32 columns only


class Tables:
    """Open handles of the lake's tables. A caller that commits through a handle must refresh it.

    Attributes:
        lake: where the tables are.
        column_ids: the field ids of the lake.
    """

    def __init__(self, lake: Lake, settings: LakeSettings, layout: TableNames | None = None):
        self.lake = lake
        self.storage = lake.storage
        self._handles: dict[str, DeltaTable] = {}
        self._appended: dict[str, tuple[int, int]] = {}  # table -> version and unit that its handle lacks
        self._checkpoints: dict[str, Future[None]] = {}  # running
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._settings = settings
        self._layout = layout or TableNames()
        self.column_ids = ColumnIds(lake)
        self._checkpoint_every = settings.checkpoint_every
        seconds = max(1, int(settings.log_retention_hours * 3600))
        self.configuration: dict[str, str | None] = {
            "delta.logRetentionDuration": f"interval {seconds} seconds",
            "delta.deletedFileRetentionDuration": f"interval {seconds} seconds",
            "delta.checkpointInterval": str(settings.checkpoint_every),
            "delta.enableExpiredLogCleanup": "false",  # `maintenance` does it, and only up to a durable checkpoint
        }

    def compression_of(self, name: str) -> str:
        """The compression of the table's files."""
        return self._settings.compression_of_bronze if name == self._layout.bronze else self._settings.compression

    def field_ids(self, name: str, columns: pa.Schema) -> FieldIds:
        """The field ids for a file of the table with these columns. Gold, which delta-rs writes too, has none, nor have
        tables that are written beside the units."""
        without = self._layout.is_gold(name) or name in self._layout.spooled
        return NO_IDS if without else self.column_ids.assign(paths_of(columns))

    def get(self, name: str) -> DeltaTable | None:
        """The table's handle, up to date; None if the table does not exist."""
        try:
            self._await_checkpoint(name)
            if self._appended.pop(name, None) is not None and name in self._handles:
                self._handles[name].update_incremental()
        except (DeltaError, OSError):
            self.forget(name)
        return self._open(name)

    def look_again(self, name: str) -> DeltaTable | None:
        """As `get`, in a process that does not write the table."""
        table = self._open(name)
        if table is None or (self.storage.is_local and not self.storage.exists(entry_key(name, table.version() + 1))):
            return table
        try:
            table.update_incremental()
        except (DeltaError, OSError):  # its log was cleaned, or it was begun anew
            self.forget(name)
        return self._open(name)

    def _open(self, name: str) -> DeltaTable | None:
        """The handle, which may lack the last entries."""
        if name not in self._handles:
            if not self.lake.has_table(name) or (
                self.storage.is_local and not DeltaTable.is_deltatable(self.uri(name))
            ):
                return None
            self._handles[name] = open_table(self.lake, name)
        return self._handles[name]

    def create_from_unit(
        self, name: str, columns: pa.Schema, manifest: Manifest, app: str, comments: Comments = NO_COMMENTS
    ) -> None:
        """Create a table with `delta_log.append`; its handle is opened when it is needed."""
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{app}/{name}/{manifest.sequence}")
        begins = self._beginning(columns, comments, identity, manifest.at // 1000)
        delta_log.append(self.storage, self.lake.table(name), 0, manifest, app, begins)
        self._appended[name] = 0, manifest.sequence

    def begin_by_rows(
        self,
        name: str,
        columns: pa.Schema,
        adds: Collection[FileEntry],
        transactions: Sequence[tuple[str, int]],
        comments: Comments = NO_COMMENTS,
    ) -> None:
        """Create a table with `delta_log.write_rows`; its handle is opened when it is needed."""
        self._write_rows(name, 0, adds, [], transactions, self._beginning(columns, comments))

    def commit_rows(
        self, name: str, adds: Collection[FileEntry], removes: Collection[str], transactions: Sequence[tuple[str, int]]
    ) -> int:
        """As `append_unit`, with `delta_log.write_rows`."""
        return self._write_rows(name, self._next(name), adds, removes, transactions)

    def _write_rows(
        self,
        name: str,
        version: int,
        adds: Collection[FileEntry],
        removes: Collection[str],
        transactions: Sequence[tuple[str, int]],
        begins: delta_log.Lines = (),
        mode: delta_log.Mode = "Append",
    ) -> int:
        self.lake.lease.check()
        delta_log.write_rows(self.storage, self.lake.table(name), version, adds, removes, transactions, begins, mode)
        self._appended[name] = version, transactions[-1][1]
        return version

    def _beginning(
        self, columns: pa.Schema, comments: Comments, identity: uuid.UUID | None = None, at: int | None = None
    ) -> delta_log.Lines:
        return delta_log.create_table_actions(columns, self.configuration | skipping(columns), comments, identity, at)

    def add_columns(self, name: str, columns: pa.Schema, comments: Comments) -> None:
        """Add columns and comments with `delta_log.extend`, and refresh the handle."""
        table = self._handles[name]
        delta_log.check(name, table)
        self.lake.lease.check()
        delta_log.extend(self.storage, self.lake.table(name), table, columns, comments, self.lake.lease.epoch)
        table.update_incremental()

    def append_unit(self, name: str, manifest: Manifest, app: str) -> int:
        """Append a unit's commit with `delta_log.append` after the last known version of an open or new table; the
        handle is refreshed when it is needed. Returns the version."""
        version = self._next(name)
        delta_log.append(self.storage, self.lake.table(name), version, manifest, app)
        self._appended[name] = version, manifest.sequence
        return version

    def renew_by_unit(self, name: str, columns: pa.Schema, manifest: Manifest, app: str, comments: Comments) -> None:
        """Replace all files and the columns of a table with those of a unit; its handle is opened when it is needed."""
        table = self.get(name)
        assert table is not None
        version, configuration = self._next(name), self.configuration | skipping(columns)
        folder = self.lake.table(name)
        delta_log.renew(self.storage, folder, version, manifest, app, table, columns, configuration, comments)
        self.forget(name)

    def replace_rows(
        self,
        name: str,
        adds: Collection[FileEntry],
        removes: Collection[str],
        upto: int,
        app: str,
        columns: pa.Schema | None = None,
        comments: Comments = NO_COMMENTS,
    ) -> int:
        """As `commit_rows`, for files that replace all others. `columns`: the table's from now on; None = as before."""
        begins: delta_log.Lines = ()
        if columns is not None:
            begins = delta_log.new_schema(self.handle(name), columns, comments, self.configuration | skipping(columns))
        return self._write_rows(name, self._next(name), adds, removes, [(app, upto)], begins, "Overwrite")

    def _next(self, name: str) -> int:
        self._await_checkpoint(name)
        return 1 + (self._appended[name][0] if name in self._appended else self._handles[name].version())

    def ends_with(self, name: str, version: int) -> bool:
        """True if the table's log ends with this version. In a bucket a commit finds that out itself."""
        if not self.storage.is_local:
            return True
        found = [self.storage.exists(entry_key(name, number)) for number in (version, version + 1)]
        return found == [True, False]

    def handle(self, name: str) -> DeltaTable:
        """The handle of an existing table, which may lack the last entries."""
        table = self._open(name)
        assert table is not None
        return table

    def unit(self, name: str) -> int | None:
        """The unit of the table's last commit, if nothing else has changed the table and `get` has not been called
        since."""
        return self._appended[name][1] if name in self._appended else None

    def version(self, name: str) -> int | None:
        """The table's last known version, without reading the disk; None if the table does not exist."""
        if name in self._appended:  # then a running checkpoint may be using the handle
            return self._appended[name][0]
        table = self._open(name)
        return None if table is None else table.version()

    def replace_files(self, name: str, adds: Collection[FileEntry], removes: Collection[str]) -> None:
        """Replace files with `delta_log.rewrite` after the handle's version, and refresh the handle."""
        table = self._handles[name]
        delta_log.check(name, table)
        self.lake.lease.check()
        epoch = self.lake.lease.epoch
        delta_log.rewrite(self.storage, self.lake.table(name), table.version() + 1, adds, removes, epoch)
        table.update_incremental()

    def index(self, name: str) -> None:
        """Set the table property that makes readers use the bounds of all columns with statistics."""
        table = self.get(name)
        if table is None:
            return
        wanted = skipping(columns_of(table))
        had = table.metadata().configuration.get(INDEXED)
        if had is None or 0 <= int(had) < int(wanted[INDEXED]):  # -1: all
            self.lake.lease.check()
            with failpoints.around("properties"):
                table.alter.set_table_properties(wanted)
            table.update_incremental()

    def checkpoint_if_due(self, name: str, version: int) -> None:
        """Start a checkpoint of the newest version from time to time, so that readers need not read the entries before
        it.

        It is written in a thread, because delta-rs reads those entries again. The table's next commit waits for it:
        otherwise the checkpoint could be older than the durable part of the log.
        """
        if (version + zlib.crc32(name.encode())) % self._checkpoint_every == 0:  # spreads the tables
            self._checkpoints[name] = self._pool.submit(self._make_checkpoint, name)

    def _make_checkpoint(self, name: str) -> None:
        table = self._handles.get(name) or open_table(self.lake, name)
        table.update_incremental()
        self.lake.lease.check()
        table.create_checkpoint()
        # A handle keeps 25 KB for each entry that it has read: more than a gigabyte for a thousand tables.
        self._handles[name] = open_table(self.lake, name)

    def _await_checkpoint(self, name: str) -> None:
        if name in self._checkpoints:
            self._checkpoints.pop(name).result()

    def wait_for_checkpoints(self) -> None:
        """Wait for all checkpoints."""
        while self._checkpoints:
            self._await_checkpoint(next(iter(self._checkpoints)))

    def columns(self, name: str) -> pa.Schema | None:
        """The table's columns, without comments; None if the table does not exist."""
        table = self._open(name)
        return None if table is None else columns_of(table)

    def files(self, name: str) -> list[str]:
        """Keys of the table's files; empty if the table does not exist."""
        table = self.get(name)
        if table is None:
            return []
        return [f"{name}/{path}" for path in table.get_add_actions()["path"].to_pylist()]

    def files_between(self, name: str, column: str, low: Any, high: Any) -> list[str]:
        """Keys of the table's files that, by Delta's statistics, may hold values of the column from `low` to `high`;
        empty if the table does not exist. Both are numbers, or times with a zone."""
        table = self.get(name)
        if table is None:
            return []
        actions = table.get_add_actions(flatten=True)
        keys = (f"min.{column}", f"max.{column}")
        bounds = [actions[k].to_pylist() if k in actions.schema.names else [None] * len(actions) for k in keys]
        return [
            f"{name}/{path}"
            for path, first, last in zip(actions["path"].to_pylist(), *bounds, strict=True)
            if first is None or last is None or (first <= high and last >= low)
        ]

    def uri(self, name: str) -> str:
        """The name under which delta-rs and Spark open the table."""
        return self.storage.uri(self.lake.table(name))

    def forget(self, name: str) -> None:
        """Drop the table's handle, after its running checkpoint has ended."""
        wait([self._checkpoints.pop(name)] if name in self._checkpoints else [])
        self._handles.pop(name, None)
        self._appended.pop(name, None)


def skipping(columns: pa.Schema) -> dict[str, str]:
    """The table property that makes readers use the bounds of the lineage columns, which come after the message's
    columns.

    Delta could also list the columns, but then delta-rs (1.6.6) uses no bounds of columns after a struct.
    """
    return {INDEXED: str(files.reach(columns))}


def writer_properties(settings: LakeSettings, columns: pa.Schema) -> WriterProperties:
    """Properties for files that delta-rs writes, with statistics of integers and strings only: delta-rs clips decimals,
    rounds timestamps, and leaves NaN out."""
    bounded = [f.name for f in columns if pa.types.is_integer(f.type) or pa.types.is_string(f.type)]
    return WriterProperties(
        compression="ZSTD" if settings.compression == "zstd" else "SNAPPY",
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={name: ColumnProperties(statistics_enabled="CHUNK") for name in bounded},
    )
