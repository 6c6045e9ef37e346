"""The sink of Kafka on a real broker and a real registry, read by the official consumer and deserializer."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable

from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from spark_app.followers.sinks import state
from spark_app.followers.sinks.kafka import KafkaSink
from spark_app.followers.sinks.ledger import Ledger
from spark_app.followers.sinks.process import SinkProcess
from spark_app.followers.sinks.sink import Call
from spark_app.model.errors import LeaseLost
from spark_app.protobuf.schemas.limits import SchemaInvalid
from spark_app.protobuf.schemas.registry import Registry as Client
from spark_app.settings.connections import RegistrySettings
from tests.chaos.stage import wait_until
from tests.support.event_lakes import take
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN
from tests.support.protos import CAPS, PROTO3, compile_text, message_class
from tests.support.targets import open_sink

pytestmark = pytest.mark.stack
READ_S = 30.0


@pytest.fixture
def lake_of(tmp_path: Path, kafka: Kafka, registry: Registry) -> Callable[..., tuple[SmallLake, str]]:
    """A lake with a sink and its topic, which has three partitions."""

    def make(
        target: dict[str, Any] | None = None, config: dict[str, str] | None = None, **sink: Any
    ) -> tuple[SmallLake, str]:
        topic = f"t{uuid.uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, 3, config=config or {})])[topic].result(20)
        wait_until(lambda: len(admin.list_topics(topic, 10).topics[topic].partitions) == 3, "the topic", 20)
        given = {"topic": topic, "brokers": kafka.bootstrap, "registry_url": registry.url, **(target or {})}
        settings = {"begin": "all", "kafka": given, **sink}
        return SmallLake(tmp_path / topic, EVENTS, GROWN, sinks={"crm": settings}), topic

    return make


def read(kafka: Kafka, topic: str, level: str = "read_committed") -> list[Any]:
    """All records of a topic that a reader of this level sees."""
    options = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex, "isolation.level": level}
    consumer = Consumer(options | {"auto.offset.reset": "earliest", "enable.partition.eof": True})
    consumer.subscribe([topic])
    found, ended, deadline = list[Any](), set[int](), time.monotonic() + READ_S
    while len(ended) < 3:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.append(message)
    consumer.close()
    return found


def test_each_row_is_read_once_whatever_crashes(
    lake_of: Callable[..., tuple[SmallLake, str]], kafka: Kafka, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, topic = lake_of({"key_column": "gamer_id"}, rows_per_call=3)
    take(lake, 60)
    take(lake, 20, decodable=GROWN)
    whole, written = Ledger.write, 0

    def seldom(self: Ledger, lines: Any) -> None:
        """The process ends between a commit and the ledger, each second time before anything is written."""
        nonlocal written
        written += 1
        if written % 2:
            whole(self, [*lines][:1])
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "write", seldom)
        for _ in range(3):
            one = open_sink(lake)
            with pytest.raises(OSError, match="no space"):
                one.run(threading.Event())
            one._lake.lease.release()
    process = SinkProcess("crm", lake.settings, once=True)
    process.start()
    assert process.join(120), state.read(lake.lake, "crm")
    table = DeltaTable(str(lake.lake.path("silver_uno_events"))).to_pyarrow_table().to_pylist()
    client = SchemaRegistryClient({"url": registry.url})
    newest = client.get_latest_version(f"{topic}-value").schema.schema_str
    assert newest is not None
    kind = message_class(compile_text(newest), "protolake.silver_uno_events.SilverUnoEvents")
    deserialize = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    records = read(kafka, topic)
    assert len({message.value()[1:5] for message in records}) == 1
    found = [deserialize(message.value(), SerializationContext(topic, MessageField.VALUE)) for message in records]
    assert sorted(row._offset for row in found) == sorted(row["_offset"] for row in table)
    by_offset = {row["_offset"]: row for row in table}
    for message, row in zip(records, found, strict=True):
        due = by_offset[row._offset]
        assert message.key().decode() == row.gamer_id == due["gamer_id"]
        assert (row.game_name, row.latency_ms, row.large) == (due["game_name"], due["latency_ms"], due["large"])
        assert row.HasField("country") is (due["country"] is not None)
        headers = dict(message.headers())
        assert headers["protolake.table"] == b"silver_uno_events"
        assert int(headers["protolake.record"].rpartition(b"/")[2]) == row._offset


def test_a_process_that_lives_on_writes_no_more(lake_of: Callable[..., tuple[SmallLake, str]], kafka: Kafka) -> None:
    lake, topic = lake_of({"headers": False})
    take(lake, 1)
    rows = DeltaTable(str(lake.lake.path("silver_uno_events"))).to_pyarrow_table()
    first, second = (KafkaSink("crm", lake.settings, lake.lake) for _ in range(2))
    lake.lake.storage.create_folders(lake.lake.sink("crm"))
    calls = [Call(f"key {number}", "silver_uno_events", "uno", rows) for number in range(3)]
    assert [one.result for one in first.send(calls[:2])] == ["accepted", "accepted"]
    assert [one.result for one in second.send(calls[1:])] == ["accepted", "accepted"]
    with pytest.raises(LeaseLost, match=r"sinks\.crm\.kafka: .*another process sends for this sink now"):
        first.send([Call("key 4", "silver_uno_events", "uno", rows)])
    second.close()
    assert len(read(kafka, topic)) == 3


@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize(
    ("config", "size"), [({}, 2 << 20), ({"max.message.bytes": "20000"}, 30_000)], ids=["client", "broker"]
)
def test_a_record_that_is_too_large_is_refused_and_holds_up_no_other_one(
    lake_of: Callable[..., tuple[SmallLake, str]], kafka: Kafka, config: dict[str, str], size: int, headers: bool
) -> None:
    lake, topic = lake_of({"headers": headers}, config)
    take(lake, 1)
    rows = DeltaTable(str(lake.lake.path("silver_uno_events"))).to_pyarrow_table()
    large = rows.set_column(rows.column_names.index("ssn"), "ssn", [["x" * size]])
    lake.lake.storage.create_folders(lake.lake.sink("crm"))
    sink = KafkaSink("crm", lake.settings, lake.lake)
    sent = [Call(f"key {n}", "silver_uno_events", "uno", one) for n, one in enumerate((rows, large, rows))]
    found = sink.send(sent)
    assert [one.result for one in found] == ["accepted", "refused", "accepted"], found
    sink.close()
    assert len(read(kafka, topic)) == 2


def test_a_compacted_topic_without_keys_refuses_and_takes_tombstones(
    lake_of: Callable[..., tuple[SmallLake, str]], kafka: Kafka
) -> None:
    lake, topic = lake_of({"headers": False}, {"cleanup.policy": "compact"})
    lake.lake.storage.create_folders(lake.lake.sink("crm"))
    rows = pa.table({"player": ["a", "b"], "score": [7, None], "_op": ["upsert", "delete"]})
    sink = KafkaSink("crm", lake.settings, lake.lake)
    [refused] = sink.send([Call("k", "gold_uno", "uno", rows.slice(0, 1), ["player"])])
    assert refused.result == "refused", refused
    sink.close()
    sections = lake.settings.sinks["crm"].model_dump()
    lake.reopen(sinks={"crm": {**sections, "kafka": {**sections["kafka"], "key_column": "player"}}})
    keyed = KafkaSink("crm", lake.settings, lake.lake)
    assert [one.result for one in keyed.send([Call("l", "gold_uno", "uno", rows, ["player"])])] == ["accepted"]
    keyed.close()
    found = {message.key(): message.value() for message in read(kafka, topic)}
    assert found[b"b"] is None
    assert found[b"a"] is not None


def test_the_registry_says_what_is_not_compatible(registry: Registry) -> None:
    subject = f"s{uuid.uuid4().hex}"
    own = Client(RegistrySettings(url=registry.url), CAPS)
    first = own.register(subject, PROTO3 + "message A { optional int32 x = 1; }")
    assert (
        own.id_of(subject, "latest") == own.register(subject, PROTO3 + "message A { optional int32 x = 1; }") == first
    )
    SchemaRegistryClient({"url": registry.url}).set_compatibility(subject, "BACKWARD")
    with pytest.raises(SchemaInvalid, match=f"{subject}: not compatible with the newest version: "):
        own.register(subject, PROTO3 + "message A { optional string x = 1; }")
    assert own.register(subject, PROTO3 + "message A { optional int32 x = 1; optional string y = 2; }") != first
