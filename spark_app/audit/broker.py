"""Reads spans from the brokers with a read_committed consumer, and proves that each span is complete.

A span is complete once the consumer has seen a record, or the end of the partition, at or after the span's end: offsets
have gaps, so a count proves nothing. If the partition ends earlier, the broker lags behind its replicas, and more
records may come.
"""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from spark_app.audit.source_records import NO_TYPE, Records
from spark_app.model.errors import ConfigurationError, ProtolakeError, UnreachableError
from spark_app.model.offsets import Span
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import broker_access
from spark_app.sources.kafka.client import ANSWER_S, client_options, silent

AT_ONCE = 10_000
BYTES_AT_ONCE = 32 << 20  # about, if all messages are as large as the largest of the last poll
POLL_S = 0.2
RETRY_S = 0.5
READING = {
    "group.id": "protolake-audit",  # librdkafka requires one; no offset is committed to it
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,  # librdkafka's default of 1 s after each full queue makes reading ten times slower
    "fetch.message.max.bytes": 128 << 10,  # per fetch and partition: 1 MiB of compressed records may unpack to 300 MiB
    "receive.message.max.bytes": 2**31 - 1,  # also limits the unpacked size of a batch
}
# Called in this way because the client returns a result although it has failed: Python notices that here, but not in a
# plain `message.headers()` that it has specialized; the error would then surface in a later line.
_read_headers = operator.methodcaller("headers")
TYPES = {0: NO_TYPE, 1: 0, 2: 1}  # timestamp type: librdkafka's number -> Kafka's number


