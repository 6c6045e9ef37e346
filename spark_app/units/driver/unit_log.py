"""The units of a lake: the one way in which a unit is written, committed and applied."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from spark_app.lake.delta import durability, inventory
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.findings import refuse
from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.delta.manifest import Change, Kind, Manifest, Manifests, counts_of
from spark_app.lake.delta.rewrite import Merger
from spark_app.lake.lake import Lake, unit_file_prefix
from spark_app.model.columns import Comments
from spark_app.model.events import RUN_ID, Event
from spark_app.model.log import log
from spark_app.model.reports import FileEntry, Report
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings


class UnitLog:
    """A unit is committed when its manifest is durable, and applied when each table has its Delta commit.

    Attributes:
        redone_units: units that were committed, and that this start has applied.
        on_commit: called with each unit that is committed and applied.
    """

    def __init__(
        self,
        lake: Lake,
        settings: Settings,
        comments: Callable[[str], Comments],
        on_commit: Callable[[Manifest], None] = lambda manifest: None,
        merger: Merger | None = None,
    ):
        """Apply every committed unit first: all else looks at the tables only after that.

        Args:
            comments: see `TableCommitter`.
            merger: see `Maintainer`.

        Raises:
            ContractError: what is on the disk contradicts itself.
        """
        self._lake = lake
        self._settings = settings
        self.on_commit = on_commit
        layout = settings.tables.layout
        self.manifests = Manifests(lake, layout)
        if lake.lease.took_over:
            self.manifests.take_over(self._counts(Report()))
        lake.deletes.begin()
        lake.lease.fenced()
        self.committer = TableCommitter(lake, self.manifests, settings.lake, layout, comments)
        durability.mend(lake, self.committer.synced, layout)
        self.redone_units = self.committer.redo()
        self.committer.synced.begin()
        synced, merged_by_units = self.committer.synced, {layout.deferred}
        self.maintainer = Maintainer(self.committer.tables, settings.lake, synced, merged_by_units, merger)

    def write(self, table: str, rows: pa.Table) -> FileEntry:
        """Write a file of the next unit, by the driver; nothing is committed."""
        name = f"{unit_file_prefix(self.manifests.last + 1)}-driver.parquet"
        ids = self.committer.tables.field_ids(table, rows.schema)
        return files.write_file(
            self._lake.storage, self._lake.table(table), name, rows, self._settings.lake.compression, ids=ids
        )

    def commit(
        self,
        report: Report,
        kind: Kind,
        source: dict[str, Any],
        ledger: Ledger,
        deferred: Change | None = None,
        events: Sequence[Event] = (),
    ) -> None:
        """Write the manifest, apply the unit, and keep the tables small.

        Args:
            events: what else happened with the unit.
            deferred: the unit's change of the table of deferred records, where the report does not say it.
        """
        layout = self._settings.tables.layout
        changes = {table: Change(files) for table, files in report.files.items() if table != layout.deferred}
        waiting = deferred or Change(report.files.get(layout.deferred, []))
        if waiting.adds or waiting.removes:
            changes[layout.deferred] = waiting
        ordered = dict(sorted(changes.items(), key=lambda item: item[0] != layout.bronze))
        counts = self._counts(report) | {"seconds": round(report.seconds, 3)}
        changed = self.committer.changes(ordered) if kind != "renew" else []
        happened = [event.to_json() for event in (*changed, *events)]
        counts |= {"events": happened} if happened else {}
        manifest = Manifest(self.manifests.last + 1, kind, source, ordered, counts)
        ledger.save()  # once more: the disk may have been full at the first time
        self.manifests.commit(manifest)
        self.committer.apply(manifest)
        for table, change in ordered.items():
            self.maintainer.added(table, len(change.adds))
        self.on_commit(manifest)
        self.maintainer.step()

    def _counts(self, report: Report) -> dict[str, Any]:
        epoch = self._lake.lease.epoch
        counts = counts_of(report) | {"at": int(time.time() * 1e6), "run": RUN_ID}
        return counts | ({"epoch": epoch} if epoch else {})

    def apply_pending(self) -> None:
        """Apply a unit whose Delta commits failed in this process, before another one is committed."""
        if self.manifests.applied() < self.manifests.last:
            self.committer.redo()

    def remove_uncommitted_files(self) -> None:
        """Remove the files of a unit that was not committed.

        Raises:
            ContractError: a table has that unit: it was committed, and its manifest is lost.
        """
        found = self._lake.files_from(self.manifests.last + 1)
        seen = {table: self.committer.seen(table) for table in found}
        refuse(inventory.units_without_manifest(seen, self.manifests.last))
        self._lake.deletes.delete([key for keys in found.values() for key in keys])
        if found:
            log.info("files of an uncommitted unit removed", files=sum(map(len, found.values())))

    def refresh(self, name: str) -> None:
        """Read the table's log again: another process may have written to it, or removed it."""
        if not self._lake.has_table(name):
            self.committer.forget(name)
        table = self.committer.tables.get(name)
        if table is not None:
            table.update_incremental()
