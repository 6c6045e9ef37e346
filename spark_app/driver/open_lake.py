"""A lake that this process may write. Whoever opens it holds its lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_app.driver.schema_resolver import SchemaResolver, limits_of, subjects_of
from spark_app.driver.table_admission import TableAdmission
from spark_app.driver.unit_log import UnitLog
from spark_app.model.definitions import NO_RULES, Definitions
from spark_app.model.reports import Report
from spark_app.schemas.ledger import Ledger
from spark_app.schemas.registry import Registry
from spark_app.settings.models import Settings
from spark_app.storage.lake import Lake
from spark_app.store.manifest import Change, Kind
from spark_app.store.numbered_definitions import record
from spark_app.store.rules import check_rules, record_message_index_rule


@dataclass(frozen=True)
class OpenLake:
    """
    Attributes:
        units: what is committed, and the way to commit more.
        tables: the silver tables, and the way to admit more.
        schemas: the schema ids that are known, and the way to resolve more.
        definitions: the rules in force.
    """

    lake: Lake
    settings: Settings
    units: UnitLog
    tables: TableAdmission
    schemas: SchemaResolver
    definitions: Definitions = NO_RULES

    @staticmethod
    def of(lake: Lake, settings: Settings) -> OpenLake:
        """
        Raises:
            ConfigurationError: the settings are not the lake's.
            ContractError: what is on the disk contradicts itself.
        """
        check_rules(lake, settings)
        units = UnitLog(lake, settings)
        registry = Registry(settings.registry, limits_of(settings.schemas))
        ledger = Ledger(lake, record_message_index_rule(lake, settings))
        tables = TableAdmission(lake, settings.event, settings.tables, units.committer.tables.columns)
        schemas = SchemaResolver(ledger, registry, settings.schemas, subjects_of(settings))
        opened = OpenLake(lake, settings, units, tables, schemas, record(lake, settings.expectations))
        units.remove_uncommitted_files()
        return opened

    def commit(self, report: Report, kind: Kind, source: dict[str, Any], deferred: Change | None = None) -> None:
        """Commit a unit and apply it, see `UnitLog.commit`."""
        self.units.commit(report, kind, source, self.schemas.ledger, deferred)
