"""What feeds ingest: the topics of Kafka, or a source of files. Each does what a run needs of it: a first look, a check
against the lake, and the loop that ingests."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from pyspark.sql import SparkSession

from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.settings.models import Settings
from spark_app.sources.files.folder import open_folder
from spark_app.sources.kafka import topics
from spark_app.sources.kafka.record_sizes import RecordSizes, sample
from spark_app.sources.kafka.spans import SpanSplitter
from spark_app.sources.kafka.topics import OpenTransactions
from spark_app.units.driver import loss
from spark_app.units.driver.file_stream import FileStream, origin_of
from spark_app.units.driver.ingest import Ingest, RunContext
from spark_app.units.driver.loss import TopicCheck
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import read_kafka
from spark_app.units.driver.streaming import Streaming
from spark_app.units.driver.unit import UnitOptions, UnitRunner

TRANSACTIONS_EVERY_S = 15.0
SINGLE = 64  # units of one task: what so many fetch twice costs about as much as another Python daemon


class Feed(Protocol):
    """
    Attributes:
        query: Spark's streaming query; None = there is none.
        batch_description: see `Ingest`.
    """

    @property
    def query(self) -> Any: ...

    @property
    def batch_description(self) -> str: ...

    def lag(self) -> int | None:
        """Records that the source has and no unit includes; None = not known."""

    def look(self) -> None:
        """Contact the source for the first time; it may not answer (`topics.UNANSWERED`)."""

    def check(self) -> None:
        """Compare the source with the lake.

        Raises:
            ProtolakeError: they do not belong together.
        """

    def connect(self, spark: SparkSession, units: UnitRunner, run: RunContext) -> None:
        """Create the loop of this run."""

    def keep(self, land_only: bool, every_second: Callable[[], None]) -> None:
        """Ingest until the app is asked to stop, or everything is ingested."""


class KafkaFeed:
    """The topics of Kafka."""

    def __init__(self, settings: Settings, opened: OpenLake, available_now: bool, accept_loss: bool):
        self._settings = settings
        self._opened = opened
        self._available_now = available_now
        self._accept_loss = accept_loss
        self._topic_check = TopicCheck(opened, topics.Topics(settings.kafka))
        self._sizes = RecordSizes(settings.batch.max_records, settings.batch.max_bytes)
        self._now: dict[str, topics.Topic] = {}
        self._streaming: Streaming | None = None
        self._ingest: Ingest | None = None
        self._run: RunContext

    @property
    def query(self) -> Any:
        return self._streaming.query if self._streaming else None

    @property
    def batch_description(self) -> str:
        return self._ingest.batch_description if self._ingest else ""

    def lag(self) -> int | None:
        return self._streaming.lag() if self._streaming else None

    def look(self) -> None:
        """Look at the topics; also estimates the record size."""
        now, last = self._topic_check.search(), self._opened.units.manifests.last_ingest
        if last is not None:
            self._sizes.add_unit(last.counts)
        else:
            partitions = {
                name: [int(p) for p, first in topic.first.items() if first < topic.end[p]]
                for name, topic in now.items()
            }
            self._sizes.add(*sample(self._settings.kafka, partitions))
        self._now = now

    def check(self) -> None:
        last = self._opened.units.manifests.last_ingest
        if last is not None and "files" in last.source:
            raise ConfigurationError('source.kind: the lake has records of files: set it to "files", or use a new lake')
        self._topic_check.check(self._now, self._accept_loss)

    def connect(self, spark: SparkSession, units: UnitRunner, run: RunContext) -> None:
        run.status.set_lost(loss.count(self._opened))
        patience = SINGLE if self._available_now else 0
        read = functools.partial(read_kafka, spark, self._settings, SpanSplitter(), patience)
        self._ingest = Ingest(self._opened, units, run, read, self._topic_check.confirm)
        self._streaming = Streaming(
            spark, self._opened, self._ingest, self._topic_check, run, self._available_now, self._sizes
        )
        self._run = run

    def keep(self, land_only: bool, every_second: Callable[[], None]) -> None:
        assert self._streaming is not None
        if not self._available_now:
            threading.Thread(target=self._look_for_transactions, name="transactions", daemon=True).start()
        origin = UnitOptions({name: topic.id for name, topic in self._now.items()}, land_only=land_only)
        self._streaming.keep(self._now, origin, every_second)

    def _look_for_transactions(self) -> None:
        transactions = OpenTransactions(self._settings.kafka)
        while not self._run.stop.wait(TRANSACTIONS_EVERY_S):
            self._run.status.set_blocked_offsets(transactions.look())


class FileFeed:
    """A source of files."""

    query = None

    def __init__(self, settings: Settings, opened: OpenLake, available_now: bool):
        self._settings = settings
        self._opened = opened
        self._available_now = available_now
        self._stream: FileStream | None = None

    @property
    def batch_description(self) -> str:
        return self._stream.batch_description if self._stream else ""

    def lag(self) -> int | None:
        return self._stream.lag() if self._stream else None

    def look(self) -> None:
        check_folder(self._settings)

    def check(self) -> None:
        last, name = self._opened.units.manifests.last_ingest, self._settings.source.name
        if last is not None and "files" not in last.source:
            raise ConfigurationError('source.kind: the lake has records of Kafka: set it to "kafka", or use a new lake')
        if last is not None and name not in last.source["end"]:
            known = ", ".join(last.source["end"])
            raise ConfigurationError(f"source.name: the lake has records of {known}: keep that name, or use a new lake")

    def connect(self, spark: SparkSession, units: UnitRunner, run: RunContext) -> None:
        self._stream = FileStream(spark, self._opened, units, run, self._available_now)

    def keep(self, land_only: bool, every_second: Callable[[], None]) -> None:
        assert self._stream is not None
        self._stream.keep(origin_of(self._settings.source.name, land_only), every_second)


def check_folder(settings: Settings) -> None:
    """
    Raises:
        ConfigurationError: the folder cannot be the source of this lake.
        UnreachableError: whatever it is on does not answer.
    """
    source, address = settings.source_address, settings.lake_address
    try:
        is_there = open_folder(source, settings.source.follow_links).exists()
    except UnreachableError:
        raise
    except OSError as error:
        raise UnreachableError(f"source.path {source.root} cannot be read: {error}") from None
    if not is_there:
        raise ConfigurationError(f"source.path: there is no {'bucket' if source.scheme else 'folder'} {source.root}")
    folder, lake = _whole_path(source), _whole_path(address)
    if source.scheme == address.scheme and os.path.commonpath([folder, lake]) in (folder, lake):
        raise ConfigurationError(f"source.path: {folder} and the lake {lake} must not be in one another")


def _whole_path(address: StorageAddress) -> str:
    """A path by which two addresses can be compared."""
    return f"/{address.bucket}/{address.prefix}".rstrip("/") if address.scheme else os.path.realpath(address.root)


def feed_of(settings: Settings, opened: OpenLake, available_now: bool, accept_loss: bool) -> Feed:
    """The feed that the settings name."""
    if settings.source.kind == "files":
        return FileFeed(settings, opened, available_now)
    return KafkaFeed(settings, opened, available_now, accept_loss)
