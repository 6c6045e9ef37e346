"""Sends records to Kafka. Input: keys and values. Output: counts, and optionally a JSON line per acknowledged
record."""

import hashlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from producer.errors import ConfigurationError, UnreachableError
from producer.patience import StopSignal, explain
from producer.progress import Progress
from producer.settings import Settings
from producer.topic import client_settings

_FLUSH_S = 8.0
_SLICE_S = 0.2
_SLACK_S = 60


class Delivery:
    """One idempotent producer that tracks its records. As a context manager it flushes at the end.

    Raises UnreachableError when nothing is acknowledged for `settings.patience` seconds while records wait.
    """

    def __init__(self, settings: Settings, progress: Progress, stop: StopSignal) -> None:
        self._progress = progress
        self._settings = settings
        self._stop = stop
        self._moved = time.monotonic()
        self._acks = open_acks(settings.acks)
        self._producer = Producer(client_settings(settings) | producer_settings(settings.patience))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._producer.flush(_FLUSH_S)
        finally:
            if self._acks:
                self._acks.close()

    def send(self, key: bytes, value: bytes | None, label: dict[str, Any]) -> None:
        """Queue one record; waits while the queue is full, and drops the record if a stop is requested meanwhile."""
        if self._progress.sent == self._progress.acknowledged:
            self._moved = time.monotonic()
        report = partial(self._report_line, label) if self._acks else self._report
        while not self._queue(key, value, report):
            self.serve(_SLICE_S)
            if self._stop.requested:
                return
        self._progress.add(label)
        self._progress.report_if_due()
        self._producer.poll(0)

    def serve(self, seconds: float) -> None:
        """Process acknowledgements for so many seconds, or until the first ones arrive."""
        self._producer.poll(min(seconds, _SLICE_S))
        self._progress.report_if_due()
        missing = self._progress.sent - self._progress.acknowledged
        if missing and time.monotonic() - self._moved > self._settings.patience:
            raise UnreachableError(
                f"broker {self._settings.brokers} has acknowledged nothing for {self._settings.patience:g} s, "
                f"{missing} records are unacknowledged"
            )

    def drain(self) -> None:
        """Wait until every record is acknowledged or has failed. Raises UnreachableError."""
        while len(self._producer) and not self._stop.requested:
            self.serve(_SLICE_S)

    def _queue(self, key: bytes, value: bytes | None, report: Callable[[KafkaError | None, Message], None]) -> bool:
        try:
            self._producer.produce(self._settings.topic, value, key, on_delivery=report)
        except BufferError:
            return False
        except KafkaException as error:
            # A fatal error of the idempotent producer: only a new producer can continue.
            raise UnreachableError(
                f"broker {self._settings.brokers}: {explain(error)}; start the producer again"
            ) from None
        return True

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._progress.acknowledged += 1
            self._moved = time.monotonic()
        else:
            self._progress.fail(error.str())

    def _report_line(self, label: dict[str, Any], error: KafkaError | None, message: Message) -> None:
        self._report(error, message)
        if error is None and self._acks and message.offset() is not None:  # unknown if the first answer was lost
            self._acks.write(json.dumps(describe_record(message) | label) + "\n")


def producer_settings(patience: float) -> dict[str, Any]:
    """Settings against loss, duplicates and reordering, with large compressed batches and the Java client's
    partitioner."""
    return {
        "enable.idempotence": True,
        # Else a record is lost if the broker refuses its batch while it becomes leader, and takes the batch behind it:
        # librdkafka then calls both delivered.
        "max.in.flight.requests.per.connection": 1,
        "compression.type": "zstd",
        "linger.ms": 20,
        "partitioner": "murmur2_random",
        # Longer than the timeout of `Delivery`, so that an outage ends with one line, not with records dropped silently
        # by librdkafka.
        "message.timeout.ms": int((patience + _SLACK_S) * 1000),
    }


def describe_record(message: Message) -> dict[str, Any]:
    """The record's coordinates and the hash of its value; a tombstone has no hash."""
    value = message.value()
    digest = hashlib.sha256(value).hexdigest() if value is not None else None
    return {"topic": message.topic(), "partition": message.partition(), "offset": message.offset(), "sha256": digest}


def open_acks(path: Path | None) -> TextIO | None:
    """The file of acknowledgements, opened for appending line by line. Raises ConfigurationError."""
    try:
        return path.open("a", buffering=1, encoding="utf-8") if path else None
    except OSError as error:
        raise ConfigurationError(f"PRODUCER_ACKS: cannot write {path}: {error.strerror}") from None
