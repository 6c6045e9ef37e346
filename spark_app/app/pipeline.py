"""START HERE: connects ingest, deferred decoding and gold, and returns the exit code.

At start, in this order: lock the lake; apply committed units that a crash interrupted; compare tables and Spark's
checkpoint with the manifests; start Spark while the broker and the registry are contacted; compare Kafka's topics with
the manifests; then run.

Three loops share one lock, so that only one unit is built at a time: the streaming query (`ingest`), the main thread
(`deferred`, `recovery`; it contacts the registry without the lock), and the gold thread (it has the lock only while
it plans).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from spark_app.app import temporary_folders
from spark_app.app.lifecycle import ProcessLifecycle
from spark_app.app.settings_check import field_faults
from spark_app.followers.events.settings_event import keep_settings, settings_event
from spark_app.followers.events.spool import EventLog
from spark_app.followers.gold.aggregate import Aggregator
from spark_app.followers.gold.sql_tables.follower import SqlFollower
from spark_app.followers.registry import FOLLOWERS, FollowerContext
from spark_app.followers.runner import FollowerRunner, Followers
from spark_app.lake.delta import inventory
from spark_app.lake.delta.manifest import Manifest
from spark_app.lake.delta.problems import refuse
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Catalog
from spark_app.model.errors import ConfigurationError, ExitCode, UnreachableError
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.model.table_names import GOLD, gold_follower
from spark_app.protobuf.schemas.ledger_text import SchemaEvents
from spark_app.protobuf.schemas.registry import NoRegistry, RegistryAccessDenied, RegistryUnreachable
from spark_app.protobuf.schemas.resolver import RETRY_WAIT_S
from spark_app.recovery.executor import RequestExecutor
from spark_app.recovery.requests import is_rebuilding
from spark_app.settings.models import Settings
from spark_app.sources.kafka import topics
from spark_app.sources.kafka.broker_access import ACCESS_DENIED_TIMEOUT_S
from spark_app.units.driver import open_lake
from spark_app.units.driver.deferred import DeferredDecoder
from spark_app.units.driver.disk_space import DiskSpaceGuard, StopRequested
from spark_app.units.driver.executor_watch import ExecutorWatch
from spark_app.units.driver.feeds import Feed, feed_of
from spark_app.units.driver.ingest import RunContext
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.status import Status, StatusSources
from spark_app.units.driver.unit import UnitRunner
from spark_app.units.driver.worker_merger import WorkerMerger
from spark_app.units.spark import checkpoint, cluster, jvm, session

DEFERRED_INTERVAL_S = 2.0
FORGET_EVERY_S = 60.0
MAINTENANCE_EVERY_S = 60.0
NAMES_EVERY_S = 10.0
REQUESTS_EVERY_S_IN_A_BUCKET = 5.0  # each time is a request that costs money


class Pipeline:
    """One run of the app on one lake."""

    def __init__(
        self,
        settings: Settings,
        available_now: bool = False,
        land_only: bool = False,
        accept_loss: bool = False,
        accept_gap: bool = False,
    ):
        """
        Args:
            accept_loss: offsets that Kafka has lost at this start are recorded and skipped; later losses are not.
            accept_gap: the events go on after the units whose manifests are gone at this start.
        """
        self._settings = settings
        self._available_now = available_now
        self._land_only = land_only
        self._accept_loss = accept_loss
        self._accept_gap = accept_gap
        self._unit_lock = threading.Lock()
        self._opened: OpenLake | None = None
        self._spark: SparkSession | None = None
        self._feed: Feed | None = None
        self._followers: Followers | None = None
        self._gold: Sequence[Aggregator] = ()
        self._sql: Sequence[SqlFollower] = ()
        self._judged: Catalog | None = None
        self._field_faults: dict[str, str] = {}  # of the judged catalog
        self._faults: dict[str, str] = {}
        self._refused: dict[str, str] = {}  # place of a statement -> why it makes no table
        self._told: dict[str, str] = {}  # table by SQL -> the failure of which there is an event
        self._due: dict[str, float] = {}  # chore -> time of its next run
        self.lake = Lake(settings.lake_address)
        self._emit = EventLog(self.lake).add
        sources = StatusSources(
            lag=lambda: self._feed.lag() if self._feed else None,
            quiet_s=lambda: self.life.quiet_s(),
            parts=self._describe,
        )
        self.status = Status(self.lake, settings.layout, sources, self._emit)
        self.life = ProcessLifecycle(
            self.lake,
            settings.run,
            self.status,
            jvm.jvm_pid,
            self._emit,
            lambda: self._feed.batch_description if self._feed else "",
        )
        self._stop = self.life.stop
        self._disk = DiskSpaceGuard(self.lake, settings.lake.min_free_bytes, self.status, self._stop, self._discard)

    def run(self) -> ExitCode:
        """Run until everything is ingested, the app is stopped, or it cannot continue.

        Raises:
            ProtolakeError: carries the exit code.
        """
        self.life.listen()
        try:
            self._disk.retry(self.lake.prepare)
            self._disk.retry(self.life.take_lease)
            failpoints.arm(self.lake.root)
            followers = map(gold_follower, (GOLD, *self._settings.gold.tables))
            self.life.begin({"ingest": self._sign} | {name: partial(self._gold_progress, name) for name in followers})
            self._disk.retry(self._emit_start)
            self._disk.retry(lambda: temporary_folders.renew(self.lake))
            self._opened = self._disk.retry(self._open_lake)
            self._schema_events = SchemaEvents(self._opened.resolver.ledger, self._emit)
            return self._run(self._opened)
        except StopRequested:
            return ExitCode.DONE

    def _emit_start(self) -> None:
        self._emit(Event("start", f"The app starts as process {os.getpid()}", details={"pid": os.getpid()}))
        self._emit(settings_event(self.lake, self._settings))
        keep_settings(self.lake, self._settings)

    def _sign(self) -> Hashable:
        """A value that changes while records are ingested, and each time a wait is checked again."""
        unit = self._opened.units.manifests.last if self._opened else None
        query = self._feed.query if self._feed else None
        return unit, self.status.progress, session.signs(self._spark, query) if self._spark else None

    def _describe(self) -> dict[str, Any]:
        """The values of the status about the parts that exist by now."""
        found: dict[str, Any] = {"faults": self._faults}
        if self._opened:
            ledger = self._opened.resolver.ledger
            found |= {"schema_warnings": ledger.warnings(), "awaited": ledger.awaited()}
            found["paused"] = self._opened.paused.describe()
            found["references"] = self._opened.projections.joins.references.describe()
            if versions := ledger.versions():
                found["versions"] = versions
        if self._followers:
            found["followers"] = self._followers.describe()
        if self._sql:
            found["sql"] = {table: one for follower in self._sql for table, one in follower.describe().items()}
        return found

    def _offer(self, unit: Manifest) -> None:
        if self._followers:
            self._followers.offer(unit)

    def _session(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def _gold_progress(self, follower: str) -> Hashable:
        calls = self._followers[follower].calls if self._followers else 0
        return (calls, self._spark and session.signs(self._spark, None)) if calls % 2 else None

    def _open_lake(self) -> OpenLake:
        """
        Raises:
            ContractError: tables, state files and checkpoint do not belong to the same lake and point in time.
        """
        merger = WorkerMerger(self._session, self.lake.storage) if self._settings.spark.on_cluster else None
        opened = OpenLake.of(self.lake, self._settings, self._offer, merger)
        if self._settings.registry.sends_secret_in_clear:
            log.warning(
                "the app sends the registry's password or token unencrypted: use https://",
                url=self._settings.registry.url,
            )
        refuse(inventory.examine(self.lake, opened.units.manifests, opened.units.committer, self._settings.layout))
        checkpoint.check(self.lake, opened.units.manifests.last_ingest, opened.units.committer.synced.rebooted)
        self.status.set_rows(open_lake.count_rows(opened), opened.admission.admitted)
        self.status.set_quarantine(open_lake.count_open_causes(opened))
        return opened

    def _discard(self) -> None:
        if self._opened is not None:
            with self._unit_lock:
                self._opened.units.remove_uncommitted_files()

    def _run(self, opened: OpenLake) -> ExitCode:
        self._feed = feed = feed_of(self._settings, opened, self._available_now, self._accept_loss)
        workers: threading.Thread | None = None
        with ThreadPoolExecutor(2) as pool:
            search = pool.submit(self._await, "broker", feed.look)
            schemas = pool.submit(self._await, "registry", lambda: self._load_schemas(opened))
            for check in (search, schemas):
                check.add_done_callback(self._stop_if_failed)
            try:
                self._spark = spark = self._start_spark()
                self.life.reinstall_signal_handlers()
                jvm.lock_lake_in_jvm(spark, self.lake)
                if self._settings.spark.on_cluster:
                    watch = ExecutorWatch(spark, self._settings, self.status, self._emit)
                    watch.start(self.life.leave)
                    watch.check(self.lake, self._stop)
                else:
                    is_steady = self._settings.source.kind == "kafka" and not self._available_now
                    workers = session.prepare_workers(spark, own=is_steady)
            except BaseException as error:
                self._stop.set()  # otherwise the exit would wait for the broker and the registry
                if not isinstance(error, StopRequested):
                    raise
            search.result()
            schemas.result()
        if self._stop.is_set():
            return ExitCode.DONE
        self.status.waiting(None)
        self._disk.retry(feed.check)
        return self._work(opened, feed, self._wire(spark, opened, feed, workers))

    def _stop_if_failed(self, check: Future[Any]) -> None:
        """If one check fails, do not wait for the other."""
        if check.exception() is not None:
            self._stop.set()

    def _start_spark(self) -> SparkSession:
        while True:
            self._disk.wait()
            try:
                self._await("master", lambda: cluster.look_for_master(self._settings.spark.master))
                if self._stop.is_set():
                    raise StopRequested
                return session.start(self._settings)
            except ConfigurationError:
                if not self._disk.shortage():  # a JVM that cannot start does not report a full disk
                    raise

    def _load_schemas(self, opened: OpenLake) -> None:
        """Resolve the versions of the own subjects and the schema of records without a frame."""
        try:
            self._disk.retry(opened.resolver.load_subject_versions)
            self._disk.retry(lambda: opened.resolver.load_schema(self._settings.decode.unframed_schema_id))
            self._disk.retry(opened.resolver.fetch_missing_forms)
        except RegistryUnreachable as error:
            if not opened.resolver.ledger.entries:
                raise
            # Records with known schemas are decoded; others are deferred.
            log.warning("the registry does not answer, so schema versions stay unknown", reason=str(error))
        self._compare_schemas(opened)
        self._find_faults(opened)

    def _find_faults(self, opened: OpenLake) -> None:
        """Find the settings that do not fit the schemas; the log has each once. While a unit is built, which may change
        the ledger, this is left to the next call."""
        if not self._unit_lock.acquire(blocking=False):
            return
        try:
            catalog = opened.resolver.ledger.catalog()
        finally:
            self._unit_lock.release()
        if catalog is not self._judged:
            self._judged, self._field_faults = catalog, field_faults(self._settings, catalog)
        lacking = {setting: why for gold in self._gold for setting, why in gold.planner.lacking.items()}
        before, self._faults = self._faults, self._field_faults | lacking | self._refused
        for setting in self._faults.keys() - before.keys():
            log.warning("a setting does not fit the schemas", setting=setting, reason=self._faults[setting])

    def _wire(self, spark: SparkSession, opened: OpenLake, feed: Feed, workers: threading.Thread | None) -> Followers:
        units = UnitRunner(spark, opened, workers)
        units.check_expectations()
        feed.connect(spark, units, RunContext(self.status, self._disk, self._stop, self._unit_lock))
        self._deferred = DeferredDecoder(spark, opened, units, self._unit_lock)
        done = self._gold_done, lambda: is_rebuilding(self.lake), self._sql_done
        # With --available-now the followers run once more after the stop, to the end.
        stop = threading.Event() if self._available_now else self._stop
        context = FollowerContext(spark, opened, self._unit_lock, *done, self._refuse, stop)
        made = [follower for make in FOLLOWERS for follower in make(context)]
        self._gold = gold = [follower for follower in made if isinstance(follower, Aggregator)]
        self._sql = [follower for follower in made if isinstance(follower, SqlFollower)]
        more = self.status.recovered, self._emit, lambda table: any(one.makes(table) for one in self._sql)
        self._service = RequestExecutor(spark, opened, units, gold, self._unit_lock, *more)
        manifests, most_bytes = opened.units.manifests, self._settings.followers.max_bytes
        accepted = manifests.last if self._accept_gap else 0
        self._followers = Followers(made, self.lake, manifests, self._stop, most_bytes, accepted, self._emit)
        self._disk.retry(self._followers.begin)
        return self._followers

    def _work(self, opened: OpenLake, feed: Feed, followers: Followers) -> ExitCode:
        if not self._available_now:
            followers.start()
        self.status.running()
        try:
            feed.keep(self._land_only, lambda: self._do_chores(opened, followers))
            while self._available_now and not self._land_only and not self._stop.is_set():
                if not self._disk.retry(self._decode_deferred) and not self._disk.retry(self._service.step):
                    break
        finally:
            self._stop.set()
            self._schema_events.step()
            ended = followers.join()
        for follower in ended:  # bring them up to date before the exit; two calls of one must not overlap
            if self._available_now:
                self._disk.retry(follower.call)
            elif follower.runs_at_exit:
                follower.attempt()
        self._sync_before_exit(opened, ended)
        return ExitCode.DONE

    def _sync_before_exit(self, opened: OpenLake, ended: Iterable[FollowerRunner]) -> None:
        """Make all commits durable, so that the next start need not check them."""
        try:
            opened.units.committer.close()
            for follower in ended:
                follower.flush()
        except OSError as error:
            log.warning("the last commits may not be durable yet, so the next start checks them", reason=str(error))

    def _do_chores(self, opened: OpenLake, followers: Followers) -> None:
        """The main thread's work while the query runs, called about once a second."""
        if self._is_due("deferred", DEFERRED_INTERVAL_S):
            self._disk.retry(self._deferred.merge)
            if not self._land_only:
                self._disk.retry(self._decode_deferred)
        if self.lake.storage.is_local or self._is_due("requests", REQUESTS_EVERY_S_IN_A_BUCKET):
            self._disk.retry(self._service.step)
        if self._is_due("names", NAMES_EVERY_S):
            self._disk.retry(lambda: self._name_versions(opened))
            self._compare_schemas(opened)
            self._find_faults(opened)
            self._schema_events.step()
        if self._is_due("maintenance", MAINTENANCE_EVERY_S) and (done := opened.units.maintainer.take_done()):
            message = (
                f"{done['compactions']:,} compactions made {done['files_after']:,} files of {done['files_before']:,}"
            )
            self._emit(Event("maintenance", message, details=done))
        if self._is_due("forget", FORGET_EVERY_S):
            followers.forget(self._settings.lake.keep_manifests, opened.units.committer.synced.unit)

    def _gold_done(self, kind: str, rows: dict[str, int], failed: dict[str, str]) -> None:
        self.status.gold_done(kind, rows, failed)
        if rows or failed:
            which = "" if kind == GOLD else f" ({kind})"
            failures = f", and {len(failed):,} failed" if failed else ""
            message = f"{len(rows):,} gold tables{which} are up to date{failures}"
            details = {"tables": len(rows), "rows": sum(rows.values()), "failed": sorted(failed)}
            self._emit(Event("gold", message, "WARN" if failed else "INFO", details=details))

    def _sql_done(self, follower: str, rows: dict[str, int], failed: dict[str, str]) -> None:
        self.status.sql_done(follower, rows, failed)
        for table, why in failed.items():
            if self._told.get(table) != why:
                self._emit(Event("gold", f"{table} failed: {why}", "WARN", details={"failed": [table]}))
        others = {table: why for table, why in self._told.items() if table not in rows}
        self._told = others | failed

    def _refuse(self, where: str, why: str) -> None:
        setting = f"tables.sql {where}"
        self._refused[setting] = self._faults[setting] = why
        log.error("a statement makes no table", where=where, reason=why)
        self._emit(Event("gold", f"{where} makes no table: {why}", "WARN", details={"file": where}))

    def _is_due(self, chore: str, every_s: float) -> bool:
        now = time.monotonic()
        due = now >= self._due.get(chore, now)
        if due:
            self._due[chore] = now + every_s
        return due

    def _name_versions(self, opened: OpenLake) -> None:
        versions = opened.resolver.fetch_missing_versions()
        if versions:  # only now, because a batch may keep the lock for long and would delay all other chores
            with self._unit_lock:
                opened.resolver.ledger.set_versions(versions)

    def _compare_schemas(self, opened: OpenLake) -> None:
        self._disk.retry(lambda: opened.resolver.comparer.step(self._unit_lock))

    def _decode_deferred(self) -> bool:
        report = self._deferred.step(None if self._available_now else RETRY_WAIT_S)
        if report is not None:
            self.status.deferred_done(report)
        return report is not None

    def _await(self, what: str, request: Callable[[], Any]) -> Any:
        """Call `request` until it gets a response, the timeout is over, or the app is stopped."""
        deadline, refused_since = time.monotonic() + self._settings.run.connect_timeout_s, None
        settings = self._settings
        wheres = {"broker": settings.kafka.brokers, "registry": settings.registry.url, "master": settings.spark.master}
        where, reason = wheres[what], None
        while not self._stop.is_set():
            try:
                response = request()
                if reason:
                    self.status.end_wait(reason)
                return response
            except RegistryAccessDenied as error:
                self._give_up(f"{what} {where}", error)
            except (*topics.UNANSWERED, NoRegistry, RegistryUnreachable, cluster.MasterUnreachable) as error:
                now = time.monotonic()
                is_refusal = isinstance(error, topics.BrokerAccessDenied | NoRegistry)  # also of what only starts
                refused_since = (refused_since or now) if is_refusal else None
                if now > deadline or (refused_since is not None and now - refused_since > ACCESS_DENIED_TIMEOUT_S):
                    self._give_up(f"{what} {where}", error)
                reason = f"{what} {where}: {error}"
                self.status.waiting(reason)
                self._stop.wait(0.5)
        return None

    def _give_up(self, where: str, error: Exception) -> NoReturn:
        seconds = self._settings.run.connect_timeout_s
        if isinstance(error, RegistryAccessDenied):
            raise ConfigurationError(f"{where} refuses this client ({error})")
        if isinstance(error, NoRegistry):
            raise ConfigurationError(f"registry.url: {where}: {error}")
        if isinstance(error, topics.TopicMissing):
            raise ConfigurationError(f"kafka.topic: {error} at {where} for {seconds:.0f} s: create it, or name another")
        if isinstance(error, topics.BrokerAccessDenied):
            raise ConfigurationError(f"kafka: {where} refuses access: {error}")
        raise UnreachableError(f"{where} did not answer for {seconds:.0f} s ({error}): is it up?")
