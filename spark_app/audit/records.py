"""The records themselves: what a read_committed consumer reads, or, of what Kafka no longer has, what bronze keeps."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from spark_app.audit.frames import Header
from spark_app.errors import ConfigurationError, ProtolakeError, UnreachableError
from spark_app.kafka.client import ANSWER_S, client_options, silent
from spark_app.records import Span
from spark_app.settings import KafkaSettings

AT_ONCE = 10_000
PREFETCHED = {"queued.min.messages": 20_000, "queued.max.messages.kbytes": 32_768}
NO_TYPE = -1
TYPES = {0: NO_TYPE, 1: 0, 2: 1}  # librdkafka's types of a timestamp -> Kafka's


@dataclass
class Records:
    """Records of one topic, one entry each. Times are in microseconds since 1970, their types as in Kafka."""

    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    key: list[bytes | None] = field(default_factory=list)
    value: list[bytes | None] = field(default_factory=list)
    headers: list[Sequence[Header]] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    time_type: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offset)

    def add_bronze(self, rows: pa.Table) -> None:
        """What bronze keeps of records."""
        self.partition += rows["partition"].to_pylist()
        self.offset += rows["offset"].to_pylist()
        self.key += rows["key"].to_pylist()
        self.value += rows["value"].to_pylist()
        self.headers += [headers_of(text) or [] for text in rows["headers"].to_pylist()]
        self.time += rows["timestamp"].cast(pa.int64()).to_pylist()
        self.time_type += [NO_TYPE if kind is None else kind for kind in rows["timestamp_type"].to_pylist()]


def headers_of(text: str | None) -> list[Header] | None:
    """The headers that bronze keeps as JSON; one without a value has None. None for what is damaged."""
    try:
        found = json.loads(text) if text else []
        return [(h["key"], base64.b64decode(h["value"]) if h.get("value") is not None else None) for h in found]
    except (ValueError, KeyError, TypeError):
        return None


class Source(Protocol):
    """Whoever still has the records of a topic."""

    def topic_id(self, topic: str) -> str | None:
        """None when there is no such topic."""

    def is_compacted(self, topic: str) -> bool: ...

    def kept(self, topic: str, partition: int) -> int:
        """The first offset that is still there."""

    def ends(self, topic: str) -> dict[int, int]:
        """Partition -> the offset after its last readable record."""

    def read(self, spans: Sequence[Span], most_bytes: int) -> tuple[Records, list[Span]]:
        """The records, and those of the spans that were read: fewer than were asked for beyond `most_bytes`."""


class Kafka:
    """The brokers of the settings."""

    def __init__(self, settings: KafkaSettings, patience: float):
        self._brokers = settings.brokers
        self._patience = patience
        self._said: list[KafkaError] = []
        options = client_options(settings)
        self._admin = AdminClient(options | {"error_cb": self._said.append}, logger=silent())
        self._consumer = Consumer(
            options
            | PREFETCHED
            | {
                "group.id": "protolake-audit",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
            logger=silent(),
        )

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
            return False  # not everybody may ask
        return "compact" in found["cleanup.policy"].value

    def kept(self, topic: str, partition: int) -> int:
        return self._bounds(topic, partition)[0]

    def ends(self, topic: str) -> dict[int, int]:
        try:
            partitions = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
        except KafkaException as error:
            raise self._unreachable(error) from None
        return {partition: self._bounds(topic, partition)[1] for partition in partitions}

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
        except KafkaException as error:
            raise self._unreachable(error) from None
        return int(low), int(high)

    def read(self, spans: Sequence[Span], most_bytes: int) -> tuple[Records, list[Span]]:
        records, left = Records(), {span.partition: span for span in spans}
        at = {span.partition: span.start for span in spans}
        self._consumer.assign([TopicPartition(s.topic, s.partition, s.start) for s in spans])
        moved = time.monotonic()
        while left and most_bytes > 0:
            messages = self._consumer.consume(AT_ONCE, timeout=1.0)
            if messages:
                moved = time.monotonic()
            elif time.monotonic() - moved > self._patience:
                raise UnreachableError(f"broker {self._brokers}: no record for {self._patience:.0f} s; is it up?")
            for message in messages:
                span = left.get(_number(message.partition()))
                if span is None:
                    continue
                at[span.partition], taken = self._take(records, message, span)
                most_bytes -= taken
                if at[span.partition] >= span.end:
                    self._consumer.incremental_unassign([TopicPartition(span.topic, span.partition)])
                    del left[span.partition]
        self._consumer.unassign()
        return records, [Span(s.topic, s.partition, s.start, at[s.partition]) for s in spans]

    def _take(self, records: Records, message: Message, span: Span) -> tuple[int, int]:
        """(the offset after the message, the end of the span if there is nothing more of it; bytes taken)."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise UnreachableError(f"broker {self._brokers}: {error.str()}")
        offset = span.end if error is not None else _number(message.offset())
        return (offset + 1, _add(records, message)) if offset < span.end else (span.end, 0)

    def _unreachable(self, error: KafkaException) -> ProtolakeError:
        self._admin.poll(0)  # calls back with what was said meanwhile
        refused = [said.str() for said in self._said if said.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)]
        if refused:
            return ConfigurationError(f"kafka: {self._brokers} refuses the login ({refused[0]}): check kafka.sasl_*")
        return UnreachableError(f"broker {self._brokers} did not answer ({error.args[0].str()}): is it up?")


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _add(records: Records, message: Message) -> int:
    """Keep a message; its bytes."""
    kind, millis = message.timestamp()
    key, value = message.key(), message.value()
    headers: Any = message.headers() or ()
    records.partition.append(_number(message.partition()))
    records.offset.append(_number(message.offset()))
    records.key.append(key)
    records.value.append(value)
    records.headers.append(headers)
    records.time.append(millis * 1000)
    records.time_type.append(TYPES[kind])
    return len(key or b"") + len(value or b"")
