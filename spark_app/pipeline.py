"""START HERE: wires ingest, deferred and aggregate, and decides how the process ends.

At start, in this order: lock the lake; finish every decided unit that a crash left open; start Spark while the broker
and the registry are asked; compare Kafka's topics and Spark's checkpoint with the manifests; then run.

Three loops share one lock, so that only one unit is in the making at any time: the streaming query (`ingest`), the
main thread (`deferred` and `recovery`), and the gold thread, which takes the lock only to look (`aggregate`).
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_app import failpoints, session
from spark_app.config import Settings
from spark_app.driver import source
from spark_app.driver.aggregate import Aggregator
from spark_app.driver.commit import Committer
from spark_app.driver.deferred import Deferred
from spark_app.driver.ingest import NO_SPACE, Ingest, Stopped
from spark_app.driver.opened import OpenLake
from spark_app.driver.settle import ANSWERS_S
from spark_app.driver.unit import Origin, UnitRunner
from spark_app.errors import ConfigurationError, ContractError, ExitCode, ProtolakeError, UnreachableError
from spark_app.lake import Lake
from spark_app.ops.events import log
from spark_app.ops.status import Status
from spark_app.records import Layout
from spark_app.recovery.service import Service
from spark_app.schemas.registry import RegistryUnreachable
from spark_app.worker.tables import count_values

UNANSWERED = (source.BrokerUnreachable, source.TopicMissing, source.LoginRefused)
DEFERRED_EVERY_S = 2.0
FORGET_EVERY_S = 60.0
NAMES_EVERY_S = 10.0
RETRY_S = (0.5, 1, 2, 5)
BROKER_WORDS = (
    "TimeoutException",
    "KafkaException",
    "Failed to construct kafka",
    "UnknownTopicOrPartition",
    "DisconnectException",
)
LOST_WORDS = ("data was lost", "Some data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRange")


class Pipeline:
    """One run of the app on one lake."""

    def __init__(self, settings: Settings, available_now: bool = False, land_only: bool = False):
        self._settings = settings
        self._available_now = available_now
        self._land_only = land_only
        self._stop = threading.Event()
        self._unit_lock = threading.Lock()
        self._outcome: BaseException | None = None
        self.lake = Lake(settings.lake.path)
        self.status: Status | None = None

    def request_stop(self, *_: Any) -> None:
        """From a signal: finish the batch under way, then end with 0."""
        self._stop.set()

    def run(self) -> ExitCode:
        """Run until drained, stopped or unable to go on.

        Raises:
            ProtolakeError: with the exit code that it declares.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.request_stop)
        self.lake.prepare()
        self.lake.lock()
        failpoints.arm(self.lake.root)
        self.status = Status(self.lake, self._settings.tables.layout)
        self.status.start()
        self._open_lake()
        with ThreadPoolExecutor(2) as pool:
            topics = pool.submit(self._await, "broker", lambda: source.topic_ids(self._settings.kafka))
            schemas = pool.submit(self._await, "registry", self._learn_subject)
            try:
                spark = session.start(self._settings)
            except BaseException:
                self._stop.set()  # else leaving would wait for the answers
                raise
            session.hold_lake(spark, self.lake)
            topic_ids = topics.result()
            schemas.result()
        if self._stop.is_set():
            return ExitCode.DONE
        self.status.waiting(None)
        self._compare_topics(topic_ids)
        self._wire(spark)
        return self._work(spark, Origin(topic_ids, land_only=self._land_only))

    def _open_lake(self) -> None:
        self._opened = OpenLake.of(self.lake, self._settings)
        self._manifests = self._opened.manifests
        self._schemas, self._tables = self._opened.schemas, self._opened.tables
        self._ledger = self._schemas.ledger
        self._learn_status()

    def _learn_status(self) -> None:
        assert self.status is not None
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
        units = UnitRunner(spark, self.lake, self._settings, self._schemas, self._tables)
        self._ingest = Ingest(self._opened, units, self.status, self._stop.is_set)
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
        self.status.running()
        try:
            self._keep_streaming(spark, origin)
            while self._available_now and not self._land_only and not self._stop.is_set():
                if not self._decode_deferred() and not self._service.step():
                    break
        finally:
            self._stop.set()
            if gold.is_alive():
                gold.join(timeout=15)
        if self._available_now:
            self._aggregate()
        elif not gold.is_alive():
            self._try_to_aggregate()  # who stops the app wants to find gold as it should be; two runs must not meet
        self._opened.committer.close()
        if not gold.is_alive():
            self._aggregator.close()
        return ExitCode.DONE

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
        start = last.source["end"] if last else None
        if last and not (self.lake.checkpoint / "offsets").is_dir():
            log.warning("checkpoint rebuilt from the manifests", unit=last.sequence)
            with failpoints.around("checkpoint"):
                shutil.rmtree(self.lake.checkpoint, ignore_errors=True)
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
        self.status.lag_of = lambda: _lag(query)
        self._outcome = None
        next_deferred = next_forget = next_names = time.monotonic()
        while not query.awaitTermination(1):
            if self._stop.is_set():
                with self._unit_lock:
                    pass  # the batch under way is finished; the next one refuses to begin
                query.stop()
                return
            if time.monotonic() >= next_deferred and not self._land_only:
                self._decode_deferred()
                next_deferred = time.monotonic() + DEFERRED_EVERY_S
            self._service.step()
            if time.monotonic() >= next_names and self._ledger.has_unnamed():
                self._name_versions()
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
        if any(word in text for word in LOST_WORDS):
            raise ContractError(f"Kafka no longer has records that were not taken: {_first_line(text)}")
        if NO_SPACE in text:
            return self.status.waiting(f"no space left at {self.lake.root}: make room, it goes on by itself")
        if not any(word in text for word in BROKER_WORDS):
            raise error
        patience = self._settings.run.patience_s
        if seconds > patience:
            raise UnreachableError(
                f"no answer from {self._settings.kafka.brokers} for {seconds:.0f} s: {_first_line(text)}"
            )
        self.status.waiting(f"broker {self._settings.kafka.brokers} does not answer; trying again for {patience:.0f} s")

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
        self.status.gold_done(self._aggregator.run())

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
        if isinstance(error, source.TopicMissing):
            raise ConfigurationError(f"kafka.topic: {error} at {where} for {seconds:.0f} s: create it, or name another")
        if isinstance(error, source.LoginRefused):
            raise ConfigurationError(f"kafka: {where} refuses the login ({error}): check kafka.sasl_* and the files")
        raise UnreachableError(f"{where} did not answer for {seconds:.0f} s ({error}): is it up?")

    def _compare_topics(self, topic_ids: dict[str, str]) -> None:
        last = self._manifests.last_ingest
        for topic, known in (last.source["topic_ids"] if last else {}).items():
            if topic_ids.get(topic, known) != known:
                raise ContractError(
                    f"topic {topic} was deleted and made again since unit {last.sequence if last else 0}: "
                    "its offsets mean other records now. Start a new lake: ./scripts/run --fresh keeps the old one"
                )


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
