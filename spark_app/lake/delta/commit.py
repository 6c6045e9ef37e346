"""Applies committed units: one Delta commit per table. Only this module writes to tables other than gold.

Each Delta commit carries the transaction (lake id, manifest number), so that a repeated commit is detected. After a
crash the next start applies the unit again with the same files. Bronze comes first; the other tables follow in
parallel.

The reasons: docs/decisions/commit.md.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.log import SEQUENCE, UNIT
from spark_app.lake.delta.manifest import Change, Manifest, Manifests
from spark_app.lake.delta.merged_columns import grows, merge_columns
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.delta.table_schema import columns_of
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.columns import NO_COMMENTS, Comments
from spark_app.model.errors import ContractError
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.model.reports import FileEntry
from spark_app.model.table_names import TableNames
from spark_app.settings.storing import LakeSettings

SYNC_EVERY_S = 10.0
TRIES = 10  # attempts at a Delta commit whose version another writer has used
HISTORY = 100  # Delta commits of a table whose digests `redo` compares
THREADS = 8
THREADS_IN_A_BUCKET = 32  # each waits for the response of the store
MOST_NAMED = 10  # columns


class TableCommitter:
    """Applies manifests in order."""

    def __init__(
        self,
        lake: Lake,
        manifests: Manifests,
        settings: LakeSettings,
        layout: TableNames | None = None,
        comments: Callable[[str], Comments] = lambda table: NO_COMMENTS,
    ):
        """`comments` returns the comments for a table that begins or gets columns."""
        self._lake = lake
        self._comments = comments
        self._manifests = manifests
        self._app = lake.identity()
        self.synced = DurabilityMark(lake)
        self.tables = Tables(lake, settings, layout)
        self._unsynced: set[str] = set()
        self._syncing: Future[None] | None = None
        self._next_sync = time.monotonic() + SYNC_EVERY_S
        self._digests: dict[str, dict[int, str]] = {}  # table -> unit -> digest, during `redo`
        self._known_schemas: dict[str, set[str]] = {}
        self._gone: set[str] = set()  # tables with a logged warning about missing files
        threads = THREADS if lake.storage.is_local else THREADS_IN_A_BUCKET
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="commit")

    def redo(self) -> int:
        """Apply units that a crash interrupted, independent of rules and registry, and check all commits that may not
        be durable. Returns the number of units applied again.

        Raises:
            ContractError: a table has a unit that is in no manifest.
        """
        redone_units = 0
        self._digests.clear()
        self.synced.check(self._manifests.last)
        earlier: dict[str, int] = {}  # table -> the last unit before that names it, once it is needed
        after = min(self.synced.unit, self._manifests.last - 1)  # the last one shows whose tables these are
        finished = max(after, self._manifests.applied())
        for number in (n for n in self._manifests.numbers() if n > after):
            manifest, recheck = self._manifests.read(number), number < self._manifests.last
            lacking = {name for name in manifest.tables if (self.seen(name) or 0) < number}
            if lacking:
                earlier = earlier or self._manifests.named_until(number - 1)
            redone_units += self._apply(manifest, recheck, self._behind(lacking, earlier, number <= finished))
            if earlier:
                earlier |= dict.fromkeys(manifest.tables, number)
        if self._manifests.applied() < self._manifests.last:
            self._manifests.mark_applied(self._manifests.last)
        if redone_units:
            log.info("units applied again after a crash", units=redone_units)
        return redone_units

    def _behind(self, names: Iterable[str], earlier: Mapping[str, int], finished: bool) -> set[str]:
        """Those of the tables that lack earlier units: an older copy, or a table that was removed except for its files.
        Another commit would hide that."""
        seen = {name: self.seen(name) for name in names}
        return {n for n, last in seen.items() if earlier.get(n, 0) > (last or 0) and (finished or last is not None)}

    def seen(self, name: str, by: str = "") -> int | None:
        """The table's last unit, or with `by` = "/gold" the last unit that is merged into it; 0 if it has no unit of
        this lake, None if the table does not exist."""
        table = self.tables.get(name)
        return None if table is None else table.transaction_version(f"{self._app}{by}") or 0

    def apply(self, manifest: Manifest) -> None:
        """Apply the unit that was committed last."""
        self._apply(manifest)
        self._manifests.mark_applied(manifest.sequence)
        self._sync_sometimes()

    def _apply(self, manifest: Manifest, recheck: bool = False, leave: Collection[str] = ()) -> bool:
        """Make the unit's missing Delta commits, except for the tables in `leave`; True if a commit was missing.

        Args:
            recheck: the unit is not the last one, so its tables may have later units: a unit is only committed after
                those before it are applied.
        """
        first, *rest = manifest.tables or [""]
        if manifest.kind == "ingest" and first and self._is_lost(manifest, first):
            raise ContractError(
                f"unit {manifest.sequence} is committed, but its files of {first} are missing: restore them"
            )
        missing = bool(first) and self._commit(manifest, first, recheck, leave)
        plain = [name for name in rest if self._is_plain(manifest, name)]
        others = [name for name in rest if name not in set(plain)]
        commits = [self._pool.submit(self._commit, manifest, name, recheck, leave) for name in others]
        try:
            missing = any([missing, *(self._commit(manifest, name, recheck, leave) for name in plain)])
        finally:
            wait(commits)  # for all: after a failure the running commits would otherwise overlap with those of `redo`
        self._unsynced.update(manifest.tables)
        return any([missing, *(commit.result() for commit in commits)])

    def _is_plain(self, manifest: Manifest, name: str) -> bool:
        """True if the Delta commit writes one small file to a disk, without delta-rs: threads would only wait for each
        other. In a bucket they wait for its responses side by side."""
        if not self._lake.storage.is_local:
            return False
        known = self._known_schemas.get(name, set())
        return self.tables.unit(name) is not None and all(e.schema in known for e in manifest.tables[name].adds)

    def _is_lost(self, manifest: Manifest, bronze: str) -> bool:
        """True if the only copy of the records was removed before its Delta commit was made. In a bucket nobody else
        removes files."""
        if not self._missing(bronze, manifest.tables[bronze]):
            return False
        return manifest.sequence > max(self._manifests.applied(), self.seen(bronze) or 0)

    def _sync_sometimes(self) -> None:
        """Fsync in a thread beside the batches, so that they do not wait for the disk."""
        if self._syncing is None and time.monotonic() > self._next_sync:
            names, self._unsynced = self._unsynced, set()
            self._syncing = self._pool.submit(self.synced.sync, names, unit=self._manifests.applied())
        elif self._syncing is not None and self._syncing.done():
            syncing, self._syncing = self._syncing, None
            self._next_sync = time.monotonic() + SYNC_EVERY_S
            syncing.result()

    def close(self) -> None:
        """Make every commit durable, so that the next start need not check any."""
        if self._syncing is not None:
            self._syncing.result()
        self.tables.wait_for_checkpoints()
        self.synced.sync(self._unsynced, unit=self._manifests.applied())

    def _commit(self, manifest: Manifest, name: str, recheck: bool, leave: Collection[str] = ()) -> bool:
        for _ in range(TRIES):
            try:
                before = self.tables.unit(name)
                if before is None or before >= manifest.sequence:
                    return self._look_and_commit(manifest, name, recheck, leave)
                self._append(manifest, name)
                return True
            except FileExistsError:
                log.warning("another writer has written to a table", table=name)
            except ContractError:
                self._lake.lease.check()  # what another process made of the table contradicts nothing
                raise
        self._lake.lease.check()
        raise ContractError(f"table {name}: other writers keep writing to it: stop them")

    def _look_and_commit(self, manifest: Manifest, name: str, recheck: bool, leave: Collection[str]) -> bool:
        """Commit to a table that another process may have changed or removed since this process last read it."""
        change, sequence = manifest.tables[name], manifest.sequence
        table = self.tables.get(name)
        done = table.transaction_version(self._app) if table else None
        if done is not None and done >= sequence:
            if done > sequence and not recheck:
                raise ContractError(
                    f"table {name} has unit {done}, but the newest manifest is {sequence}: restore _protolake from "
                    "a backup that is not older than the tables; nothing was removed"
                )
            self._compare_digest(name, table, sequence, manifest.digest)
            return False
        if table is not None and done is None:
            self._refuse_another_lakes(name, table)
        if name in leave or self._is_gone(name, change, sequence):
            return False
        if table is None:
            self._create(manifest, name)
        else:
            delta_log.check(name, table)
            self._append(manifest, name)
        return True

    def _refuse_another_lakes(self, name: str, table: DeltaTable) -> None:
        """Reject a table that has units, but none under this lake's id: each unit would be committed a second time."""
        if any("protolake.sequence" in commit for commit in table.history(limit=20)):
            raise ContractError(
                f"table {name} was written under another lake id than {self._app}: restore the table, or run "
                f"`doctor --repair` to restore {self._lake.storage.uri(self._lake.id)}"
            )

    def _is_gone(self, name: str, change: Change, sequence: int) -> bool:
        """True if another process removed files that the unit added, together with the commit. Adding them again would
        make the table unreadable."""
        missing = self._missing(name, change)
        if missing and name not in self._gone:
            self._gone.add(name)
            remedy = "`rebuild` adds the missing rows from bronze"
            log.warning("files of committed units are missing", table=name, unit=sequence, remedy=remedy)
        return bool(missing)

    def _missing(self, name: str, change: Change) -> list[str]:
        if not self._lake.storage.is_local:
            return []
        keys = (f"{self._lake.table(name)}/{entry.path}" for entry in change.adds)
        return [key for key in keys if not self._lake.storage.exists(key)]

    def forget(self, name: str) -> None:
        """Drop the handle of a table that was removed, or changed by another process."""
        self.tables.forget(name)
        self._known_schemas.pop(name, None)

    def _compare_digest(self, name: str, table: DeltaTable | None, sequence: int, digest: str) -> None:
        """Check that a table with the transaction has it from this manifest."""
        assert table is not None
        if name not in self._digests:
            self._digests[name] = {c[SEQUENCE]: c[UNIT] for c in table.history(limit=HISTORY) if UNIT in c}
        if self._digests[name].get(sequence, digest) != digest:
            raise ContractError(
                f"table {name} has unit {sequence} of another manifest: restore both from the same backup"
            )

    def _create(self, manifest: Manifest, name: str) -> None:
        adds = manifest.tables[name].adds
        columns = merge_columns(pa.schema([]), *schemas_of(adds))
        comments = self._comments(name)
        self.synced.forget(name)
        with failpoints.around(_step(manifest, name)):
            self.tables.create_from_unit(name, columns, manifest, self._app, comments)
        self._known_schemas[name] = {entry.schema for entry in adds}

    def _append(self, manifest: Manifest, name: str) -> None:
        change = manifest.tables[name]
        try:
            if manifest.kind == "renew":
                return self._renew(manifest, name)
            self._add_columns(name, change)
            with failpoints.around(_step(manifest, name)):
                version = self.tables.append_unit(name, manifest, self._app)
                self.tables.checkpoint_if_due(name, version)
        except FileNotFoundError as error:
            raise ContractError(
                f"the log of table {name} has changed unexpectedly ({error})",
                f"restore {name}, or start the app again and add the missing rows with `rebuild`",
            ) from None
        except (DeltaError, OSError):
            self.forget(name)  # a stale handle must not be used again
            raise

    def _renew(self, manifest: Manifest, name: str) -> None:
        adds = manifest.tables[name].adds
        with failpoints.around(_step(manifest, name)):
            columns = merge_columns(pa.schema([]), *schemas_of(adds))
            self.tables.renew_by_unit(name, columns, manifest, self._app, self._comments(name))
        self._known_schemas[name] = {entry.schema for entry in adds}

    def changes(self, tables: Mapping[str, Change]) -> list[Event]:
        """The tables that begin with these files, and the columns that tables get."""
        found = []
        for name, change in tables.items():
            if all(entry.schema in self._known_schemas.get(name, ()) for entry in change.adds):
                continue
            columns = self.tables.columns(name)
            if columns is None:
                found.append(Event("table_admitted", f"Table {name} begins", table=name))
            elif added := _grown(columns, change)[1]:
                text = f"Table {name} gets columns, or fields in its columns: {', '.join(added[:MOST_NAMED])}"
                found.append(Event("columns_added", text, table=name, details={"columns": added}))
        return found

    def _add_columns(self, name: str, change: Change) -> None:
        """Add the new columns before the files, with the comments of now. Other comments alone make no commit."""
        known = self._known_schemas.setdefault(name, set())
        if all(entry.schema in known for entry in change.adds):
            return
        table = self.tables.get(name)
        assert table is not None
        merged, added = _grown(columns_of(table), change)
        for schema in schemas_of(change.adds):
            _refuse_other_types(name, schema, merged)
        if added:
            comments = self._comments(name)
            with failpoints.around("columns"):
                self.tables.add_columns(name, merged, comments)
            log.info("columns added", table=name, columns=added)
        known.update(entry.schema for entry in change.adds)


