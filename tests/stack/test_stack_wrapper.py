"""245 games, each with a subject and a schema of its own, wrapped in one topic: written by Confluent's serializer to a
real registry, drained into 245 tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message import Message

from spark_app.model.errors import ExitCode
from tests.chaos import read_back
from tests.chaos.stage import Stage
from tests.support.protos import PROTO3, compile_text, message_class, renamed

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
OUTER = compile_text(PROTO3 + "message Outer { string game_name = 1; int32 schema_id = 2; bytes payload = 3; }")
KINDS = {
    kind: compile_text(f"{PROTO3} package x; message Event {{ {kind} score = 1; string gamer_id = 2; }}")
    for kind in ("int64", "string")
}
GAMES = [f"game{number}" for number in range(245)]
ROUNDS = 3


def serializer(kind: type[Message], client: SchemaRegistryClient, subject: str) -> Callable[[Message], bytes]:
    conf = {"subject.name.strategy": lambda ctx, name: subject, "normalize.schemas": False}
    serialize = ProtobufSerializer(kind, client, conf)
    return lambda message: bytes(serialize(message, SerializationContext(subject, MessageField.VALUE)))


def produce(stage: Stage, registry: str) -> dict[tuple[str, int], Any]:
    """(game, offset) -> score of every record sent. Every other game's payload is bare, its schema named outside."""
    admin = AdminClient({"bootstrap.servers": stage.brokers})
    admin.create_topics([NewTopic(stage.topic, 1, 1)])[stage.topic].result()
    client = SchemaRegistryClient({"url": registry})
    wrapper = message_class(OUTER, "Outer")
    wrap = serializer(wrapper, client, f"{stage.topic}-value")
    producer = Producer({"bootstrap.servers": stage.brokers})
    writers = []
    for number, game in enumerate(GAMES):
        kind = "string" if number % 3 else "int64"
        decodable = renamed(KINDS[kind], number, game)
        message = message_class(decodable, f"{game}.Event")
        writers.append((game, kind, message, serializer(message, client, f"{stage.topic}-{game}")))
    sent: dict[tuple[str, int], Any] = {}
    for turn in range(ROUNDS):
        for number, (game, kind, message, write) in enumerate(writers):
            score: Any = turn * 1000 + number if kind == "int64" else f"{turn} {number}"
            frame = write(message(score=score, gamer_id="g"))
            outer = wrapper(game_name=game, payload=frame)
            if number % 2:
                outer.schema_id, outer.payload = int.from_bytes(frame[1:5], "big"), frame[6:]
            producer.produce(stage.topic, wrap(outer))
            sent[game, len(sent)] = score
    producer.flush()
    return sent


@pytest.mark.nightly
def test_245_wrapped_games_in_one_run(new_stage: Callable[..., Stage], registry: Any) -> None:
    stage = new_stage(WRAPPER__PAYLOAD="payload", WRAPPER__SCHEMA_ID="schema_id", EVENT__TIME="score")
    sent = produce(stage, registry.url)
    assert stage.drain() == [ExitCode.DONE]
    found = {}
    for name in read_back.tables(stage.lake, "silver_"):
        game = name.removeprefix("silver_").removesuffix("_events")
        for row in read_back.read(stage.lake, name, ["score", "_offset"]).to_pylist():
            found[game, row["_offset"]] = row["score"]
    assert found == sent
    assert len(read_back.tables(stage.lake, "gold_")) == 245
    gold = read_back.read(stage.lake, "gold_game0_player_agg").to_pylist()
    assert gold == [{"gamer_id": "g", "session_count": ROUNDS, "min_timestamp": 0, "max_timestamp": 2000}]
