"""The worker's own consumer on a real broker, against what confluent-kafka's consumer reads."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from scripts.local.kafka import Kafka
from spark_app.model.offsets import ReadFailed, ReadFailure, Span
from spark_app.model.record_schemas import SOURCE_SCHEMA
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import consumer
from spark_app.sources.kafka import input as kafka_input
from spark_app.sources.kafka.consumer import Consumer as OwnConsumer
from tests.chaos.stage import wait_until

pytestmark = pytest.mark.stack
MOST = 50_000, 16 << 20, 128 << 20
HEADERS: list[Any] = [
    None,
    [("trace", b"\x00\xffab")],
    [("a", b"1"), ("b", None), ("a", b""), ('qu"o\\te\n\x01', b"22"), ("käse 🧀", b"333")],
    [("__value_schema_id", b"\x00\x00\x00\x00\x01\x00")],
]
VALUES: list[bytes | None] = [b"", None, b"x", bytes(range(256)) * 50]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return make_topic(kafka.bootstrap)


def make_topic(brokers: str, partitions: int = 1, **settings: str) -> str:
    name = f"t{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(20)
    # For a moment after a topic is made, the broker may answer clients as if it were not there.
    wait_until(lambda: len(admin.list_topics(name, 10).topics[name].partitions) == partitions, "the topic", 20)
    return name


@pytest.fixture
def own(kafka: Kafka) -> Iterator[OwnConsumer]:
    with contextlib.closing(new_consumer(kafka)) as opened:
        yield opened


def new_consumer(kafka: Kafka, partitions: int = 1) -> OwnConsumer:
    return OwnConsumer(kafka_input.options_for(KafkaSettings(brokers=kafka.bootstrap), partitions))


def refusal(kafka: Kafka, span: Span) -> ReadFailed:
    """Why a new consumer cannot read the span."""
    with contextlib.closing(new_consumer(kafka)) as opened, pytest.raises(ReadFailed) as unread:
        read(opened, span)
    return unread.value


def send(brokers: str, topic: str, values: Sequence[bytes | None], partition: int = 0, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": brokers, "message.max.bytes": 1_000_000_000, **options})
    now = int(time.time() * 1000)  # Kafka removes what is old
    for number, value in enumerate(values):
        headers = HEADERS[number % len(HEADERS)]
        key = None if number % 3 == 0 else b"" if number % 3 == 1 else b"key %d" % number
        producer.produce(topic, value, key, partition, headers=headers, timestamp=now - number)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def expected(brokers: str, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    """All records of a partition, by the official client."""
    options = {"bootstrap.servers": brokers, "group.id": "other", "enable.partition.eof": True}
    client = Consumer(options | {"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    client.assign([TopicPartition(topic, partition, 0)])
    found = []
    while True:
        message = client.poll(10)
        assert message is not None
        if message.error() is not None:
            client.close()
            return found
        found.append(row(message))


def row(message: Message) -> dict[str, Any]:
    kind, millis = message.timestamp()
    types = {TIMESTAMP_NOT_AVAILABLE: -1, TIMESTAMP_LOG_APPEND_TIME: 1}
    return {
        "key": message.key(),
        "value": message.value(),
        "headers": [
            {"key": key} if value is None else {"key": key, "value": base64.b64encode(value).decode()}
            for key, value in message.headers() or []
        ]
        or None,
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": millis * 1000,
        "timestamp_type": types.get(kind, 0),
    }


def read(own: OwnConsumer, *spans: Span, most: tuple[int, int, int] = MOST) -> list[dict[str, Any]]:
    batches = list(own.read(spans, *most))
    assert all(batch.schema.equals(SOURCE_SCHEMA) for batch in batches)
    rows = pa.Table.from_batches(batches, SOURCE_SCHEMA)
    rows = rows.set_column(6, "timestamp", rows["timestamp"].cast(pa.int64()))
    parsed = rows.to_pylist()
    for one in parsed:
        one["headers"] = None if one["headers"] is None else json.loads(one["headers"])
    return parsed


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_byte_is_what_the_official_client_reads(kafka: Kafka, own: OwnConsumer, compression: str) -> None:
    topic = make_topic(kafka.bootstrap, 2)
    for partition in (0, 1):
        send(kafka.bootstrap, topic, VALUES * 100, partition, **{"compression.type": compression})
    for partition in (0, 1):
        assert read(own, Span(topic, partition, 0, 400)) == expected(kafka.bootstrap, topic, partition)


def test_timestamps_of_the_broker_are_distinguished(kafka: Kafka, own: OwnConsumer) -> None:
    topic = make_topic(kafka.bootstrap, **{"message.timestamp.type": "LogAppendTime"})
    send(kafka.bootstrap, topic, [b"a", b"b"])
    found = read(own, Span(topic, 0, 0, 2))
    assert found == expected(kafka.bootstrap, topic)
    assert {one["timestamp_type"] for one in found} == {1}


def test_timestamps_that_readers_fail_on_are_bounded_and_their_numbers_kept(kafka: Kafka, own: OwnConsumer) -> None:
    forever = {f"message.timestamp.{way}.max.ms": str(2**63 - 1) for way in ("before", "after")}
    topic = make_topic(kafka.bootstrap, **forever)
    sent = [1_700_000_000_000_000_000, 253_402_300_799_999, 1_700_000_000_000, 2**63 - 1]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for millis in sent:
        producer.produce(topic, b"v", timestamp=millis)
    assert producer.flush(60) == 0
    [batch] = own.read([Span(topic, 0, 0, 4)], *MOST)
    assert [moment.year for moment in batch.column("timestamp").to_pylist()] == [9999, 9999, 2023, 9999]
    assert batch.column("timestamp_number").to_pylist() == [sent[0], None, None, sent[3]]
    assert {moment.year for moment in pl.from_arrow(batch)["timestamp"]} == {9999, 2023}


def test_batches_are_bounded_by_records_and_by_bytes_but_for_one_record(
    kafka: Kafka, own: OwnConsumer, topic: str
) -> None:
    sizes = [10, 10, 10, 5000, 10, 900, 900, 10]
    send(kafka.bootstrap, topic, [bytes(size) for size in sizes], **{"compression.type": "none"})
    span = Span(topic, 0, 0, len(sizes))
    by_bytes = [[len(value) for value in b.column("value").to_pylist()] for b in own.read([span], 100, 1000, 1 << 20)]
    assert by_bytes == [[10, 10, 10], [5000], [10, 900], [900, 10]]
    assert [b.num_rows for b in own.read([span], 3, 1 << 20, 1 << 20)] == [3, 3, 2]
    assert read(own, span, most=(3, 1000, 1 << 20)) == expected(kafka.bootstrap, topic)


def test_headers_count_among_the_bytes_of_a_batch(kafka: Kafka, own: OwnConsumer, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for size in (10, 900, 3000, 500, 400):
        producer.produce(topic, b"", partition=0, headers=[("blob", bytes(size)), ("none", None)])
    assert producer.flush(60) == 0
    found = [batch.num_rows for batch in own.read([Span(topic, 0, 0, 5)], 100, 1000, 1 << 20)]
    assert found == [2, 1, 2]
    assert read(own, Span(topic, 0, 0, 5), most=(100, 1000, 1 << 20)) == expected(kafka.bootstrap, topic)


def test_of_a_value_over_the_limit_there_are_size_and_digest(kafka: Kafka, own: OwnConsumer, topic: str) -> None:
    large = os.urandom(2000)
    send(kafka.bootstrap, topic, [b"a", large, None, bytes(1000)])
    (batch,) = own.read([Span(topic, 0, 0, 4)], 100, 1 << 20, 1000)
    assert batch.column("value").to_pylist() == [b"a", None, None, bytes(1000)]
    assert batch.column("omitted_bytes").to_pylist() == [None, 2000, None, None]
    assert batch.column("omitted_sha256").to_pylist() == [None, hashlib.sha256(large).hexdigest(), None, None]
    assert batch.column("key").to_pylist() == [None, b"", b"key 2", None]


def test_spans_that_follow_go_back_or_jump_are_read_alike(kafka: Kafka, own: OwnConsumer) -> None:
    """Whatever is at hand of other spans, by this consumer or another, as where partitions move between workers."""
    topic, count = make_topic(kafka.bootstrap, 3), 3000
    for partition in range(3):
        send(kafka.bootstrap, topic, [b"%d/%d" % (partition, number) for number in range(count)], partition)
    whole = {partition: expected(kafka.bootstrap, topic, partition) for partition in range(3)}
    other, dice = new_consumer(kafka, 3), random.Random(1)
    for _ in range(150):
        spans = []
        for partition in dice.sample(range(3), dice.randint(1, 3)):
            first = dice.randrange(count)
            spans.append(Span(topic, partition, first, dice.randint(first + 1, count)))
        wanted = [one for span in spans for one in whole[span.partition][span.start : span.end]]
        assert read(dice.choice([own, other]), *spans) == wanted
    other.close()


def test_what_comes_later_is_read_by_the_same_consumer(kafka: Kafka, own: OwnConsumer, topic: str) -> None:
    """The end of the partition was seen before, and is no news."""
    for first in range(0, 50, 10):
        send(kafka.bootstrap, topic, [b"%d" % number for number in range(first, first + 10)])
        time.sleep(0.2)
        assert read(own, Span(topic, 0, first, first + 10)) == expected(kafka.bootstrap, topic)[first:]


@pytest.fixture
def transactional(kafka: Kafka) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(20)
    return producer


def test_ranges_of_aborted_records_end_with_nothing_behind(
    kafka: Kafka, own: OwnConsumer, topic: str, transactional: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "BEHIND_S", 60.0)  # not even a busy machine needs as long without waiting for it
    ends: list[int] = []
    for number, commit in enumerate([True, False, False, True, False]):
        transactional.begin_transaction()
        for value in range(5):
            transactional.produce(topic, b"%d/%d" % (number, value), partition=0)
        transactional.flush()
        (transactional.commit_transaction if commit else transactional.abort_transaction)(20)
        ends.append(6 * number + 6)  # five records and a marker, which comes a moment later
        while end_of(kafka.bootstrap, topic) < ends[-1]:
            time.sleep(0.05)
    whole = expected(kafka.bootstrap, topic)
    assert [one["offset"] for one in whole] == [*range(5), *range(18, 23)]
    start = 0
    for end in ends:
        began = time.monotonic()
        assert read(own, Span(topic, 0, start, end)) == [one for one in whole if start <= one["offset"] < end]
        assert time.monotonic() - began < consumer.BEHIND_S
        start = end
    for first in range(30):
        assert read(own, Span(topic, 0, first, 30)) == [one for one in whole if one["offset"] >= first]
        assert read(own, Span(topic, 0, first, first + 1)) == [one for one in whole if one["offset"] == first]


def end_of(brokers: str, topic: str) -> int:
    client = Consumer({"bootstrap.servers": brokers, "group.id": "other"})
    end = client.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
    client.close()
    return int(end)


def test_a_transaction_that_is_open_is_an_end_that_is_behind(
    kafka: Kafka, own: OwnConsumer, topic: str, transactional: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "BEHIND_S", 0.5)
    send(kafka.bootstrap, topic, [b"a", b"b"])
    transactional.begin_transaction()
    transactional.produce(topic, b"c", partition=0)
    transactional.flush()
    unread = refusal(kafka, Span(topic, 0, 0, 3))
    assert (unread.why, unread.what) == (ReadFailure.BEHIND, f"{topic}/0 at 2 of 0 to 3: the partition ends there")
    transactional.commit_transaction(20)
    while end_of(kafka.bootstrap, topic) < 4:  # the marker comes a moment later
        time.sleep(0.05)
    assert [one["value"] for one in read(own, Span(topic, 0, 2, 4))] == [b"c"]


@pytest.mark.nightly
def test_an_end_that_was_seen_long_ago_proves_nothing_of_what_is_planned_now(
    kafka: Kafka, own: OwnConsumer, topic: str, transactional: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records come while they are waited for, as from a broker that is slow. Where a marker stands last, the end
    has to be seen for a span to be read."""
    monkeypatch.setattr(consumer, "BEHIND_S", 15.0)
    transactional.begin_transaction()
    transactional.produce(topic, b"a", partition=0)
    transactional.commit_transaction(20)
    while end_of(kafka.bootstrap, topic) < 2:
        time.sleep(0.05)
    assert [one["value"] for one in read(own, Span(topic, 0, 0, 2))] == [b"a"]
    time.sleep(consumer.BEHIND_S + 0.5)
    late = threading.Timer(1.0, lambda: send(kafka.bootstrap, topic, [b"b"]))
    late.start()
    assert [one["value"] for one in read(own, Span(topic, 0, 2, 3))] == [b"b"]
    late.join()