class Kafka:
    """The brokers of the settings, as a `Source`."""

    def __init__(self, settings: KafkaSettings, read_timeout_s: float, most: int):
        """
        Args:
            patience: timeout in seconds for the next record.
            most: largest value in bytes; a larger one is replaced by its size and hash, which bounds memory.
        """
        self._most = most
        self._settings = settings
        self._brokers = settings.brokers
        self._read_timeout_s = read_timeout_s
        self._errors: deque[KafkaError] = deque(maxlen=20)
        options = client_options(settings)
        self._admin = AdminClient(options | {"error_cb": self._errors.append}, logger=silent())
        self._consumer = Consumer(options | READING, logger=silent())

    def close(self) -> None:
        self._consumer.close()

    def topic_id(self, topic: str) -> str | None:
        try:
            described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_S)
            return str(described[topic].result().topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._unreachable(error) from None

    def is_compacted(self, topic: str) -> bool:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            found = self._admin.describe_configs([resource], request_timeout=ANSWER_S)[resource].result()
        except KafkaException:
            return False  # the user may lack the ACL DescribeConfigs
        return "compact" in found["cleanup.policy"].value

    def kept(self, topic: str, partition: int) -> int:
        return self._bounds(topic, partition)[0]

    def ends(self, topic: str) -> dict[int, int]:
        try:
            partitions = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
        except KafkaException as error:
            raise self._unreachable(error) from None
        return {
            partition: self._bounds(topic, partition)[1]
            for partition in partitions
            if self._settings.includes(partition)
        }

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
        except KafkaException as error:
            raise self._unreachable(error) from None
        return int(low), int(high)

    def read(self, spans: Sequence[Span], most_bytes: int) -> tuple[Records, list[Span]]:
        """
        Raises:
            UnreachableError: nothing new came for as long as the read_timeout_s is, or the broker says an error.
        """
        records, at = Records(), {span.partition: span.start for span in spans}
        left = {span.partition: span for span in spans}
        self._consumer.assign([TopicPartition(s.topic, s.partition, s.start) for s in spans])
        moved, at_once = time.monotonic(), 1
        while left and most_bytes > 0:
            before, largest = dict(at), 0
            messages = self._consumer.consume(at_once, timeout=POLL_S)
            for message in messages:
                span = left.get(_number(message.partition()))
                if span is not None:
                    size = self._add_message(records, message, span, at)
                    most_bytes, largest = most_bytes - size, max(largest, size)
                    if at[span.partition] >= span.end:
                        self._consumer.incremental_unassign([TopicPartition(span.topic, span.partition)])
                        del left[span.partition]
            if messages:  # an empty poll says nothing about their size
                at_once = max(1, min(AT_ONCE, 10 * at_once, BYTES_AT_ONCE // max(largest, 1)))
            if at != before:
                moved = time.monotonic()
            elif time.monotonic() - moved > self._read_timeout_s:
                raise self._behind(left.values(), at)
        self._consumer.unassign()
        return records, [Span(s.topic, s.partition, s.start, at[s.partition]) for s in spans]

    def _add_message(self, records: Records, message: Message, span: Span, at: dict[int, int]) -> int:
        """Add a record of the span and set in `at` the offset before which the partition is completely read; returns
        the record's bytes."""
        error, offset = message.error(), _number(message.offset())
        if error is None and at[span.partition] <= offset < span.end:
            at[span.partition] = offset + 1
            return _add(records, message, self._most)
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            at[span.partition] = max(at[span.partition], min(offset, span.end))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._begin_again(span, at)
        else:
            raise self._unreachable(KafkaException(error))
        return 0

    def _begin_again(self, span: Span, at: dict[int, int]) -> None:
        """Handle an offset that the broker does not have: the records expired, or the broker lags behind."""
        kept = self.kept(span.topic, span.partition)
        if kept <= at[span.partition]:
            time.sleep(RETRY_S)
        at[span.partition] = max(at[span.partition], min(kept, span.end))
        self._consumer.incremental_unassign([TopicPartition(span.topic, span.partition)])
        self._consumer.incremental_assign([TopicPartition(span.topic, span.partition, at[span.partition])])

    def _behind(self, left: Iterable[Span], at: dict[int, int]) -> UnreachableError:
        """The error for a timeout: a lagging broker, or one that sends no records."""
        for span in left:
            end = self._bounds(span.topic, span.partition)[1]
            if end < span.end:
                return UnreachableError(
                    f"broker {self._brokers} is behind: {span.topic}/{span.partition} ends at {end} there, but the "
                    f"lake has records up to {span.end}; audit again when its replicas have caught up"
                )
        some = ", ".join(f"{s.topic}/{s.partition} from {at[s.partition]}" for s in left)
        return UnreachableError(
            f"broker {self._brokers} sent no record of {some} for {self._read_timeout_s:.0f} s: is it up?"
        )

    def _unreachable(self, error: KafkaException) -> ProtolakeError:
        self._admin.poll(0)  # runs the error callbacks that are due
        reason: KafkaError = error.args[0]
        refused = broker_access.refusal([reason, *self._errors], self._settings)
        if refused:
            return ConfigurationError(f"kafka: {self._brokers} refuses access: {refused}")
        reason_text = broker_access.words(reason) + broker_access.no_token_note(self._errors, self._settings)
        return UnreachableError(f"broker {self._brokers} did not answer ({reason_text}): is it up?")


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _add(records: Records, message: Message, most: int) -> int:
    """Add a message, with size and hash instead of a value over `most` bytes; returns its bytes."""
    kind, millis = message.timestamp()
    key, value = message.key(), message.value()
    records.partition.append(_number(message.partition()))
    records.offset.append(_number(message.offset()))
    records.key.append(key)
    records.value.append(value)
    records.headers.append(_headers(message))
    records.add_time(millis)
    records.time_type.append(TYPES[kind])
    if len(value or b"") > most:
        records.leave_out(len(records) - 1)
    return len(key or b"") + len(value or b"")


def _headers(message: Message) -> Any:
    """The headers; None if a name is not UTF-8, because the client fails on such a name."""
    try:
        return _read_headers(message) or ()
    except (SystemError, UnicodeDecodeError):
        return None