def _grown(old: pa.Schema, change: Change) -> tuple[pa.Schema, list[str]]:
    """(the columns of a table with these files, names of those that are new or have new fields)."""
    merged = merge_columns(old, *schemas_of(change.adds))
    had = {field.name: field for field in Schema.from_arrow(old).fields}
    return merged, [field.name for field in Schema.from_arrow(merged).fields if had.get(field.name) != field]


def _step(manifest: Manifest, name: str) -> str:
    """One of `failpoints.STEPS`."""
    names = list(manifest.tables)
    position = "first" if name == names[0] else "last" if name == names[-1] else "middle"
    return f"{manifest.kind}.commit.{position}"


def _refuse_other_types(name: str, schema: pa.Schema, table: pa.Schema) -> None:
    """Delta would commit a file whose types differ from its table's without an error, and the table would be
    unreadable."""
    for field in schema:
        if not grows(field.type, table.field(field.name).type):
            raise ContractError(
                f"table {name}: column {field.name} is {table.field(field.name).type}, "
                f"but {field.type} in a file of the unit"
            )


@functools.lru_cache(maxsize=4096)
def _schema(text: str) -> pa.Schema:
    return pa.schema(Schema.from_json(text).to_arrow())


def schemas_of(entries: Iterable[FileEntry]) -> list[pa.Schema]:
    """The distinct schemas of the files."""
    return [_schema(text) for text in dict.fromkeys(entry.schema for entry in entries)]
