"""START HERE: wires ingest, deferred and aggregate, and decides how the process ends.

At start, in this order: lock the lake; finish every decided unit that a crash left open; compare tables and Spark's
checkpoint with the manifests; start Spark while the broker and the registry are asked; compare Kafka's topics with the
manifests; then run.

Three loops share one lock, so that only one unit is in the making at any time: the streaming query (`ingest`), the
main thread (`deferred` and `recovery`), and the gold thread, which takes the lock only to look (`aggregate`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_app import failpoints, session
from spark_app.config import Settings
from spark_app.driver import checkpoint, inventory, loss, source, topics
from spark_app.driver.aggregate import Aggregator
from spark_app.driver.commit import Committer
from spark_app.driver.deferred import Deferred
from spark_app.driver.findings import refuse
from spark_app.driver.ingest import Ingest
from spark_app.driver.manifest import Offsets
from spark_app.driver.opened import OpenLake
from spark_app.driver.room import Room, Stopped
from spark_app.driver.settle import ANSWERS_S
from spark_app.driver.transactions import OpenTransactions
from spark_app.driver.unit import Origin, UnitRunner
from spark_app.driver.watchdog import Watchdog
from spark_app.errors import ConfigurationError, ContractError, ExitCode, ProtolakeError, UnreachableError
from spark_app.lake import Lake
from spark_app.ops import processes
from spark_app.ops.events import log
from spark_app.ops.starts import Starts
from spark_app.ops.status import Status
from spark_app.ops.stopping import StopRequest
from spark_app.records import Layout
from spark_app.recovery.service import Service
from spark_app.schemas.registry import RegistryUnreachable
from spark_app.space import is_full
from spark_app.worker.tables import count_values

UNANSWERED = (topics.BrokerUnreachable, topics.TopicMissing, topics.LoginRefused)
DEFERRED_EVERY_S = 2.0
FORGET_EVERY_S = 60.0
EARLIEST = -2  # as Spark's startingOffsets have it
NAMES_EVERY_S = 10.0
RETRY_S = (0.5, 1, 2, 5)
TRANSACTIONS_EVERY_S = 15.0
LAST_WORDS_S = 5.0
LOST_WORDS = ("data was lost", "Some data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRange")
T = TypeVar("T")


class Pipeline:
    """One run of the app on one lake."""

    def __init__(
        self, settings: Settings, available_now: bool = False, land_only: bool = False, accept_loss: bool = False
    ):
        """`accept_loss`: what Kafka no longer has at this start is written down and skipped, nothing later."""
        self._settings = settings
        self._accept_loss = accept_loss
        self._topics = topics.Topics(settings.kafka)
        self._available_now = available_now
        self._land_only = land_only
        self._stopping = StopRequest()
        self._stop = self._stopping.requested
        self._unit_lock = threading.Lock()
        self._outcome: BaseException | None = None
        self._opened: OpenLake | None = None
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._watchdog: Watchdog | None = None
        self._folds = 0  # runs of `aggregate`, begun and ended
        self.lake = Lake(settings.lake.path)
        self._starts = Starts(self.lake, settings.run.backoff_s)
        self.status: Status | None = None

    def run(self) -> ExitCode:
        """Run until drained, stopped or unable to go on.

        Raises:
            ProtolakeError: with the exit code that it declares.
        """
        self._stopping.listen(lambda: self._leave_now(ExitCode.DONE, "stopped; what was under way is abandoned"))
        status = Status(self.lake, self._settings.tables.layout)
        self._room = Room(self.lake, self._settings.lake.min_free_bytes, status, self._stop)
        try:
            self._take_lake(status)
            return self._run(status)
        except Stopped:
            return ExitCode.DONE

    def _take_lake(self, status: Status) -> None:
        self._with_room(self.lake.prepare)
        self._with_room(self.lake.lock)
        failpoints.arm(self.lake.root)
        self.status = status
        status.start()
        seconds = self._starts.begin()
        if seconds:
            self.lake.unlock()  # for whoever looks after the lake meanwhile
            failed = self._starts.failed
            status.waiting(f"{failed} starts in a row achieved nothing, see the log: this one waits {seconds:.0f} s")
            if self._stop.wait(seconds):
                raise Stopped
            self.lake.lock()
        self._watch(status)

    def _watch(self, status: Status) -> None:
        """End the process where nothing moves any more. What is waited for moves: each look at it is told."""
        signs = {"ingest": self._sign, "gold": self._sign_of_gold}
        self._watchdog = Watchdog(signs, self._settings.run.stall_s, self._stalled)
        status.quiet_of = self._watchdog.quiet_s
        self._watchdog.start()

    def _stalled(self, what: str) -> NoReturn:
        self._leave_now(ExitCode.UNREACHABLE, f"no progress of {what} for {self._settings.run.stall_s:.0f} s")

    def _sign(self) -> Hashable:
        unit = self._opened.manifests.last if self._opened else None
        spark = session.signs(self._spark, self._query) if self._spark else None
        return unit, self.status and self.status.told, spark

    def _sign_of_gold(self) -> Hashable:
        return (self._folds, self._spark and session.signs(self._spark, None)) if self._folds % 2 else None

    def _leave_now(self, code: ExitCode, why: str) -> NoReturn:
        """From any thread, whatever hangs in the others: all that counts is durable."""
        log.warning("leaving", reason=why, exit_code=int(code))
        last = threading.Thread(target=self.end, args=(code, why), daemon=True)
        last.start()
        last.join(LAST_WORDS_S)  # they may hang with the disk
        processes.kill_all([*processes.descendants(os.getpid()), *filter(None, [session.jvm_pid()])])
        os._exit(code)

    def end(self, code: ExitCode, reason: str | None) -> None:
        """The last words of a run. From here on nothing has to move: whoever is held rests."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self.status is None:
            return
        self.status.end("held" if code.held else "stopped", reason or None, bump=code == ExitCode.BUMP)
        if code.held or code in (ExitCode.DONE, ExitCode.BUMP):
            self._starts.succeeded()

    def _run(self, status: Status) -> ExitCode:
        self._with_room(self._open_lake)
        with ThreadPoolExecutor(2) as pool:
            last = self._manifests.last_ingest
            search = pool.submit(self._await, "broker", lambda: loss.search(last, self._topics))
            schemas = pool.submit(self._await, "registry", lambda: self._with_room(self._learn_subject))
            try:
                self._spark = spark = self._start_spark()
            except BaseException:
                self._stop.set()  # else leaving would wait for the answers
                raise
            self._stopping.catch()
            session.hold_lake(spark, self.lake)
            now = search.result()
            schemas.result()
        if self._stop.is_set():
            return ExitCode.DONE
        status.waiting(None)
        self._with_room(lambda: self._check_topics(now))
        self._wire(spark)
        return self._work(spark, Origin({t: found.id for t, found in self._now.items()}, land_only=self._land_only))

    def _start_spark(self) -> SparkSession:
        while True:
            self._room.wait()
            try:
                return session.start(self._settings)
            except ConfigurationError:
                if not self._room.shortage():  # a full disk is not named in what a JVM says that cannot start
                    raise

    def _with_room(self, work: Callable[[], T]) -> T:
        """The work's result; where a disk is full, it is done again when there is room.

        Raises:
            Stopped
        """
        while True:
            try:
                return work()
            except Exception as error:
                if not is_full(error):
                    raise
                self._remove_undecided()
                self._room.wait(error)

    def _remove_undecided(self) -> None:
        """Files of a unit that could not be decided take the room that is missing."""
        if self._opened is not None:
            with self._unit_lock:
                self._opened.remove_undecided()

    def _open_lake(self) -> None:
        self._opened = OpenLake.of(self.lake, self._settings)
        self._manifests = self._opened.manifests
        self._schemas, self._tables = self._opened.schemas, self._opened.tables
        self._ledger = self._schemas.ledger
        self._check_lake()
        self._learn_status()

    def _check_lake(self) -> None:
        """
        Raises:
            ContractError: tables, state and checkpoint are not of one lake and moment.
        """
        assert self._opened is not None
        layout = self._settings.tables.layout
        refuse(inventory.examine(self.lake, self._manifests, self._opened.committer, layout))
        self._check_checkpoint(self._opened.committer.synced.rebooted)

    def _check_checkpoint(self, rebooted: bool) -> None:
        """Spark fsyncs nothing of it: what the power tore is made again from the manifests, without a person."""
        found = checkpoint.examine(self.lake, self._manifests.last_ingest)
        for finding in found if rebooted else ():
            if finding.repair is not None:
                log.warning(finding.what, done=finding.repair())
                found = checkpoint.examine(self.lake, self._manifests.last_ingest)
        refuse(found)

    def _learn_status(self) -> None:
        assert self.status is not None
        assert self._opened is not None
        layout = self._settings.tables.layout
        gold = {layout.gold_of(name) for name in self._tables.admitted.values()}
        own = [name for name in self.lake.tables() if name not in gold]
        rows = self._opened.maintainer.learn(own)
        self.status.learn_rows(rows | _rows(self._opened.committer, gold), self._tables.admitted)
        self.status.learn_quarantine(_open_causes(self._opened.committer, layout))
        self.status.versions_of = self._ledger.versions

    def _learn_subject(self) -> None:
        try:
            for subject in self._settings.subjects:
                self._schemas.learn_subject(subject)
            self._schemas.learn(self._settings.decode.unframed_schema_id)
        except RegistryUnreachable:
            if self._ledger.entries:
                return  # what is known keeps flowing; what is new waits
            raise

    def _wire(self, spark: SparkSession) -> None:
        assert self.status is not None
        assert self._opened is not None
        units = UnitRunner(spark, self.lake, self._settings, self._schemas, self._tables)
        self._ingest = Ingest(self._opened, units, self.status, self._stop, self._confirm_topics)
        self._deferred = Deferred(spark, self._opened, units)
        self._aggregator = Aggregator(spark, self._opened, self._unit_lock)
        self._service = Service(
            spark, self._opened, units, self._aggregator, self._unit_lock, placed=self.status.recovered
        )

    def _work(self, spark: SparkSession, origin: Origin) -> ExitCode:
        assert self.status is not None
        gold = threading.Thread(target=self._aggregate_forever, name="gold", daemon=True)
        if not self._available_now:
            gold.start()
            threading.Thread(target=self._look_for_transactions, name="transactions", daemon=True).start()
        self.status.running()
        try:
            self._keep_streaming(spark, origin)
            while self._available_now and not self._land_only and not self._stop.is_set():
                if not self._with_room(self._decode_deferred) and not self._with_room(self._service.step):
                    break
        finally:
            self._stop.set()
            if gold.is_alive():
                gold.join(timeout=15)
        if self._available_now:
            self._with_room(self._aggregate)
        elif not gold.is_alive():
            self._try_to_aggregate()  # who stops the app wants to find gold as it should be; two runs must not meet
        self._make_durable(gold.is_alive())
        return ExitCode.DONE

    def _make_durable(self, gold_is_busy: bool) -> None:
        """So that the next start has nothing to look at again; without it, it looks."""
        assert self._opened is not None
        try:
            self._opened.committer.close()
            if not gold_is_busy:
                self._aggregator.close()
        except OSError as error:
            log.warning("the next start looks again at the last commits", reason=str(error))

    def _keep_streaming(self, spark: SparkSession, origin: Origin) -> None:
        """Start the query, and start it again where what ended it lies outside."""
        failures = 0
        failing_since: float | None = None
        while not self._stop.is_set():
            last = self._manifests.last
            try:
                query = self._start_query(spark, origin)
                self._attend(query)
                return
            except (PySparkException, StreamingQueryException) as error:
                if self._manifests.last > last:
                    failures, failing_since = 0, None
                failing_since = failing_since or time.monotonic()
                self._judge(error, time.monotonic() - failing_since)
            self._stop.wait(RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1

    def _start_query(self, spark: SparkSession, origin: Origin) -> StreamingQuery:
        last = self._manifests.last_ingest
        start = self._next_offsets(last.source["end"]) if last else None
        if last and not checkpoint.is_there(self.lake):
            checkpoint.forget(self.lake, f"the manifests say where unit {last.sequence} ended")
        if not last and self.lake.checkpoint.exists():
            shutil.rmtree(self.lake.checkpoint)  # nothing was ever decided: begin where the settings say
        batch = self._settings.batch
        records = source.stream(spark, self._settings, start, self._records_per_batch())
        writer = records.writeStream.foreachBatch(self._take(origin)).option(
            "checkpointLocation", str(self.lake.checkpoint)
        )
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(batch.interval_s * 1000)} milliseconds")
        return writer.queryName("ingest").start()

    def _next_offsets(self, end: Offsets) -> Offsets:
        """Where a checkpoint that is made again begins: partitions that came since, from their oldest record."""
        return {t: dict.fromkeys(found.first, EARLIEST) | end.get(t, {}) for t, found in self._now.items()}

    def _records_per_batch(self) -> int:
        """The cap on records, lowered where the mean size of the last unit's records would break the cap on bytes."""
        batch = self._settings.batch
        counts = self._manifests.last_ingest.counts if self._manifests.last_ingest else {}
        mean = counts["value_bytes"] / counts["bronze"] if counts.get("bronze") else 0
        return max(1, min(batch.records, int(batch.bytes / mean) if mean else batch.records))

    def _take(self, origin: Origin) -> Callable[[DataFrame, int], None]:
        def take(records: DataFrame, batch_id: int) -> None:
            try:
                with self._unit_lock:
                    if self._stop.is_set():
                        raise Stopped
                    with failpoints.around("batch"):
                        self._ingest.batch(records, batch_id, origin)
            except BaseException as error:
                self._outcome = error  # Py4J carries only its text: the main thread needs the exception itself
                raise

        return take

    def _attend(self, query: StreamingQuery) -> None:
        """Wait for the query; decode what was deferred meanwhile; stop it between two batches when asked to."""
        assert self.status is not None
        assert self._opened is not None
        self.status.lag_of = lambda: _lag(query)
        self._query = query
        self._outcome = None
        next_deferred = next_forget = next_names = time.monotonic()
        while not query.awaitTermination(1):
            if self._stop.is_set():
                with self._unit_lock:
                    pass  # the batch under way is finished; the next one refuses to begin
                query.stop()
                return
            if time.monotonic() >= next_deferred and not self._land_only:
                self._with_room(self._decode_deferred)
                next_deferred = time.monotonic() + DEFERRED_EVERY_S
            self._with_room(self._service.step)
            if time.monotonic() >= next_names and self._ledger.has_unnamed():
                self._with_room(self._name_versions)
                next_names = time.monotonic() + NAMES_EVERY_S
            if time.monotonic() >= next_forget:
                self._manifests.forget(self._settings.lake.keep_manifests, self._opened.committer.synced.oldest)
                next_forget = time.monotonic() + FORGET_EVERY_S

    def _name_versions(self) -> None:
        versions = self._schemas.ask_versions(self._settings.subject)
        with self._unit_lock:
            self._ledger.name_versions(versions)

    def _decode_deferred(self) -> bool:
        assert self.status is not None
        with self._unit_lock:
            report = self._deferred.step(None if self._available_now else ANSWERS_S)
        if report is not None:
            self.status.deferred_done(report)
        return report is not None

    def _judge(self, error: Exception, seconds: float) -> None:
        """Why the query ended: raise what ends the app, or return to start the query again."""
        assert self.status is not None
        outcome = self._outcome
        if isinstance(outcome, Stopped):
            return None
        if isinstance(outcome, ProtolakeError):
            raise outcome
        text = f"{error} {outcome or ''}"
        if is_full(text):
            self._remove_undecided()
            return self._room.wait(outcome or error)
        if any(word in text for word in LOST_WORDS):
            self._judge_loss()
        elif not isinstance(outcome, UNANSWERED) and not source.is_unanswered(text):
            refuse(checkpoint.examine(self.lake, self._manifests.last_ingest))
            raise outcome if isinstance(outcome, Exception) else error
        patience = self._settings.run.patience_s
        if seconds > patience:
            raise UnreachableError(
                f"no answer from {self._settings.kafka.brokers} for {seconds:.0f} s: {_first_line(text)}"
            )
        self.status.waiting(f"broker {self._settings.kafka.brokers} does not answer; trying again for {patience:.0f} s")

    def _judge_loss(self) -> None:
        """Spark says that records are lost: whether they are is for the brokers to say.

        Raises:
            ContractError: they are.
        """
        with contextlib.suppress(*UNANSWERED):
            self._refuse_loss()
            checkpoint.forget(self.lake, "Spark misses records, but Kafka has all that were not taken")

    def _aggregate_forever(self) -> None:
        while not self._stop.wait(self._settings.gold.interval_s):
            if not self._service.rebuilding():
                self._try_to_aggregate()

    def _try_to_aggregate(self) -> None:
        """Gold can always be made again from silver: its failure stops neither ingest nor a clean end."""
        try:
            self._aggregate()
        except Exception as error:
            log.error("gold failed, the next run tries again", reason=_first_line(str(error)))

    def _aggregate(self) -> None:
        assert self.status is not None
        self._folds += 1
        try:
            self.status.gold_done(self._aggregator.run())
        finally:
            self._folds += 1

    def _look_for_transactions(self) -> None:
        assert self.status is not None
        transactions = OpenTransactions(self._settings.kafka)
        while not self._stop.wait(TRANSACTIONS_EVERY_S):
            self.status.held_back(transactions.look())

    def _await(self, what: str, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer, the patience is over, or the app is stopped."""
        assert self.status is not None
        deadline = time.monotonic() + self._settings.run.patience_s
        where = self._settings.kafka.brokers if what == "broker" else self._settings.registry.url
        while not self._stop.is_set():
            try:
                return ask()
            except (*UNANSWERED, RegistryUnreachable) as error:
                if time.monotonic() > deadline:
                    self._give_up(f"{what} {where}", error)
                self.status.waiting(f"{what} {where}: {error}")
                self._stop.wait(0.5)
        return None

    def _give_up(self, where: str, error: Exception) -> NoReturn:
        seconds = self._settings.run.patience_s
        if isinstance(error, topics.TopicMissing):
            raise ConfigurationError(f"kafka.topic: {error} at {where} for {seconds:.0f} s: create it, or name another")
        if isinstance(error, topics.LoginRefused):
            raise ConfigurationError(f"kafka: {where} refuses the login ({error}): check kafka.sasl_* and the files")
        raise UnreachableError(f"{where} did not answer for {seconds:.0f} s ({error}): is it up?")

    def _check_topics(self, now: dict[str, topics.Topic]) -> None:
        """Compare what Kafka has with what was taken.

        Raises:
            ContractError: records that were not taken are gone, and nobody has accepted it.
            ConfigurationError: the settings no longer name a topic of the lake.
        """
        assert self.status is not None
        assert self._opened is not None
        last = self._manifests.last_ingest
        taken = last.source["end"].keys() if last else now.keys()
        if taken - now.keys():
            names = ", ".join(sorted(taken - now.keys()))
            raise ConfigurationError(f"kafka.topic: the lake has taken from {names}: name it too, or start a new lake")
        gaps = loss.find_gaps(last, now)
        if gaps and not self._accept_loss:
            raise ContractError(loss.describe(gaps))
        loss.accept(self._opened, gaps, now)
        self.status.learn_lost(loss.count(self._opened))
        self._now = now
        if any(offset for name in now.keys() - taken for offset in now[name].first.values()):
            checkpoint.forget(self.lake, "a new topic does not begin at 0, which Spark would take for a loss")

    def _confirm_topics(self, topic_ids: dict[str, str]) -> None:
        """
        Raises:
            ContractError: a topic was deleted and made again since the app started: its offsets mean other records.
            UnreachableError: so it was, but nothing of it had been taken.
        """
        if self._topics.ids() != topic_ids:
            self._refuse_loss()
            raise UnreachableError(f"topic {self._settings.kafka.topic} was made again: starting with the new one")

    def _refuse_loss(self) -> None:
        """
        Raises:
            ContractError: names what Kafka no longer has, if there is any.
        """
        gaps = loss.find_gaps(self._manifests.last_ingest, loss.search(self._manifests.last_ingest, self._topics))
        if gaps:
            raise ContractError(loss.describe(gaps))


def _rows(committer: Committer, names: set[str]) -> dict[str, int]:
    tables = {name: committer.tables.get(name) for name in names}
    return {name: sum(t.get_add_actions()["num_records"].to_pylist()) for name, t in tables.items() if t is not None}


def _open_causes(committer: Committer, layout: Layout) -> dict[str, int]:
    """Cause -> records in quarantine that no replay has resolved."""
    resolved = _causes(committer, layout.resolved)
    left = {c: n - resolved.get(c, 0) for c, n in _causes(committer, layout.quarantine).items()}
    return {cause: count for cause, count in left.items() if count}


def _causes(committer: Committer, name: str) -> dict[str, int]:
    table = committer.tables.get(name)
    return {} if table is None else count_values(table.to_pyarrow_dataset().to_table(columns=["cause"])["cause"])


def _lag(query: StreamingQuery) -> int | None:
    """Records that the broker has and the last batch did not take."""
    try:
        progress = query.lastProgress
        sources = progress["sources"] if progress else []
        ends = [(json.loads(_text(s["latestOffset"])), json.loads(_text(s["endOffset"]))) for s in sources]
        pairs = [(latest[t][p], end.get(t, {}).get(p, 0)) for latest, end in ends for t in latest for p in latest[t]]
    except (PySparkException, ValueError, TypeError, KeyError):
        return None
    return sum(latest - taken for latest, taken in pairs) if pairs else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")[:300]
