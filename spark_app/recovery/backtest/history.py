"""The history of a lake at one moment: a version of each table, and what is needed to decode records of bronze."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake.exceptions import DeltaError

from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.files.storage import Storage
from spark_app.lake.lake import Lake, unit_file_prefix
from spark_app.model.catalog import Catalog
from spark_app.model.definitions import Projection
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.protobuf.columns.fit import table_columns
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings
from spark_app.tables.admission import TableAdmission
from spark_app.tables.definitions import projections_of
from spark_app.tables.fixed_settings import check_fixed_settings, numbering_of
from spark_app.tables.route import Routing
from spark_app.units.driver.decode_plan import make_plan
from spark_app.units.worker.task_plan import TaskPlan

RETRY_S = 0.2


@dataclass(frozen=True)
class History:
    """
    Attributes:
        tables: the tables, each at the version that it was opened with.
        names: the routing names of the silver tables, sorted.
        projections: those of all definitions that have one, by number.
    """

    lake: Lake
    settings: Settings
    tables: Tables
    ledger: Ledger
    routing: Routing
    names: tuple[str, ...]
    projections: Mapping[int, Projection]

    @staticmethod
    def of(settings: Settings, timeout_s: float) -> History:
        """
        Raises:
            ConfigurationError: there is no lake, or the settings are not those of the lake.
            UnreachableError: replays committed units all the time, for `timeout_s` seconds.
            ContractError: a state file of the lake is damaged.
        """
        lake = Lake(settings.lake_address)
        if not lake.tables():
            raise ConfigurationError(f"lake.path: no tables at {lake.uri}")
        settings = check_fixed_settings(lake, settings)
        deadline = time.monotonic() + timeout_s
        while True:
            applied = Manifests(lake).applied()
            try:
                found = _read(lake, settings)
            except DeltaError:  # the app removed a log entry during the read
                if time.monotonic() > deadline:
                    raise
                found = None
            if found is not None and not _is_replayed_after(lake, applied):
                return found
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"a replay has moved records of {lake.uri} into silver while this command opened the tables: "
                    "run it again after the replay; if the app is down, start it, so that it completes the unit"
                )
            time.sleep(RETRY_S)

    @property
    def catalog(self) -> Catalog:
        return self.ledger.catalog()

    def plan(self, storage: Storage, buffer_bytes: int) -> TaskPlan:
        """The plan of a task that decodes records of bronze into `storage`, checks no expectations and resolves no
        schemas. If the settings want rules in the .proto, the rows have those that they violate.

        Args:
            buffer_bytes: decoded bytes that the task keeps before it writes files.
        """
        plan = make_plan(storage, unit_file_prefix(0), self.settings, self.ledger, self.routing)
        judged = self.settings.schemas.proto_rules != "off"
        return replace(plan, defer_new=True, keep_violated=judged, buffer_bytes=min(buffer_bytes, plan.buffer_bytes))

    def columns(self, name: str) -> pa.Schema:
        """The columns of a silver table by its message types, without those of the lineage."""
        wrapper, fixed = self.settings.wrapper.names, self.routing.fixed.get(name)
        return table_columns(self.routing.messages.get(name, ()), self.catalog.columns, wrapper, fixed)


def _read(lake: Lake, settings: Settings) -> History:
    layout = settings.layout
    tables = Tables(lake, settings.lake, layout)
    # Bronze comes after the tables that name its records: it has all of them then.
    for table in (layout.quarantine, layout.dropped, layout.resolved, layout.bronze):
        tables.get(table)
    projections = projections_of(lake)
    projected = {name for projection in projections.values() for name in projection.names}
    admission = TableAdmission(
        lake, settings.event, settings.tables, tables.columns, settings.touched, projected, lambda: ledger.catalog()
    )
    names = sorted(set(admission.admitted.values()))
    for name in names:
        tables.get(layout.silver_of(name))
    ledger = Ledger(lake, numbering_of(lake) or settings.decode.message_index or None)
    return History(lake, settings, tables, ledger, admission.routing(), tuple(names), projections)


def _is_replayed_after(lake: Lake, unit: int) -> bool:
    """Whether a replay has committed a unit after this one. It changes several tables, which then show a record in
    silver that is still open elsewhere, or the other way round. Other units put each record into one table."""
    manifests = Manifests(lake)
    later = (manifests.read(number) for number in manifests.numbers() if number > unit)
    return any(manifest.kind == "replay" for manifest in later)
