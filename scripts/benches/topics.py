"""A topic to measure with: frames of the official serializer, made once and sent over and over.

What differs from record to record is the key, which is the gamer; making every message anew would take longer than
what is to be measured.
"""

from __future__ import annotations

import random
import time
from base64 import b64encode
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from scripts.benches import messages
from scripts.benches.shape import Shape, game_names

POOL = 20_000  # frames
FRAME = 6  # bytes before the payload: magic byte, schema id, and one for the first message of the file
GAMERS = 1000
SEED = 7
TORN = b"\xff" * 11  # a tag that never ends: every parser refuses it
FLUSH_S = 60.0


def fill(brokers: str, registry: str, topic: str, shape: Shape) -> int:
    """Make the topic, register the schemas, send the records; how many of them are bad."""
    _create(brokers, topic, shape.partitions)
    pool = make_frames(registry, topic, shape)
    send(brokers, topic, pool, shape.records)
    bad = [is_bad for _, _, is_bad in pool]
    whole, rest = divmod(shape.records, len(pool))
    return whole * sum(bad) + sum(bad[:rest])


def make_frames(registry: str, topic: str, shape: Shape) -> list[tuple[bytes, bytes, bool]]:
    """Keys and values of a pool of records, and whether each is bad."""
    dice = random.Random(SEED)
    client = SchemaRegistryClient.new_client({"url": registry})
    client.set_compatibility(f"{topic}-value", "NONE")
    versions = [_version(client, topic, shape.message, n) for n in range(1, shape.versions + 1)]
    context = SerializationContext(topic, MessageField.VALUE)
    games = _draw_games(dice, shape)
    pool: list[tuple[bytes, bytes, bool]] = []
    for _ in range(min(POOL, shape.records)):
        kind, serialize = dice.choice(versions)
        event: Any = messages.fill(kind(), dice)
        event.game_name, event.gamer_id = next(games), f"gamer-{dice.randrange(GAMERS):06}"
        value, is_bad = serialize(event, context), dice.random() < shape.bad
        assert value is not None
        pool.append((event.gamer_id.encode(), value[:FRAME] + TORN if is_bad else value, is_bad))
    return pool


def send(brokers: str, topic: str, pool: list[tuple[bytes, bytes, bool]], records: int) -> None:
    """So many records, as fast as the broker takes them."""
    options = {"bootstrap.servers": brokers, "linger.ms": 50, "batch.size": 1 << 20, "log_level": 0}
    producer = Producer(options | {"queue.buffering.max.messages": 1_000_000, "compression.type": "lz4"})
    for number in range(records):
        key, value, _ = pool[number % len(pool)]
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    left, deadline = len(producer), time.monotonic() + FLUSH_S
    while left and time.monotonic() < deadline:
        left = producer.flush(1)
    if left:
        raise TimeoutError(f"{left:,} records were not acknowledged within {FLUSH_S:.0f} s")


def _create(brokers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    made = NewTopic(topic, partitions, config={"retention.bytes": "-1", "retention.ms": "-1"})
    admin.create_topics([made], operation_timeout=10)[topic].result(20)


def _version(client: SchemaRegistryClient, topic: str, message: str, number: int) -> tuple[Any, ProtobufSerializer]:
    """The class and the serializer of one version, registered."""
    _, kind = messages.compile_version(message, number)
    file = b64encode(kind.DESCRIPTOR.file.serialized_pb).decode()
    client.register_schema(f"{topic}-value", Schema(file, "PROTOBUF", []))
    settings = {"auto.register.schemas": False, "subject.name.strategy.type": "TOPIC"}
    return kind, ProtobufSerializer(kind, client, settings)


def _draw_games(dice: random.Random, shape: Shape) -> Iterator[str]:
    names = game_names(shape.games)
    others = (1 - shape.skew) / max(1, len(names) - 1)
    weights = [shape.skew, *[others] * (len(names) - 1)] if shape.skew else [1.0] * len(names)
    sums = list(accumulate(weights))
    while True:
        yield from dice.choices(names, cum_weights=sums, k=1000)