@pytest.mark.nightly
def test_compacted_records_are_gaps(kafka: Kafka, own: OwnConsumer) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}
    topic = make_topic(kafka.bootstrap, **settings, **{"delete.retention.ms": "0", "max.compaction.lag.ms": "100"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    deadline = time.monotonic() + 90
    while end_of(kafka.bootstrap, topic) == len(expected(kafka.bootstrap, topic)):
        assert time.monotonic() < deadline, "the broker has compacted nothing"
        for number in range(20):
            producer.produce(topic, b"%d" % number, b"k", 0)
            producer.flush()
        time.sleep(1)
    end, whole = end_of(kafka.bootstrap, topic), expected(kafka.bootstrap, topic)
    assert read(own, Span(topic, 0, 0, end)) == [one for one in whole if one["offset"] < end]


def test_an_end_below_the_plan_is_a_broker_that_is_behind(
    kafka: Kafka, own: OwnConsumer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(kafka.bootstrap, topic, [b"a", b"b"])
    monkeypatch.setattr(consumer, "BEHIND_S", 1.0)
    unread = refusal(kafka, Span(topic, 0, 0, 3))
    assert (unread.why, unread.what) == (ReadFailure.BEHIND, f"{topic}/0 at 2 of 0 to 3: the partition ends there")
    monkeypatch.setattr(consumer, "BEHIND_S", 30.0)
    late = threading.Timer(0.5, lambda: send(kafka.bootstrap, topic, [b"c"]))
    late.start()
    assert len(read(own, Span(topic, 0, 0, 3))) == 3
    late.join()


def test_records_that_kafka_no_longer_has_are_a_loss(kafka: Kafka, own: OwnConsumer, topic: str) -> None:
    send(kafka.bootstrap, topic, [b"%d" % number for number in range(10)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result()
    for span in (Span(topic, 0, 0, 10), Span(topic, 0, 3, 4), Span(topic, 0, 11, 12)):
        unread = refusal(kafka, span)
        assert (unread.why, f"{topic}/0 at {span.start} of" in str(unread)) == (ReadFailure.LOST, True)
    assert len(read(own, Span(topic, 0, 4, 10))) == 6


@pytest.mark.nightly
def test_a_topic_that_is_not_there_is_reported(kafka: Kafka) -> None:
    unread = refusal(kafka, Span("nowhere", 0, 0, 1))
    assert unread.why == ReadFailure.SILENT
    assert "nowhere/0 at 0" in str(unread)
    assert "unknown topic" in str(unread).lower()


def test_a_broker_that_stops_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Kafka(tmp_path) as kafka:
        topic = make_topic(kafka.bootstrap)
        values = [os.urandom(10_000) for _ in range(5000)]  # more than is fetched beforehand
        send(kafka.bootstrap, topic, values)
        settings = KafkaSettings(brokers=kafka.bootstrap)
        part = kafka_input.Share(settings, (Span(topic, 0, 0, 5000),), 1, 100, 1 << 20, 1 << 20)
        batches = part.read()
        first = next(batches)
        pid = kafka.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with monkeypatch.context() as short:
                short.setattr(consumer, "PATIENCE_S", 2.0)
                with pytest.raises(ReadFailed, match=r"no answer for \d s") as unread:
                    list(batches)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (unread.value.why, kafka_input._kept) == (ReadFailure.SILENT, {})
        assert first.column("value").to_pylist() == values[:100]
        assert [value for batch in part.read() for value in batch.column("value").to_pylist()] == values
        kafka_input.close()


def test_what_talks_nonsense_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "PATIENCE_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.sendall(os.urandom(4096))
                connection.close()

        threading.Thread(target=babble, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        opened = OwnConsumer(kafka_input.options_for(KafkaSettings(brokers=address), 1))
        with pytest.raises(ReadFailed, match=r"t/0 at 0 of 0 to 1") as unread:
            read(opened, Span("t", 0, 0, 1))
        assert unread.value.why == ReadFailure.SILENT
        assert unread.value.errors
        opened.close()


def test_nothing_is_left_of_a_closed_consumer(kafka: Kafka, topic: str) -> None:
    send(kafka.bootstrap, topic, [os.urandom(1000) for _ in range(2000)])
    before = len(os.listdir("/proc/self/task"))
    for _ in range(5):
        opened = new_consumer(kafka)
        next(opened.read([Span(topic, 0, 0, 2000)], 10, 1 << 20, 1 << 20))
        opened.close()
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= before, "the end of all threads", 10)


def test_a_share_with_a_limit_reads_no_more(kafka: Kafka, topic: str) -> None:
    send(kafka.bootstrap, topic, [b"%d" % number for number in range(100)])
    part = kafka_input.Share(KafkaSettings(brokers=kafka.bootstrap), (Span(topic, 0, 0, 100),), 1, 30, 1 << 20, 1 << 20)
    assert [batch.num_rows for batch in part.limited(40).read()] == [30, 10]
    assert [batch.num_rows for batch in part.read()] == [30, 30, 30, 10]
    kafka_input.close()
