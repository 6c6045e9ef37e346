"""The streaming query: it starts where the last manifest ended, passes batches to `ingest`, and is restarted after
failures of Kafka or the disk.

The reasons: docs/decisions/outages.md.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_app.lake.delta.problems import refuse
from spark_app.lake.files import failpoints
from spark_app.lake.files.disk import is_full
from spark_app.model.errors import ConfigurationError, ProtolakeError, UnreachableError, last_message_line
from spark_app.model.log import log
from spark_app.model.offsets import Offsets, ReadFailed, ReadFailure
from spark_app.sources.kafka import broker_access, spark_source
from spark_app.sources.kafka.broker_access import ACCESS_DENIED_TIMEOUT_S
from spark_app.sources.kafka.record_sizes import RecordSizes
from spark_app.sources.kafka.topics import UNANSWERED, BrokerAccessDenied, Topic
from spark_app.units.driver.disk_space import StopRequested
from spark_app.units.driver.ingest import Ingest, RunContext
from spark_app.units.driver.loss import TopicCheck
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitOptions
from spark_app.units.spark import checkpoint, session
from spark_app.units.spark.jvm import count_rows, jvm_lives

FRESH_S = 3.0  # after a unit: Spark reports the batch a little later than the unit is committed
LOOK_S = 5.0
EARLIEST = -2  # its value in Spark's startingOffsets
RETRY_S = (0.5, 1, 2, 5)
ADDED_EVERY_S = 30.0
LOSS_MESSAGES = ("data was lost", "Some data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRange")


class QueryLag:
    """The lag of a query, by its last progress report. A report costs a call of the JVM, and Spark makes one per batch,
    or every ten seconds without records. So it is read each time only shortly after a unit.

    Args:
        last_unit: the number of the last committed unit.
    """

    def __init__(
        self, query: StreamingQuery, last_unit: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ):
        self._query = query
        self._last_unit = last_unit
        self._clock = clock
        self._lag: int | None = None
        self._unit = -1
        self._fresh_until = 0.0
        self._next = 0.0

    def look(self) -> int | None:
        """Records that the broker has and the last batch did not include; None if that is not known."""
        now, unit = self._clock(), self._last_unit()
        if unit != self._unit:
            self._unit, self._fresh_until = unit, now + FRESH_S
        if now >= self._next or now < self._fresh_until:
            self._lag, self._next = _lag(self._query), now + LOOK_S
        return self._lag


def _lag(query: StreamingQuery) -> int | None:
    try:
        progress = query.lastProgress
        sources = progress["sources"] if progress else []
        ends = [(json.loads(_text(s["latestOffset"])), json.loads(_text(s["endOffset"]))) for s in sources]
        pairs = [(latest[t][p], end.get(t, {}).get(p, 0)) for latest, end in ends for t in latest for p in latest[t]]
    except (PySparkException, Py4JError, OSError, ValueError, TypeError, KeyError):  # also: the JVM is gone
        return None
    return sum(latest - ingested for latest, ingested in pairs) if pairs else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class BatchSizeChanged(Exception):
    """Raised after a commit to restart the query with another record limit."""


class Streaming:
    """The streaming query of one run.

    Args:
        available_now: end once everything that Kafka has is ingested.
        sizes: estimates the record size; the query restarts when it has changed much.
    """

    def __init__(
        self,
        session: SparkSession,
        opened: OpenLake,
        ingest: Ingest,
        topic_check: TopicCheck,
        run: RunContext,
        available_now: bool,
        sizes: RecordSizes,
    ):
        self._session = session
        self._opened = opened
        self._settings = opened.settings
        self._manifests = opened.units.manifests
        self._checkpoint = opened.lake.path(opened.lake.checkpoint)  # Spark's
        self._ingest = ingest
        self._topic_check = topic_check
        self._disk = run.disk
        self._status = run.status
        self._lag: QueryLag | None = None
        self._unit_lock = run.unit_lock
        self._stop = run.stop
        self._available_now = available_now
        self._sizes = sizes
        self._limit = 0  # records per batch of the running query
        self._added: Mapping[str, Topic] | None = None  # the topics, with partitions that the query does not read
        self._outcome: BaseException | None = None
        self._failing: dict[str, float] = {}  # kind of failure ("at all", "refused") -> since when
        self.query: StreamingQuery | None = None

    def keep(self, now: Mapping[str, Topic], origin: UnitOptions, every_second: Callable[[], None]) -> None:
        """Run the query until the app is asked to stop or everything is ingested.

        Args:
            now: the topics at the start of the app.
            every_second: called by the main thread about once a second.

        Raises:
            ProtolakeError: a batch raised it; the broker did not answer or denied access for too long; records are
                lost; or the JVM has ended.
        """
        failures = 0
        while not self._stop.is_set():
            last = self._manifests.last
            try:
                self._added = None
                self.query = self._start(now, origin)
                self._wait_for_query(self.query, now, every_second)
                if self._added is None:
                    return
                log.info("batches are planned again, because partitions were added")
                now = self._added
            except (PySparkException, StreamingQueryException) as error:
                if self._manifests.last > last:
                    failures = 0
                    self._failing.clear()
                if isinstance(self._outcome, BatchSizeChanged):
                    log.info(
                        "batches are planned again, because the record size has changed", records=self._sizes.limit()
                    )
                    continue
                self._handle_query_end(error, time.monotonic())
            except (Py4JError, OSError) as error:
                if jvm_lives():
                    raise
                self._ingest.fail(error, "the JVM has ended")
            self._stop.wait(RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1

    def _start(self, now: Mapping[str, Topic], origin: UnitOptions) -> StreamingQuery:
        last = self._manifests.last_ingest
        start = _next_offsets(last.source["end"], now) if last else self._beginning(now)
        if last and not checkpoint.is_there(self._opened.lake):
            checkpoint.forget(
                self._opened.lake,
                f"the checkpoint is missing, and the manifests record where unit {last.sequence} ended",
            )
        if not last and self._checkpoint.exists():
            shutil.rmtree(self._checkpoint)  # no unit was ever committed
        self._outcome = None
        self._limit = self._sizes.limit()
        partitions = {name: topic.first for name, topic in now.items()}
        records = spark_source.stream(self._session, self._settings, partitions, start, self._limit)
        writer = records.writeStream.foreachBatch(self._batch_function(origin)).option(
            "checkpointLocation", str(self._checkpoint)
        )
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(self._settings.batch.interval_s * 1000)} milliseconds")
        with session.without_code_generation(self._session):
            return writer.queryName("ingest").start()

    def _beginning(self, now: Mapping[str, Topic]) -> Offsets | None:
        """Where an empty lake begins; None = at the oldest records. "latest" is resolved once and stored, so that later
        records are ingested even if the app restarts before its first unit."""
        if self._settings.kafka.starting_offsets == "earliest":
            return None
        ids = {name: topic.id for name, topic in now.items()}
        if self._manifests.began().get("topic_ids") != ids:
            self._manifests.begin({name: dict(topic.end) for name, topic in now.items()}, ids)
        began = self._manifests.began()["start"]
        ingested = {
            name: {p: offset for p, offset in began.get(name, {}).items() if p in topic.first}
            for name, topic in now.items()
        }
        return _next_offsets(ingested, now)

    def _batch_function(self, origin: UnitOptions) -> Callable[[DataFrame, int], None]:
        def ingest_batch(_: DataFrame, batch_id: int) -> None:
            try:
                with self._unit_lock:
                    if self._stop.is_set() or self._added is not None:
                        raise StopRequested
                    with failpoints.around("batch"):
                        rows = self._ingest.batch(batch_id, origin)
                    count_rows(self._session, rows)
                    self._add_record_size()
            except BaseException as error:
                self._outcome = error  # py4j passes only its text on, but the main thread needs the exception
                raise

        return ingest_batch

    def _add_record_size(self) -> None:
        """Add the committed unit to the estimate of the record size.

        Raises:
            BatchSizeChanged: a query's limit is fixed, so a new query has to continue after the unit that was just
                committed.
        """
        self._sizes.add_unit(self._manifests.last_ingest.counts if self._manifests.last_ingest else {})
        if self._sizes.needs_new_limit(self._limit):
            raise BatchSizeChanged

    def _wait_for_query(
        self, query: StreamingQuery, now: Mapping[str, Topic], every_second: Callable[[], None]
    ) -> None:
        """Wait for the query; stop it between two batches when the app is asked to stop, or when partitions were added
        that it does not read."""
        looked = time.monotonic()
        self._lag = QueryLag(query, lambda: self._manifests.last)
        while not query.awaitTermination(1):
            if time.monotonic() - looked > ADDED_EVERY_S:
                looked = time.monotonic()
                with contextlib.suppress(*UNANSWERED):  # batches notice that, too
                    self._added = self._topic_check.added(now)
            if self._stop.is_set() or self._added is not None:
                with self._unit_lock:
                    pass  # the current batch ends first; the next one raises StopRequested
                query.stop()
                return
            every_second()

    def lag(self) -> int | None:
        """Records that the broker has and the last batch did not include; None if that is not known."""
        return self._lag.look() if self._lag else None

    def _handle_query_end(self, error: Exception, now: float) -> None:
        """The query has ended: raise to end the app, or return to start it again. `now` is a monotonic clock."""
        outcome = self._outcome
        if isinstance(outcome, StopRequested):
            return None
        if isinstance(outcome, ProtolakeError):
            raise outcome
        text = str(outcome) if isinstance(outcome, ReadFailed) else f"{error} {outcome or ''}"
        brokers, timeout_s = self._settings.kafka.brokers, self._settings.run.connect_timeout_s
        refused = self._refusal(outcome, text)
        seconds = now - self._failing.setdefault("at all", now)
        if not refused:
            self._failing.pop("refused", None)
        problem = f"broker {brokers} does not answer"
        if is_full(text):
            return self._disk.make(outcome or error)
        if any(word in text for word in LOSS_MESSAGES) or (
            isinstance(outcome, ReadFailed) and outcome.why != ReadFailure.SILENT
        ):
            problem = self._check_for_loss(first_line(text)) or problem
        elif refused:
            self._topic_check.log_in_again()
            if now - self._failing.setdefault("refused", now) > min(timeout_s, ACCESS_DENIED_TIMEOUT_S):
                raise ConfigurationError(f"kafka: {brokers} refuses access: {refused}")
            problem = f"broker {brokers} refuses access: {refused}"
        elif not isinstance(outcome, (*UNANSWERED, ReadFailed)) and not spark_source.is_unanswered(text):
            refuse(checkpoint.examine(self._opened.lake, self._manifests.last_ingest))
            if isinstance(outcome, Exception):
                self._ingest.fail(outcome, f"{type(outcome).__name__}: {last_message_line(outcome)}")
            raise error
        if seconds > timeout_s:
            raise UnreachableError(f"{problem}, for {seconds:.0f} s: {first_line(text)}")
        self._status.waiting(f"{problem} ({first_line(text)}); the app retries for {timeout_s:.0f} s")

    def _refusal(self, outcome: BaseException | None, text: str) -> str | None:
        """Why the brokers denied access, if that ended the query."""
        if isinstance(outcome, BrokerAccessDenied):
            return str(outcome)
        kafka = self._settings.kafka
        if isinstance(outcome, ReadFailed):
            return broker_access.refusal((KafkaError(code, words) for code, words in outcome.errors), kafka)
        refused = spark_source.refusal(text)
        if refused is None and outcome is None and kafka.uses_oauth and spark_source.is_unanswered(text):
            return self._topic_check.refusal()  # the JVM does not say whether it is the token that is missing
        return refused

    def _check_for_loss(self, why: str) -> str | None:
        """Planned records are missing: ask the brokers whether they are lost. Returns the result; None if they did not
        answer.

        Raises:
            ContractError: the records are lost.
        """
        try:
            self._topic_check.refuse()
        except UNANSWERED:
            return None
        text = "Spark missed records, but Kafka has all that were not ingested: they are planned again"
        checkpoint.forget(self._opened.lake, f"{text} ({why})")
        return text


def _next_offsets(end: Offsets, now: Mapping[str, Topic]) -> Offsets:
    """Where a new checkpoint begins; partitions that were added since, at their oldest record."""
    return {name: dict.fromkeys(topic.first, EARLIEST) | end.get(name, {}) for name, topic in now.items()}


def first_line(text: str) -> str:
    """The first line that is not blank, at most 300 characters."""
    return next((line for line in text.splitlines() if line.strip()), "")[:300]
