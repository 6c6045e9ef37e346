"""Compaction, vacuum and log clean-up between units.

`lake/delta/parquet` writes the merged files as well as those of units, so that all statistics come from one writer.
Maintenance runs in the committer's thread after every committed unit is applied, so it never touches files of an open
unit. Files are merged with those of similar size, so that a large one is not rewritten for every few small ones.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta import rewrite
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.rewrite import LocalMerger, Merge, Merged, Merger, discard
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.delta.table_schema import columns_of
from spark_app.lake.files import failpoints
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.store_errors import StoreError, is_store_error, reason
from spark_app.lake.lake import Lake
from spark_app.model.log import log
from spark_app.model.reports import FileEntry
from spark_app.settings.storing import LakeSettings

SMALL_BYTES = 8 << 20
SWEEP_AFTER = 4  # compactions per removal of files that no version within the retention needs
BEHIND = 2  # with this many times `compact_files` small files, further tables are compacted after the same unit


class Maintainer:
    """Counts small files per table, and compacts one table after each unit, or several if many tables have too many
    files."""

    def __init__(
        self,
        tables: Tables,
        settings: LakeSettings,
        synced: DurabilityMark,
        merged_by_units: Collection[str] = (),
        merger: Merger | None = None,
    ):
        """
        Args:
            merged_by_units: tables whose files are merged by units; here they only get vacuum and log clean-up.
            merger: writes the merged files; None = this process does.
        """
        self._merger = merger or LocalMerger(tables.storage)
        self._tables = tables
        self._synced = synced
        self._settings = settings
        self._merged_by_units = merged_by_units
        self._small: Counter[str] = Counter()
        self._rounds: dict[str, int] = {}
        self._done: Counter[str] = Counter()

    def count_files(self, names: Iterable[str]) -> dict[str, int]:
        """Count the small files of the tables; returns rows per table."""
        rows = {}
        for name in names:
            table = self._tables.get(name)
            if table is not None:
                actions = table.get_add_actions(flatten=True)
                sizes = actions["size_bytes"].to_pylist()
                self._small[name] = sum(size < SMALL_BYTES for size in sizes)
                rows[name] = sum(actions["num_records"].to_pylist())
        return rows

    def added(self, name: str, files: int) -> None:
        """Count new small files of a table."""
        self._small[name] += files

    def take_done(self) -> dict[str, int]:
        """What was done since the last call: compactions, files before and after them, and removed old files."""
        done, self._done = self._done, Counter()
        return dict(done)

    def step(self) -> bool:
        """Compact the tables with the most small files, if they have enough; True if a table was due."""
        enough = self._settings.compact_files
        if max(self._small.values(), default=0) < enough:
            return False
        fullest = self._small.most_common(self._merger.at_once)
        due = [name for rank, (name, files) in enumerate(fullest) if files >= (BEHIND * enough if rank else enough)]
        plans = {name: plan for name in due if (plan := self._plan(name)) is not None}
        wanted = [one for plan in plans.values() for one in plan.merges]
        found = iter(self._merger.merge(wanted) if wanted else [])
        merged = {name: list(itertools.islice(found, len(plan.merges))) for name, plan in plans.items()}
        for name in list(self._replace_all(plans, merged)):
            self._tidy(name, plans[name])
        return True

    def _replace_all(self, plans: dict[str, _Plan], merged: dict[str, list[Merged]]) -> Iterator[str]:
        """The tables whose merged files are committed. If the disk is full at one, the files of the next ones are
        removed."""
        left = dict(plans)
        try:
            for name, plan in plans.items():
                del left[name]
                if self._replace(name, plan.merges, merged[name]):
                    yield name
        except BaseException:
            for name, plan in left.items():
                discard(self._tables.storage, plan.merges, merged[name])
            raise

    def _plan(self, name: str) -> _Plan | None:
        """What is to be merged: files smaller than this round's target. None if the table cannot be compacted."""
        with self._keeping_on(name):
            table = self._tables.get(name)
            if table is None:
                self._small[name] = 0  # another process has removed it
                return None
            # The count starts at the table's version, so that an app that restarts often also reaches the rarer steps.
            self._rounds[name] = self._rounds.get(name, table.version()) + 1
            if name in self._merged_by_units:
                return _Plan(table, [])
            columns, compression = columns_of(table), self._tables.compression_of(name)
            ids = self._tables.field_ids(name, columns)
            bins = rewrite.plan(rewrite.live(table), self._settings.compact_bytes)
            return _Plan(table, [Merge(name, paths, columns, compression, ids) for paths in bins])
        return None

    def _replace(self, name: str, merges: list[Merge], found: list[Merged]) -> bool:
        """Commit the merged files in place of the others; True if that was done or there are none."""
        with self._keeping_on(name):
            failed = next((one for one in found if isinstance(one, str)), None)
            if failed is not None:
                discard(self._tables.storage, merges, found)
                raise OSError(failed)
            if merges:
                adds = [one for one in found if isinstance(one, FileEntry)]
                with failpoints.around("compact"):
                    self._tables.replace_files(name, adds, [path for one in merges for path in one.paths])
            return True
        return False

    def _tidy(self, name: str, plan: _Plan) -> None:
        with self._keeping_on(name):
            table, merged, into = plan.table, sum(len(one.paths) for one in plan.merges), len(plan.merges)
            self._tables.index(name)
            removed = vacuum_and_clean_log(
                self._tables.lake, name, table, self._synced, sweeping=self._rounds[name] % SWEEP_AFTER == 0
            )
            self._small[name] = into
            self._tables.checkpoint_if_due(name, table.version())
            self._done.update(compactions=1, files_before=merged, files_after=into, removed=removed)
            log.debug("compacted", table=name, files=merged, into=into, vacuumed=removed)

    @contextlib.contextmanager
    def _keeping_on(self, name: str) -> Iterator[None]:
        """A failed compaction must not stop ingest: appends to the table still work."""
        try:
            yield
        except FileExistsError:
            self._tables.forget(name)  # another process has written to it: the next step opens it again
        except (DeltaError, OSError, pa.ArrowException) as error:
            if is_full(error) or (is_store_error(error) and isinstance(error, StoreError | PermissionError)):
                raise
            self._tables.forget(name)
            if is_store_error(error):  # Arrow and delta-rs give up after seconds
                self._small[name] //= 2
                log.warning("table is compacted later", table=name, reason=reason(error))
                return
            self._small[name] = 0
            log.error(
                "table cannot be compacted", table=name, reason=str(error)[:300], remedy="`doctor` lists the damage"
            )


