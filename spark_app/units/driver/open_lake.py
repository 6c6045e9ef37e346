"""A lake that this process may write. Whoever opens it holds its lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from spark_app.lake.delta.manifest import Change, Kind, Manifest
from spark_app.lake.delta.rewrite import Merger
from spark_app.lake.lake import Lake
from spark_app.model.pauses import Failing, Pauses
from spark_app.model.reports import Report
from spark_app.protobuf.changes.outcomes import Judgement
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.registry import Registry
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of, subjects_of
from spark_app.settings.models import Settings
from spark_app.tables.admission import TableAdmission
from spark_app.tables.comments import TableComments
from spark_app.tables.definitions import projections_of
from spark_app.tables.expectations.in_force import RulesInForce
from spark_app.tables.fixed_settings import check_rules, record_message_index_rule
from spark_app.tables.pauses import PausedTables, pause_events, say_changes
from spark_app.tables.projections.tables import TableProjections
from spark_app.units.driver.unit_log import UnitLog


@dataclass(frozen=True)
class OpenLake:
    """
    Attributes:
        units: what is committed, and the way to commit more.
        tables: the silver tables, and the way to admit more.
        schemas: the schema ids that are known, and the way to resolve more.
        rules: the rules in force.
        paused: the tables whose rows wait because of a rule.
        projections: the columns of silver's rows in force.
    """

    lake: Lake
    settings: Settings
    units: UnitLog
    tables: TableAdmission
    schemas: SchemaResolver
    rules: RulesInForce
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
        settings = check_rules(lake, settings)
        ledger = Ledger(lake, record_message_index_rule(lake, settings))
        projected = {name for one in projections_of(lake).values() for name in one.names}
        tables = TableAdmission(
            lake,
            settings.event,
            settings.tables,
            lambda table: units.committer.tables.columns(table),
            settings.touched,
            projected,
            ledger.catalog,
        )
        comments = TableComments(ledger, tables, settings.tables.layout).of
        units = UnitLog(lake, settings, comments, on_commit, merger)
        registry = Registry(settings.registry, limits_of(settings.schemas))
        schemas = SchemaResolver(ledger, registry, settings.schemas, subjects_of(settings), Judgement.of(settings))
        rules = RulesInForce(lake, settings, ledger, tables)
        paused = PausedTables(lake, units.manifests, rules)
        projections = TableProjections(lake, settings, settings.wrapper.names, tables.written, projected)
        opened = OpenLake(lake, settings, units, tables, schemas, rules, paused, projections)
        units.remove_uncommitted_files()
        return opened

    @contextlib.contextmanager
    def renewing(self, names: Iterable[str]) -> Iterator[None]:
        """Inside of it, these silver tables have no columns yet: they are made anew."""
        try:
            with self.tables.renewing(names):
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
        events = pause_events(self.settings.tables.layout, before, pauses)
        self.units.commit(report, kind, source, self.schemas.ledger, deferred, events)
        say_changes(before, pauses)
