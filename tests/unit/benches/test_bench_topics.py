"""What the measurements send: every kind and version compiles, reads its elders, and comes in the shares asked for."""

import random
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

import pytest
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message import DecodeError

from scripts.benches import messages, topics
from scripts.benches.events import Events
from scripts.benches.shape import Shape, game_names
from scripts.benches.topics import Maker

HEAD = bytes(topics.FRAME)


def _events(shape: Shape, count: int) -> Iterator[tuple[int, Any]]:
    return Events(shape, [messages.compile_version(shape.message, 1)[1]]).play(range(count), random.Random(1))


@pytest.mark.parametrize(("kind", "fields"), [("flat", 4), ("rich", 40), ("wide", 500)])
def test_each_version_adds_two_fields_and_reads_its_elders(kind: str, fields: int) -> None:
    _, old = messages.compile_version(kind, 1)
    _, new = messages.compile_version(kind, 3)
    assert (len(old.DESCRIPTOR.fields), len(new.DESCRIPTOR.fields)) == (fields, fields + 4)
    event = messages.fill(old(), random.Random(1))
    read = new.FromString(event.SerializeToString())
    assert old.FromString(read.SerializeToString()) == event
    assert not read.HasField("col_custom_1")


@pytest.mark.parametrize("kind", messages.KINDS)
def test_every_field_is_filled_but_for_the_rest_of_a_oneof(kind: str) -> None:
    _, event = messages.compile_version(kind, 2)
    dice = random.Random(7)
    seen = {field.name for _ in range(50) for field, _ in messages.fill(event(), dice).ListFields()}
    assert seen == {field.name for field in event.DESCRIPTOR.fields}


def test_one_game_has_its_share() -> None:
    drawn = [event.game_name for _, event in _events(Shape(games=10, skew=0.9), 10_000)]
    assert 0.88 < drawn.count("game_0000") / len(drawn) < 0.92
    assert set(drawn) == set(game_names(10))


def test_every_record_is_another_and_each_kind_of_value_has_its_number() -> None:
    made = Maker(Shape(message="rich", bad=0.1), [HEAD])
    records = [record for number in (0, 1, 7) for record in islice(made.block(number), 2000)]
    assert len({value for _, value, _ in records}) == len(records) == 6000
    played = [event for _, event in _events(Shape(message="rich"), 6000)]
    devices = {(event.gamer_id, event.device_id) for event in played}
    assert 5700 < len({event.gamer_id for event in played}) < len(devices) <= 6000
    assert {len({getattr(event, name) for event in played}) for name in ("country", "platform")} == {120, 5}
    moments = [event.event_timestamp.ToMicroseconds() for event in played]
    assert moments == sorted(set(moments))


def test_a_block_is_the_same_whoever_makes_it() -> None:
    first, second = (Maker(Shape(games=3, versions=2), [HEAD, HEAD]) for _ in range(2))
    list(islice(first.block(0), 10))
    assert list(islice(first.block(5), 100)) == list(islice(second.block(5), 100))


def test_payloads_are_those_of_the_official_serializer() -> None:
    _, kind = messages.compile_version("flat", 1)
    client = MockSchemaRegistryClient({"url": "mock://"})
    head = topics._head(client, "t", "flat", 1)
    settings = {"auto.register.schemas": False, "subject.name.strategy.type": "TOPIC"}
    serialize = ProtobufSerializer(kind, client, settings)
    for _, value, _ in islice(Maker(Shape(), [head]).block(0), 20):
        event = kind.FromString(value[topics.FRAME :])
        assert serialize(event, SerializationContext("t", MessageField.VALUE)) == value


def test_a_bad_record_is_refused_by_the_parser_and_counted() -> None:
    _, kind = messages.compile_version("flat", 1)
    records = list(islice(Maker(Shape(bad=0.5), [HEAD]).block(0), 400))
    for _, value, is_bad in records:
        with pytest.raises(DecodeError) if is_bad else nullcontext():
            kind.FromString(value[topics.FRAME :])
    assert 150 < sum(is_bad for _, _, is_bad in records) < 250


def test_a_topic_describes_what_is_in_it() -> None:
    assert Shape(2_000_000).words() == "2,000,000 flat events, 7 games, 4 partitions"
    assert Shape(10, 50, "rich", 3, 0.01, 0.9).words() == (
        "10 rich events, 50 games, 4 partitions, 3 versions, 1% bad, one game has 90%"
    )