@dataclass(frozen=True)
class _Plan:
    table: DeltaTable
    merges: list[Merge]


def vacuum_and_clean_log(
    lake: Lake, name: str, table: DeltaTable, synced: DurabilityMark, sweeping: bool = True
) -> int:
    """Remove log entries, and if `sweeping` also files, that no version within the table's retention needs; returns the
    number of files.

    The commits and checkpoints that replace them are made durable before each step: the first step makes commits, and
    may make the checkpoint for which the second one removes entries.
    """
    removed = 0
    if sweeping:
        synced.sync([name])
        removed = len(sweep(lake, name, table))
    synced.sync([name])
    lake.lease.check()
    with failpoints.around("clean_log"):
        table.cleanup_metadata()
    return removed


def sweep(lake: Lake, name: str, table: DeltaTable, dry_run: bool = False) -> list[str]:
    """Remove the files that no version within the table's retention needs, or with `dry_run` only list them; returns
    their names.

    The vacuum compares with the whole folder: a Delta checkpoint drops expired tombstones, and a vacuum by tombstones
    would keep their files for ever. Call it only between two units, because no log names the files of an open unit yet.
    delta-rs also lists files that were removed earlier, as long as the log has their tombstones.
    """
    storage = lake.storage
    there = set(storage.list(name))
    with failpoints.around("vacuum"):
        only_listed = dry_run or not storage.is_local
        named = table.vacuum(None, dry_run=only_listed, enforce_retention_duration=False, full=True)
    removed = [path for path in named if f"{name}/{path}" in there]
    if dry_run or not removed:
        return removed
    if not storage.is_local:
        if not _take_next_version(lake, name, table):
            return []
        lake.deletes.delete([f"{name}/{path}" for path in removed])
    table.update_incremental()
    return removed


def _take_next_version(lake: Lake, name: str, table: DeltaTable) -> bool:
    """Make an entry that changes nothing. A process that was taken over may still have an entry for this version in
    mind, which names files that are removed now. False if it was faster: then the table has to be looked at again."""
    if delta_log.unsupported_features(table):
        return True  # delta-rs alone writes to such a table
    try:
        delta_log.rewrite(lake.storage, name, table.version() + 1, [], [], lake.lease.epoch)
    except FileExistsError:
        table.update_incremental()
        return False
    return True
