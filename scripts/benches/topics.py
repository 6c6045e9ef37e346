"""Fills a topic: all records differ, with bytes from Google's classes in Confluent's frames.

Records are made in blocks, in parallel in as many processes as there are cores, and sent as they are made: no process
holds more than a block.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from scripts.benches import messages
from scripts.benches.events import SEED, Events
from scripts.benches.shape import Shape

BLOCK = 10_000  # records
FRAME = 6  # bytes before the payload: magic byte, schema id, and one for the message index of the first message
TORN = b"\xff" * 11  # a tag without an end, which every parser rejects
FLUSH_S = 60.0
BATCH_BYTES = 1 << 20
Record = tuple[bytes, bytes, bool]  # key, value, True if it is bad


@dataclass(frozen=True)
class Contents:
    """The sent records: `bad` of them are not events; `value_bytes` is the size of all values."""

    records: int = 0
    bad: int = 0
    value_bytes: int = 0

    def __add__(self, other: Contents) -> Contents:
        bytes_ = self.value_bytes + other.value_bytes
        return Contents(self.records + other.records, self.bad + other.bad, bytes_)


class Maker:
    """Makes the records of a topic.

    Args:
        heads: the bytes that the serializer puts before a payload, for each version.
    """

    def __init__(self, shape: Shape, heads: list[bytes]):
        self._shape, self._heads = shape, heads
        kinds = [messages.compile_version(shape.message, number)[1] for number in range(1, len(heads) + 1)]
        self._events = Events(shape, kinds)

    def block(self, number: int) -> Iterator[Record]:
        """`BLOCK` records that no other block contains; the same number gives the same records."""
        dice = random.Random(SEED * BLOCK + number)
        for version, event in self._events.play(range(number * BLOCK, (number + 1) * BLOCK), dice):
            value, is_bad = self._heads[version] + event.SerializeToString(), dice.random() < self._shape.bad
            yield event.gamer_id.encode(), value + TORN if is_bad else value, is_bad

    def records(self) -> Iterator[Record]:
        """Endless records."""
        for number in count():
            yield from self.block(number)


def fill(brokers: str, registry: str, topic: str, shape: Shape, batch_bytes: int = BATCH_BYTES) -> Contents:
    """Create the topic, register the schemas, send the records."""
    _create(brokers, topic, shape.partitions)
    return send(brokers, registry, topic, shape, batch_bytes=batch_bytes)


def send(
    brokers: str, registry: str, topic: str, shape: Shape, first: int = 0, batch_bytes: int = BATCH_BYTES
) -> Contents:
    """Send the records from a block on, as fast as the broker accepts them.

    Args:
        batch_bytes: the largest batch of the producer.
    """
    heads = register(registry, topic, shape)
    blocks = range(-(-shape.records // BLOCK))
    lanes = min(len(blocks), os.cpu_count() or 1)
    if lanes == 1:
        return _send(brokers, topic, shape, heads, blocks, first, batch_bytes)
    with ProcessPoolExecutor(lanes, multiprocessing.get_context("spawn")) as pool:
        shares = [blocks[lane::lanes] for lane in range(lanes)]
        parts = [pool.submit(_send, brokers, topic, shape, heads, share, first, batch_bytes) for share in shares]
        return sum((part.result() for part in parts), Contents())


def maker(registry: str, topic: str, shape: Shape) -> Maker:
    """A maker for records that are not sent with `send`; their schemas are registered."""
    return Maker(shape, register(registry, topic, shape))


def register(registry: str, topic: str, shape: Shape) -> list[bytes]:
    """Register each version; returns the bytes before its payloads, made by the official serializer."""
    client = SchemaRegistryClient.new_client({"url": registry})
    client.set_compatibility(f"{topic}-value", "NONE")
    return [_head(client, topic, shape.message, number) for number in range(1, shape.versions + 1)]


def _head(client: SchemaRegistryClient, topic: str, message: str, number: int) -> bytes:
    _, kind = messages.compile_version(message, number)
    file = b64encode(kind.DESCRIPTOR.file.serialized_pb).decode()
    client.register_schema(f"{topic}-value", Schema(file, "PROTOBUF", []))
    settings = {"auto.register.schemas": False, "subject.name.strategy.type": "TOPIC"}
    serialize: Any = ProtobufSerializer(kind, client, settings)
    frame: bytes = serialize(kind(), SerializationContext(topic, MessageField.VALUE))
    assert len(frame) == FRAME  # an empty event has no payload, so the frame is only the head
    return frame


def _send(
    brokers: str, topic: str, shape: Shape, heads: list[bytes], blocks: range, first: int, batch_bytes: int
) -> Contents:
    """Send some of the topic's blocks, which begin with `first`."""
    options = {"bootstrap.servers": brokers, "linger.ms": 50, "batch.size": batch_bytes, "log_level": 0}
    producer = Producer(options | {"queue.buffering.max.messages": 100_000, "compression.type": "lz4"})
    made, sent = Maker(shape, heads), Contents()
    for number in blocks:
        block = list(islice(made.block(first + number), shape.records - number * BLOCK))
        for key, value, _ in block:
            _produce(producer, topic, key, value)
        bad, size = sum(is_bad for _, _, is_bad in block), sum(len(value) for _, value, _ in block)
        sent += Contents(len(block), bad, size)
    _flush(producer)
    return sent


def _produce(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
    while True:
        try:
            return producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.1)


def _flush(producer: Producer) -> None:
    left, deadline = len(producer), time.monotonic() + FLUSH_S
    while left and time.monotonic() < deadline:
        left = producer.flush(1)
    if left:
        raise TimeoutError(f"{left:,} records were not acknowledged within {FLUSH_S:.0f} s")


def _create(brokers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    made = NewTopic(topic, partitions, config={"retention.bytes": "-1", "retention.ms": "-1"})
    admin.create_topics([made], operation_timeout=10)[topic].result(20)
