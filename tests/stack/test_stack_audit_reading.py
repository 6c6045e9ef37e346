"""What the audit takes for all of a span: proof by an offset at or behind its end, never a partition's end before."""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer, TopicPartition, cimpl
from confluent_kafka.admin import AdminClient, NewTopic

from scripts.local.kafka import Kafka as Broker
from spark_app.audit.broker import Kafka
from spark_app.audit.source_records import Records
from spark_app.model.errors import UnreachableError
from spark_app.model.offsets import Span
from spark_app.settings.connections import KafkaSettings

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
ALL = 1 << 40  # bytes
MOST = 1 << 20  # bytes of a value that is kept
GIANT = 300 << 20  # a broker counts it compressed: 30 KiB


@pytest.fixture
def topic(kafka: Broker) -> str:
    name = f"reading-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    return name


@pytest.fixture
def source(kafka: Broker) -> Iterator[Kafka]:
    with closing(Kafka(KafkaSettings(brokers=kafka.bootstrap), read_timeout_s=60.0, most=MOST)) as found:
        yield found


def send(kafka: Broker, topic: str, count: int, partition: int = 0, **options: str | int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap} | options)
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(20) == 0


def abort(kafka: Broker, topic: str, count: int) -> None:
    """So many records that nobody may read; their marker takes one offset more."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"aborted", partition=0)
    assert producer.flush(20) == 0
    producer.abort_transaction(20)


def send_with_header(kafka: Broker, topic: str, name: bytes) -> None:
    """One record, its header named by any bytes, as only C can."""
    library, failure = ctypes.CDLL(cimpl.__file__), ctypes.create_string_buffer(512)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = pointer
    conf = pointer(library.rd_kafka_conf_new())
    servers = (b"bootstrap.servers", kafka.bootstrap.encode())
    assert library.rd_kafka_conf_set(conf, *servers, failure, size(512)) == 0, failure.value
    producer = pointer(library.rd_kafka_new(0, conf, failure, size(512)))
    assert producer, failure.value
    to, value = (1, topic.encode(), 3, ctypes.c_int32(0)), (7, 2, 4, b"value", size(5))
    assert library.rd_kafka_producev(producer, *to, *value, 9, name, b"x", size(1), 0) == 0
    assert library.rd_kafka_flush(producer, 20_000) == 0
    library.rd_kafka_destroy(producer)


def identities(records: Records) -> list[tuple[int, int]]:
    return sorted(zip(records.partition, records.offset, strict=True))


def test_spans_end_where_they_are_set_to(kafka: Broker, topic: str, source: Kafka) -> None:
    send(kafka, topic, 30)
    send(kafka, topic, 20, partition=1)
    wanted = [Span(topic, 0, 5, 20), Span(topic, 1, 0, 20)]
    records, read = source.read(wanted, ALL)
    assert read == wanted
    assert identities(records) == [*((0, o) for o in range(5, 20)), *((1, o) for o in range(20))]
    records, read = source.read([Span(topic, 0, 20, 30)], ALL)
    assert identities(records) == [(0, o) for o in range(20, 30)]


def test_a_span_may_end_in_records_that_nobody_can_read(kafka: Broker, topic: str, source: Kafka) -> None:
    send(kafka, topic, 5)
    abort(kafka, topic, 5)
    for end in (5, 8, 10, 11):
        records, read = source.read([Span(topic, 0, 0, end)], ALL)
        assert (identities(records), read) == ([(0, o) for o in range(5)], [Span(topic, 0, 0, end)])


@pytest.mark.parametrize("start", [0, 10, 12])
def test_a_broker_that_stays_behind_is_named(kafka: Broker, topic: str, start: int) -> None:
    send(kafka, topic, 10)
    with (
        closing(Kafka(KafkaSettings(brokers=kafka.bootstrap), read_timeout_s=3.0, most=MOST)) as source,
        pytest.raises(UnreachableError, match=rf"is behind: {topic}/0 ends at 10 there, .* up to 15"),
    ):
        source.read([Span(topic, 0, start, 15)], ALL)


@pytest.mark.parametrize("start", [0, 10, 12])
def test_a_broker_that_catches_up_is_waited_for(kafka: Broker, topic: str, start: int) -> None:
    send(kafka, topic, 10)
    late = threading.Thread(target=lambda: (time.sleep(1.5), send(kafka, topic, 5)))
    late.start()
    with closing(Kafka(KafkaSettings(brokers=kafka.bootstrap), read_timeout_s=30.0, most=MOST)) as source:
        records, read = source.read([Span(topic, 0, start, 15)], ALL)
    late.join()
    assert (identities(records), read) == ([(0, o) for o in range(start, 15)], [Span(topic, 0, start, 15)])


def test_records_that_expire_meanwhile_are_passed_over(kafka: Broker, topic: str, source: Kafka) -> None:
    send(kafka, topic, 10)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(20)
    records, read = source.read([Span(topic, 0, 0, 10)], ALL)
    assert (identities(records), read) == ([(0, o) for o in range(6, 10)], [Span(topic, 0, 0, 10)])
    assert source.read([Span(topic, 0, 0, 6)], ALL)[1] == [Span(topic, 0, 0, 6)]


def test_what_was_read_ends_at_the_cap_on_bytes(kafka: Broker, topic: str, source: Kafka) -> None:
    send(kafka, topic, 100)
    records, (read,) = source.read([Span(topic, 0, 0, 100)], 1)
    assert 0 < read.end < 100
    assert identities(records) == [(0, o) for o in range(read.end)]


def test_a_record_that_is_far_larger_than_a_fetch_is_read(kafka: Broker, topic: str, source: Kafka) -> None:
    send(kafka, topic, 3)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "compression.type": "zstd", "message.max.bytes": 1_000_000_000}
    )
    producer.produce(topic, bytes(GIANT), partition=0)
    assert producer.flush(60) == 0
    send(kafka, topic, 3)
    records, read = source.read([Span(topic, 0, 0, 7)], ALL)
    assert (identities(records), read) == ([(0, o) for o in range(7)], [Span(topic, 0, 0, 7)])
    assert records.value[3] is None
    assert records.omitted == {3: (GIANT, hashlib.sha256(bytes(GIANT)).hexdigest())}


def test_a_header_whose_name_is_no_text_ends_no_audit(kafka: Broker, topic: str, source: Kafka) -> None:
    send_with_header(kafka, topic, b"\xff\xfe")
    send_with_header(kafka, topic, "größe".encode())
    records, _ = source.read([Span(topic, 0, 0, 2)], ALL)
    assert identities(records) == [(0, 0), (0, 1)]
    assert records.headers == [None, [("größe", b"x")]]
