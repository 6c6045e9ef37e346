"""The open lake: what every kind of unit works with, and the one way in which a unit is decided."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_app.driver.schema_resolver import SchemaResolver, limits_of, subjects_of
from spark_app.driver.table_admission import TableAdmission
from spark_app.model.reports import FileEntry, Report
from spark_app.ops.log import log
from spark_app.schemas.ledger import Ledger
from spark_app.schemas.registry import Registry
from spark_app.settings.models import Settings
from spark_app.storage.lake import Lake, unit_file_prefix
from spark_app.store import inventory, torn_logs
from spark_app.store.commit import Committer
from spark_app.store.findings import refuse
from spark_app.store.maintenance import Maintainer
from spark_app.store.manifest import Change, Kind, Manifest, Manifests, counts_of
from spark_app.store.rules import check_rules, record_message_index_rule
from spark_app.worker import files


@dataclass(frozen=True)
class OpenLake:
    """A lake that this process may write: whoever opens it holds its lock."""

    lake: Lake
    settings: Settings
    manifests: Manifests
    committer: Committer
    maintainer: Maintainer
    tables: TableAdmission
    schemas: SchemaResolver
    redone_units: int  # units that a crash had left open

    @staticmethod
    def of(lake: Lake, settings: Settings) -> OpenLake:
        """Redo first: whatever was decided becomes true before anything else is looked at.

        Raises:
            ConfigurationError: the settings are not the lake's.
            ContractError: what is on the disk contradicts itself.
        """
        check_rules(lake, settings)
        manifests = Manifests(lake, settings.tables.layout)
        committer = Committer(lake, manifests, settings.lake)
        torn_logs.mend(lake, committer.synced, settings.tables.layout)
        redone_units = committer.redo()
        committer.synced.begin()
        registry = Registry(settings.registry, limits_of(settings.schemas))
        ledger = Ledger(lake.schemas, record_message_index_rule(lake, settings))
        opened = OpenLake(
            lake,
            settings,
            manifests,
            committer,
            Maintainer(committer.tables, settings.lake, committer.synced, {settings.tables.layout.deferred}),
            TableAdmission(lake, settings.event, settings.tables, committer.tables.columns),
            SchemaResolver(ledger, registry, settings.schemas, subjects_of(settings)),
            redone_units,
        )
        opened.remove_uncommitted_files()
        return opened

    def remove_uncommitted_files(self) -> None:
        """Remove the files of a unit that was not decided.

        Raises:
            ContractError: a table has seen that unit: it was decided, and its manifest is lost.
        """
        found = self.lake.files_from(self.manifests.last + 1)
        refuse(
            inventory.units_without_manifest(
                {table: self.committer.seen(table) for table in found}, self.manifests.last
            )
        )
        for path in itertools.chain(*found.values()):
            path.unlink()
        if found:
            log.info("files of an uncommitted unit removed", files=sum(map(len, found.values())))

    def write(self, table: str, rows: pa.Table) -> FileEntry:
        """A file of the next unit, written by the driver; nothing is decided."""
        name = f"{unit_file_prefix(self.manifests.last + 1)}-driver.parquet"
        return files.write_file(self.lake.table(table), name, rows, self.settings.lake.compression)

    def decide(self, report: Report, kind: Kind, source: dict[str, Any], deferred: Change | None = None) -> None:
        """Write the manifest, make it true, and keep the tables small."""
        layout = self.settings.tables.layout
        changes = {table: Change(files) for table, files in report.files.items() if table != layout.deferred}
        waiting = deferred or Change(report.files.get(layout.deferred, []))
        if waiting.adds or waiting.removes:
            changes[layout.deferred] = waiting
        ordered = dict(sorted(changes.items(), key=lambda item: item[0] != layout.bronze))
        manifest = Manifest(self.manifests.last + 1, kind, source, ordered, counts_of(report))
        self.schemas.ledger.save()  # once more: the disk may have been full when it was to be saved
        self.manifests.decide(manifest)
        self.committer.finish(manifest)
        for table, change in ordered.items():
            self.maintainer.added(table, len(change.adds))
        self.maintainer.step()

    def refresh(self, name: str) -> None:
        """See the table as it is on the disk: somebody may have written to it, or removed it."""
        if not (self.lake.table(name) / "_delta_log").is_dir():
            self.committer.forget(name)
        table = self.committer.tables.get(name)
        if table is not None:
            table.update_incremental()

    def apply_pending(self) -> None:
        """Finish a unit whose commits failed in this process: nothing new is decided before it is true."""
        if self.manifests.finished() < self.manifests.last:
            self.committer.redo()
