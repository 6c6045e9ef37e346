"""Runs the job over a unit's records until nothing new is seen, and returns its report. It commits nothing.

All sources of records use it: Kafka (`ingest`) and bronze (`deferred`, `recovery`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.lake.files import failpoints
from spark_app.lake.files.storage import Storage
from spark_app.lake.lake import remove_files, unit_file_prefix
from spark_app.model.catalog import Catalog, read_schema_key
from spark_app.model.columns import paths_of
from spark_app.model.definitions import NO_DEFINITIONS, Definitions
from spark_app.model.errors import ConfigurationError, SchemaBump
from spark_app.model.log import log
from spark_app.model.offsets import ReadFailed
from spark_app.model.pauses import FailedRow, wait_text
from spark_app.model.reports import Report, add_counts
from spark_app.protobuf.columns.fit import table_columns
from spark_app.tables.comments import own_columns
from spark_app.tables.expectations.in_force import check_expectations_fit
from spark_app.tables.route import Routing
from spark_app.units.driver.decode_plan import make_plan
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.worker import shuffle, task
from spark_app.units.worker.shuffle import SMALL_ROWS
from spark_app.units.worker.task_plan import TaskPlan

SAMPLE_RECORDS = 10_000  # records
GATHERED_RECORDS = 100_000  # enough for a task whose rows are gathered by table
GATHERED_TASKS = 4  # fewer tasks are not worth the second stage: one task writes its files with four threads
APART_S = 600.0  # after a second stage that failed, such as for want of temporary space, none is tried for so long
WORKERS_S = 10.0  # at most, until the first worker process runs
ROUNDS = 4  # job runs: the records' schemas, the schemas of wrapped messages, the rows' tables, and a spare one


@dataclass(frozen=True)
class UnitOptions:
    """Options of a unit that depend on its source."""

    topic_ids: dict[str, str]
    write_bronze: bool = True
    land_only: bool = False
    bump_in_place: bool = False
    storage: Storage | None = None  # where the files go, if it is not the lake
    checks: bool = True  # False: rows land as they were sent, whatever rules they fail, also in tables that are paused
    renews: bool = False  # rows meet no rules, but get the columns in force, also in tables that are paused
    pauses: bool = True  # False: a row that would pause its table is quarantined
    lets_in: bool = False  # the records may be waiting rows of tables that are no longer paused
    resolves_new: bool = True  # False: records with new schemas are deferred, and the ledger stays unchanged


class UnitRunner:
    """Runs the job, resolves new schemas and tables, and runs the job again.

    Args:
        workers: starts the first worker process, see `session.prepare_workers`; the first job waits for it.
    """

    def __init__(self, session: SparkSession, opened: OpenLake, workers: threading.Thread | None = None):
        self._session = session
        self._workers = workers
        self._lake = opened.lake
        self._settings = opened.settings
        self._schemas = opened.resolver
        self._tables = opened.admission
        self._expectations = opened.expectations
        self._paused = opened.paused
        self._projections = opened.projections
        self._ids = opened.units.committer.tables.column_ids
        self._catalog: Catalog | None = None
        self._catalog_of: tuple[object, ...] = ()
        self._broadcast: Any = None
        self._broadcast_of: Catalog | None = None
        self._sampled = False  # True once a sample had records
        # Silver tables of the last large unit of ingest, or of the sample.
        self._tables_per_unit = max(1, len(set(self._tables.admitted.values())))
        self._apart_until = 0.0  # until then, of `time.monotonic`, nothing is gathered

    def tasks(self, records: int) -> int:
        """The number of tasks: as few as keep all cores busy, because each task writes a file per table."""
        if records <= self._settings.batch.single_task_below:
            return 1
        cores = self._session.sparkContext.defaultParallelism
        apart = min(records // (SMALL_ROWS * self._tables_per_unit), cores)
        gathered = min(records // GATHERED_RECORDS, cores) if self._may_gather() else 0
        return max(1, apart, gathered if gathered >= GATHERED_TASKS else 0)

    def _may_gather(self) -> bool:
        return time.monotonic() >= self._apart_until

    def _gatherers(self, records: Records, plan: TaskPlan) -> int:
        """The number of tasks that gather small tables; 0 if a task is expected to have enough rows for its files."""
        tasks, tables = len(records.shares), self._tables_per_unit
        is_worth_it = tasks >= GATHERED_TASKS and 0 < records.count < tasks * tables * SMALL_ROWS
        return min(tasks, tables) if is_worth_it and self._may_gather() and not plan.land_only else 0

    def _note_tables(self, report: Report, origin: UnitOptions) -> None:
        """A small batch has few tables by chance."""
        tables = len(report.silver)
        is_large = report.bronze > self._settings.batch.single_task_below or tables > self._tables_per_unit
        if is_large and origin.write_bronze and not origin.land_only:
            self._tables_per_unit = max(1, tables)

    def run(self, records: Records, sequence: int, origin: UnitOptions) -> Report:
        """Run the job; returns one report for all tasks. Its files are durable but not committed.

        Raises:
            SchemaBump: the records have a new schema of the topics' own subjects.
        """
        began = time.monotonic()
        self.resolve_sample(records, sequence, origin)
        rounds = ROUNDS if origin.resolves_new else 0
        failing: dict[str, list[Any]] = {}
        steps = {"resolve": 0.0}
        while True:
            plan = self._plan(sequence, origin, failing)
            report = self._execute(records, replace(plan, defer_new=not rounds))
            add_counts(steps, report.steps)
            if not report.met_new:
                self._note_tables(report, origin)
                return replace(report, failing=failing, seconds=time.monotonic() - began, steps=steps)
            resolving = time.monotonic()
            self.discard(report, origin.storage)
            self._ids.assign(report.new_columns)
            failing |= report.failing
            if rounds:
                rounds = rounds - 1 if self._resolve_new(report, origin) or report.failing else 0
            add_counts(steps, {"resolve": time.monotonic() - resolving})

    def resolve_sample(self, records: Records, sequence: int, origin: UnitOptions) -> bool:
        """Resolve the new schemas and tables of a sample first; otherwise an empty lake would decode its whole first
        batch twice. True if there was a sample: the number of its tables may change that batch's number of tasks.

        Raises:
            SchemaBump: as `run`.
        """
        if not origin.resolves_new or self._sampled or self._tables.admitted:
            return False
        report = self._execute(records.limited(SAMPLE_RECORDS), self._plan(sequence, origin))
        self._sampled = bool(report.spans)
        self.discard(report, origin.storage)
        self._resolve_new(report, origin)
        self._tables_per_unit = max(1, len(self._tables.admitted))
        return True

    def _resolve_new(self, report: Report, origin: UnitOptions) -> bool:
        """Resolve the schemas and tables that the job reported as new; True if another run can route more records."""
        first = not self._schemas.ledger.catalog().columns
        resolved = self._schemas.resolve_new(map(read_schema_key, report.new_ids))
        if first and resolved:
            self.check_expectations()
        before = self._tables.messages
        if resolved and not origin.bump_in_place:
            bumps = self._schemas.bumps(resolved, itertools.chain(*before.values()))
            if bumps:
                raise SchemaBump(f"new schemas {bumps}: the app exits to restart with their columns")
        self._tables.admit(report.new_values)
        return bool(resolved) or self._tables.messages != before

    def check_expectations(self) -> None:
        """Compare the rules and the projections with the columns that are known. Later a column may get a type that a
        rule cannot use in another table: then all rows of that table fail the rule, and the others go on.

        Raises:
            ConfigurationError: a rule or a projection is no expression on these columns.
        """
        catalog, routing = self._schemas.ledger.catalog(), self._tables.routing()
        check_expectations_fit(self._settings.expectations, catalog, routing, self._settings.wrapper.names)
        self._projections.check(catalog, routing)

    def discard(self, report: Report, storage: Storage | None = None) -> None:
        """Remove the files of a run that will not be committed. `storage` is that of its `UnitOptions`."""
        for table, files in report.files.items():
            (storage or self._lake.storage).delete(*(f"{self._lake.table(table)}/{entry.path}" for entry in files))

    def _definitions_of(self, origin: UnitOptions, routing: Routing) -> Definitions:
        if not origin.checks:
            return NO_DEFINITIONS
        rules = NO_DEFINITIONS if origin.renews else self._expectations.renew()
        rules = self._paused.let_in_by(rules) if origin.lets_in else rules
        definitions = self._projections.definitions(rules, self._schemas.ledger.catalog(), routing)
        return definitions if origin.pauses else definitions.without_pauses()

    def _waiting(self, origin: UnitOptions, failing: Mapping[str, list[Any]]) -> dict[str, str]:
        """The paused tables, with what their rows wait for; among them those that this unit pauses."""
        waiting = self._paused.waiting(origin.lets_in) if origin.checks and not origin.renews else {}
        return waiting | {name: wait_text(FailedRow(*row).rule) for name, row in failing.items()}

    def _plan(
        self, sequence: int, origin: UnitOptions, failing: Mapping[str, list[Any]] = MappingProxyType({})
    ) -> TaskPlan:
        """`failing`: routing name -> the row for which this unit pauses the table."""
        storage, prefix = origin.storage or self._lake.storage, unit_file_prefix(sequence)
        routing = self._tables.routing()
        plan = make_plan(storage, prefix, self._settings, self._schemas.ledger, routing)
        return replace(
            plan,
            topic_ids=origin.topic_ids,
            write_bronze=origin.write_bronze,
            land_only=origin.land_only,
            definitions=self._definitions_of(origin, routing),
            paused=self._waiting(origin, failing),
            local_state=self._lake.local_state.root,
            field_ids=origin.storage is None,
        )

    def _execute(self, records: Records, plan: TaskPlan) -> Report:
        plan = replace(plan, gatherers=self._gatherers(records, plan))
        if self._workers is not None:
            self._workers.join(WORKERS_S)  # else single tasks would begin with a second process, and take turns
            self._workers = None
        try:
            catalog = self._share(self.catalog_for(plan))
            with failpoints.around("pass"):
                report = records.run(
                    lambda batches, name: task.run_and_pack(batches, plan, catalog.value, name),
                    lambda packs, name: shuffle.gather(packs, plan, catalog.value.field_ids, name),
                    plan.gatherers,
                )
            self._check_files(report, plan.storage)
            if plan.gatherers:
                self._check_rows(report)
            return report
        except Exception as error:
            remove_files(plan.storage, plan.prefix)
            if plan.gatherers and not isinstance(error, ReadFailed):
                self._apart_until = time.monotonic() + APART_S
                log.warning("rows of small tables are not gathered for a while", seconds=APART_S)
            if isinstance(error, Py4JJavaError):  # PySpark translates only the errors of SQL
                raise PySparkException(str(error)) from None
            raise

    def _check_files(self, report: Report, storage: Storage) -> None:
        """
        Raises:
            ConfigurationError: a worker of a cluster has written to a disk that is not this machine's.
        """
        if self._settings.spark.on_cluster and storage.is_local:
            keys = (f"{self._lake.table(table)}/{e.path}" for table, files in report.files.items() for e in files)
            if missing := next((key for key in keys if not storage.exists(key)), None):
                raise ConfigurationError(
                    f"lake.path: a worker wrote {missing} to a disk that is not this machine's: use a folder that all "
                    "machines share, or a bucket"
                )

    def _check_rows(self, report: Report) -> None:
        """Compare the rows of the files with those that were counted. If Spark had to read a share of the records again
        after its rows were gathered, Kafka may not have had all of them any more.

        Raises:
            PySparkException: they differ; the job has to be run again.
        """
        if report.met_new:
            return
        for name, rows in report.silver.items():
            written = sum(entry.rows for entry in report.files.get(self._settings.layout.silver_of(name), ()))
            if written != rows:
                raise PySparkException(f"{rows:,} rows for {name} were decoded, and {written:,} were written")

    def catalog_for(self, plan: TaskPlan) -> Catalog:
        """The ledger's catalog, with the field ids for the files of the plan: those of all columns that the tables are
        known to get. A task reports the others, such as those of a projection, and then the unit runs again.

        The same object until something changes.
        """
        known, kinds = self._schemas.ledger.catalog(), set(self._tables.messages.values())
        if not plan.field_ids:
            return known
        if self._catalog is None or self._catalog_of != (known, kinds, self._ids.assigned):
            wrapper = self._settings.wrapper.names
            sent = (path for kind in kinds for path in paths_of(table_columns(kind, known.columns, wrapper)))
            ids = self._ids.assign(itertools.chain(own_columns(), sent))
            self._catalog, self._catalog_of = replace(known, field_ids=ids), (known, kinds, ids)
        return self._catalog

    def _share(self, catalog: Catalog) -> Any:
        """The catalog as a Spark broadcast, sent once per change. The previous broadcast is destroyed to free its file.

        No task uses the previous one any more: units are built one by one, and each waits for all of its tasks.
        """
        if catalog is not self._broadcast_of:
            if self._broadcast is not None:
                broadcast, self._broadcast, self._broadcast_of = self._broadcast, None, None
                broadcast.destroy()
            self._broadcast, self._broadcast_of = self._session.sparkContext.broadcast(catalog), catalog
        return self._broadcast
