"""A lake that this process may write, and its units: the one way in which a unit is written, committed and applied.

Whoever opens a lake holds its lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from spark_app.lake.delta import durability, inventory
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.delta.manifest import Change, Kind, Manifest, Manifests, counts_of
from spark_app.lake.delta.problems import refuse
from spark_app.lake.delta.rewrite import Merger
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.store_errors import is_store_error
from spark_app.lake.lake import Lake, unit_file_prefix
from spark_app.model.causes import DROPPED
from spark_app.model.columns import Comments
from spark_app.model.errors import ContractError
from spark_app.model.events import RUN_ID, Event
from spark_app.model.log import log
from spark_app.model.pauses import Failing, Pauses
from spark_app.model.reports import FileEntry, Report
from spark_app.protobuf.changes.outcomes import Judgement
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.registry import Registry
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of, subjects_of
from spark_app.settings.models import Settings
from spark_app.tables.admission import TableAdmission
from spark_app.tables.comments import TableComments
from spark_app.tables.definitions import projections_of
from spark_app.tables.expectations.in_force import ExpectationsInForce
from spark_app.tables.fixed_settings import check_fixed_settings, record_numbering
from spark_app.tables.pauses import PausedTables, log_changes, pause_events
from spark_app.tables.projections.tables import TableProjections
from spark_app.units.worker.table_rows import count_values


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
        layout = settings.layout
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
        layout = self._settings.layout
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


@dataclass(frozen=True)
class OpenLake:
    """
    Attributes:
        units: what is committed, and the way to commit more.
        admission: the silver tables, and the way to admit more.
        resolver: the schema ids that are known, and the way to resolve more.
        expectations: those in force.
        paused: the tables whose rows wait because of an expectation.
        projections: the columns of silver's rows in force.
    """

    lake: Lake
    settings: Settings
    units: UnitLog
    admission: TableAdmission
    resolver: SchemaResolver
    expectations: ExpectationsInForce
    paused: PausedTables
    projections: TableProjections

    @staticmethod
    def of(
        lake: Lake,
        settings: Settings,
        on_commit: Callable[[Manifest], None] = lambda manifest: None,
        merger: Merger | None = None,
    ) -> OpenLake:
        """
        Args:
            on_commit: called with each unit that is committed and applied.
            merger: see `Maintainer`.

        Raises:
            ConfigurationError: the settings are not the lake's.
            ContractError: what is on the disk contradicts itself.
        """
        settings = check_fixed_settings(lake, settings)
        ledger = Ledger(lake, record_numbering(lake, settings))
        projected = {name for one in projections_of(lake).values() for name in one.names}
        admission = TableAdmission(
            lake,
            settings.event,
            settings.tables,
            lambda table: units.committer.tables.columns(table),
            settings.touched,
            projected,
            ledger.catalog,
        )
        comments = TableComments(ledger, admission, settings.layout).of
        units = UnitLog(lake, settings, comments, on_commit, merger)
        registry = Registry(settings.registry, limits_of(settings.schemas))
        resolver = SchemaResolver(ledger, registry, settings.schemas, subjects_of(settings), Judgement.of(settings))
        expectations = ExpectationsInForce(lake, settings, ledger, admission)
        paused = PausedTables(lake, units.manifests, expectations)
        projections = TableProjections(lake, settings, settings.wrapper.names, admission.written, projected)
        opened = OpenLake(lake, settings, units, admission, resolver, expectations, paused, projections)
        units.remove_uncommitted_files()
        return opened

    @contextlib.contextmanager
    def renewing(self, names: Iterable[str]) -> Iterator[None]:
        """Inside of it, these silver tables have no columns yet: they are made anew."""
        try:
            with self.admission.renewing(names):
                self.projections.forget()
                yield
        finally:
            self.projections.forget()

    def commit(
        self,
        report: Report,
        kind: Kind,
        source: dict[str, Any],
        deferred: Change | None = None,
        released: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Commit a unit and apply it, see `UnitLog.commit`.

        Args:
            released: routing name of a paused table -> waiting rows that the unit took out of the deferred ones.
        """
        self._commit(report, kind, source, self.paused.after(report, released), deferred)

    def resume(self, name: str, failing: Failing, source: dict[str, Any]) -> None:
        """Let the rows of a paused table in: a unit without records has the decision about those that fail."""
        pauses = {**self.paused.pauses, name: replace(self.paused.pauses[name], failing=failing)}
        self._commit(Report(), "resume", source, pauses)

    def _commit(
        self, report: Report, kind: Kind, source: dict[str, Any], pauses: Pauses, deferred: Change | None = None
    ) -> None:
        before = self.paused.pauses
        if pauses:
            source = {**source, "pauses": {name: vars(pause) for name, pause in pauses.items()}}
        events = pause_events(self.settings.layout, before, pauses)
        self.units.commit(report, kind, source, self.resolver.ledger, deferred, events)
        log_changes(before, pauses)


def count_rows(opened: OpenLake) -> dict[str, int]:
    """Table -> rows. Also counts the small files for the maintainer."""
    layout, tables = opened.settings.layout, opened.units.committer.tables
    gold = {gold for name in opened.admission.admitted.values() for gold in layout.all_gold_of(name)}
    others = {*gold, *layout.spooled}  # what the units do not write
    rows = opened.units.maintainer.count_files([name for name in opened.lake.tables() if name not in others])
    for name in gold:
        table = tables.get(name)
        if table is not None:
            rows[name] = sum(table.get_add_actions()["num_records"].to_pylist())
    return rows


def count_open_causes(opened: OpenLake) -> dict[str, int]:
    """Cause -> quarantined records that no replay has resolved; `DROPPED` -> the same of dropped records.

    Raises:
        ContractError: a file is damaged.
    """
    layout = opened.settings.layout
    resolved = _causes(opened, layout.resolved)
    dropped = opened.units.committer.tables.get(layout.dropped)
    found = _causes(opened, layout.quarantine)
    if dropped is not None:
        found[DROPPED] = sum(dropped.get_add_actions()["num_records"].to_pylist())
    left = {cause: count - resolved.get(cause, 0) for cause, count in found.items()}
    return {cause: count for cause, count in left.items() if count}


def _causes(opened: OpenLake, name: str) -> dict[str, int]:
    table = opened.units.committer.tables.get(name)
    try:
        return {} if table is None else count_values(table.to_pyarrow_dataset().to_table(columns=["cause"])["cause"])
    except (OSError, pa.ArrowException) as error:
        if is_full(error) or is_store_error(error):
            raise
        raise ContractError(f"table {name} cannot be read ({error}): restore its files from a backup") from None
