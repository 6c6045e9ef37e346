"""Rows leave as records of Kafka: each once, whatever crashes or does not answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from deltalake import DeltaTable

from spark_app.followers.sinks import delivery, kafka, state
from spark_app.followers.sinks.kafka import MOST_MARKS, KafkaSink
from spark_app.followers.sinks.ledger import Ledger, Line
from spark_app.followers.sinks.open_sink import OpenSink
from spark_app.followers.sinks.process import SinkProcess
from spark_app.followers.sinks.sink import Call
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, LeaseLost
from spark_app.protobuf.decode import decoder_for
from spark_app.settings.sinks import MOST_OF_KAFKA, SinkSettings
from tests.support.answers import Answers, serve
from tests.support.event_lakes import take
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN, event
from tests.support.protos import PROTO3, compile_text
from tests.support.targets import open_sink
from tests.support.transactions import Broker, failure

TARGET = """
message Other { string x = 1; }
message Event { string gamer_id = 2; optional int32 latency_ms = 3; }
"""
NEVER = 404, {"error_code": 40401, "message": "Subject not found"}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker("uno", "poker")
    monkeypatch.setattr(kafka, "Producer", made.producer)
    monkeypatch.setattr(kafka, "Consumer", made.consumer)
    return made


class Registry(Answers):
    """One that takes every schema, under the ids 100, 101, ..."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, int] = {}
        for name in ("uno", "poker"):
            self[f"/subjects/{name}-value"] = self._look
            self[f"/subjects/{name}-value/versions"] = self._register
        self.latest("orders", 7, PROTO3 + TARGET)

    def latest(self, subject: str, schema_id: int, text: str) -> None:
        self[f"/subjects/{subject}/versions/latest"] = 200, {"id": schema_id, "schema": text, "schemaType": "PROTOBUF"}
        self.schema(schema_id, text)

    def _look(self, request: BaseHTTPRequestHandler) -> None:
        known = self.texts.get(_posted(request))
        _say(request, *(NEVER if known is None else (200, {"id": known})))

    def _register(self, request: BaseHTTPRequestHandler) -> None:
        _say(request, 200, {"id": self.texts.setdefault(_posted(request), 100 + len(self.texts))})


def _posted(request: BaseHTTPRequestHandler) -> str:
    found = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
    assert found["schemaType"] == "PROTOBUF"
    return str(found["schema"])


def _say(request: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    data = json.dumps(value).encode()
    request.send_response(status)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve(answers=Registry()) as answers:
        assert isinstance(answers, Registry)
        yield answers


@pytest.fixture
def lake_of(tmp_path: Path, broker: Broker, registry: Registry) -> Callable[..., SmallLake]:
    def make(target: dict[str, Any] | None = None, **sink: Any) -> SmallLake:
        given = {"topic": "{name}", "registry_url": registry.url, **(target or {})}
        settings = {"begin": "all", "rows_per_call": 8, "kafka": given, **sink}
        return SmallLake(tmp_path / "lake", EVENTS, GROWN, sinks={"crm": settings})

    return make


def deliver(lake: SmallLake) -> None:
    process = SinkProcess("crm", lake.settings, once=True)
    process.start()
    assert process.join(30), state.read(lake.lake, "crm")


def opened(lake: SmallLake) -> OpenSink:
    return open_sink(lake)


def sent(broker: Broker, registry: Registry, topic: str = "uno") -> list[dict[str, Any]]:
    """The rows of a topic, by the project's own decoder."""
    found = []
    for _, value, _ in broker.records[topic]:
        assert value is not None
        assert value[:1] + value[5:6] == b"\0\0"
        [text] = [text for text, known in registry.texts.items() if known == int.from_bytes(value[1:5], "big")]
        decoder = decoder_for(compile_text(text), (0,))
        assert decoder is not None
        found += decoder.decode(pa.array([value[6:]], pa.binary())).table.to_pylist()
    return found


def offsets(broker: Broker, topic: str = "uno") -> list[int]:
    return sorted(int(headers["protolake.record"].rpartition(b"/")[2]) for _, _, headers in broker.records[topic])


def silver(lake: SmallLake, game: str = "uno") -> list[dict[str, Any]]:
    table = DeltaTable(str(lake.lake.path(f"silver_{game}_events"))).to_pyarrow_table()
    return list(table.sort_by("_offset").to_pylist())


def ledger(lake: SmallLake) -> list[Line]:
    found = Ledger(Lake(lake.lake.address, "crm"), lake.lake.sink("crm")).read()
    return [line for lines in found.values() for line in lines]


def test_each_row_is_a_record_with_the_values_of_its_table(
    lake_of: Callable[..., SmallLake], broker: Broker, registry: Registry
) -> None:
    lake = lake_of({"key_column": "gamer_id"})
    take(lake, 20)
    take(lake, 3, game="poker")
    take(lake, 2, decodable=GROWN)
    deliver(lake)
    for game in ("uno", "poker"):
        rows = sent(broker, registry, game)
        own = [
            name for name in rows[0] if name.rpartition("_")[0] not in ("_topic", "_topic_id", "_partition", "_offset")
        ]
        due = [{name: row[name] for name in own} for row in silver(lake, game)]
        assert sorted(({name: row[name] for name in own} for row in rows), key=str) == sorted(due, key=str)
        assert offsets(broker, game) == [row["_offset"] for row in silver(lake, game)]
    assert sorted(broker.records["uno"], key=str)[0][0] in {row["gamer_id"].encode() for row in silver(lake)}
    assert {headers["protolake.table"] for _, _, headers in broker.records["poker"]} == {b"silver_poker_events"}
    assert {line.result for line in ledger(lake)} == {"accepted"}
    assert any("package protolake.silver_uno_events;" in text for text in registry.texts)


def test_a_crash_makes_no_record_twice(
    lake_of: Callable[..., SmallLake], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger cannot be written, twice: what the topic has is not known after the next start."""
    lake = lake_of(rows_per_call=1)
    take(lake, 120)

    def full(self: Ledger, lines: Any) -> None:
        raise OSError("no space")

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "write", full)
            one = opened(lake)
            with pytest.raises(OSError, match="no space"):
                one.run(threading.Event())
            one._lake.lease.release()
    assert 0 < broker.transactions <= 2 * (delivery.MOST_UNWRITTEN + 16)
    deliver(lake)
    assert offsets(broker) == [row["_offset"] for row in silver(lake)]
    assert broker.transactions == 120


def test_a_commit_without_an_answer_is_found_out(lake_of: Callable[..., SmallLake], broker: Broker) -> None:
    """Some were made, some were not."""
    steps = []

    def fails(step: str) -> None:
        steps.append(step)
        if step.endswith("commit") and len(steps) % 3 == 0:
            raise failure(KafkaError._TIMED_OUT, retriable=True)

    broker.fails = fails
    lake = lake_of(rows_per_call=2)
    take(lake, 12)
    deliver(lake)
    assert offsets(broker) == [row["_offset"] for row in silver(lake)]
    assert steps.count("init") > 1
    assert any(line.attempts > 1 for line in ledger(lake))


def test_who_is_fenced_ends(lake_of: Callable[..., SmallLake], broker: Broker) -> None:
    lake = lake_of()
    take(lake, 2)

    def fenced(step: str) -> None:
        if step == "commit":
            raise failure(KafkaError._FENCED, fatal=True)

    broker.fails = fenced
    one = opened(lake)
    with pytest.raises(LeaseLost, match="another process sends for this sink now"):
        one.run(threading.Event())
    one._lake.lease.release()
    broker.fails = lambda step: None
    deliver(lake)
    assert offsets(broker) == [row["_offset"] for row in silver(lake)]


@pytest.mark.parametrize("headers", [True, False])
def test_a_record_that_is_too_large_is_rejected_alone(
    lake_of: Callable[..., SmallLake], broker: Broker, headers: bool
) -> None:
    lake = lake_of({"headers": headers})
    take(lake, 5)
    lake.take(batch_of([event("uno", "g" * 1000)], first=lake.ends[0]))
    take(lake, 5)
    broker.largest = 500
    deliver(lake)
    [rejected] = [line for line in ledger(lake) if line.result == "rejected"]
    assert "MSG_SIZE_TOO_LARGE" in rejected.answer or "the broker says no" in rejected.answer
    assert [json.loads(row)["_offset"] for row in rejected.rejects] == [10]
    assert len(broker.records["uno"]) == 10


def test_a_row_that_does_not_fit_the_schema_of_the_settings_is_rejected_alone(
    lake_of: Callable[..., SmallLake], broker: Broker
) -> None:
    lake = lake_of({"schema": "orders", "message": "Event"}, columns=["gamer_id", "latency_ms"])
    for latency in (1, 2, 2**31, 4):
        take(lake, latency=latency)
    deliver(lake)
    [rejected] = [line for line in ledger(lake) if line.result == "rejected"]
    assert rejected.answer == "latency_ms: the value does not fit Event"
    values = [value for _, value, _ in broker.records["uno"]]
    assert len(values) == 3
    assert {value[:7] for value in values if value} == {b"\0\0\0\0\7\2\2"}
    decoder = decoder_for(compile_text(PROTO3 + TARGET), (1,))
    assert decoder is not None
    found = decoder.decode(pa.array([value[7:] for value in values if value], pa.binary())).table["latency_ms"]
    assert sorted(found.to_pylist()) == [1, 2, 4]


def test_a_schema_with_several_messages_needs_a_name(lake_of: Callable[..., SmallLake]) -> None:
    lake = lake_of({"schema": "orders", "message": "Evnt"})
    sink = KafkaSink("crm", lake.settings, lake.lake)
    with pytest.raises(ConfigurationError, match=r"message: orders has several messages; did you mean Event\?"):
        sink.send([Call("k", "silver_uno_events", "uno", pa.table({"gamer_id": ["g"]}))])


def test_a_schema_that_is_not_compatible_is_not_registered(
    lake_of: Callable[..., SmallLake], broker: Broker, registry: Registry
) -> None:
    said = {"is_compatible": False, "messages": ["field 3 was an int32"]}
    registry["/compatibility/subjects/uno-value/versions/latest"] = 200, said
    lake = lake_of({"headers": False})
    lake.lake.storage.create_folders(lake.lake.sink("crm"))
    call = Call("k", "silver_uno_events", "uno", pa.table({"x": [1]}))
    with pytest.raises(ConfigurationError, match=r"uno-value: not compatible .*: field 3 was an int32"):
        KafkaSink("crm", lake.settings, lake.lake).send([call])
    assert registry.texts == {}
    assert broker.transactions == 0


def test_a_row_that_is_gone_is_a_tombstone(lake_of: Callable[..., SmallLake], broker: Broker) -> None:
    rows = pa.table({"player": ["a", "b"], "score": pa.array([7, None], pa.int64()), "_op": ["upsert", "delete"]})
    lake = lake_of({"key_column": "player", "headers": False})
    lake.lake.storage.create_folders(lake.lake.sink("crm"))
    sink = KafkaSink("crm", lake.settings, lake.lake)
    assert [one.result for one in sink.send([Call("k", "gold_uno", "uno", rows, ["player"])])] == ["accepted"]
    (key, value, _), tombstone = broker.records["uno"]
    assert (key, value) == (b"a", b"\0\0\0\0\x64\0" + b"\x0a\x01a\x10\x07")
    assert tombstone == (b"b", None, {})
    without = lake_of({"headers": False})
    refused = KafkaSink("crm", without.settings, without.lake).send([Call("l", "gold_uno", "uno", rows, ["player"])])
    assert [one.result for one in refused] == ["refused"]


def test_the_marks_of_calls_have_a_bound(lake_of: Callable[..., SmallLake], broker: Broker) -> None:
    lake = lake_of({"headers": False})
    lake.lake.storage.create_folders(lake.lake.sink("crm"))
    rows = pa.table({"x": [1]})
    sink = KafkaSink("crm", lake.settings, lake.lake)
    keys = [f"key {number}" for number in range(MOST_MARKS + 5)]
    for key in keys:
        sink.send([Call(key, "t", "uno", rows)])
    again = KafkaSink("crm", lake.settings, lake.lake)
    before = broker.transactions
    again.send([Call(key, "t", "uno", rows) for key in keys[5:]])
    assert broker.transactions == before
    again.forget(keys[:300])
    again.send([Call("another", "t", "uno", rows)])
    last = KafkaSink("crm", lake.settings, lake.lake)
    last.send([Call(keys[300], "t", "uno", rows), Call(keys[299], "t", "uno", rows)])
    assert broker.transactions == before + 2
    assert delivery.MOST_UNWRITTEN + MOST_OF_KAFKA <= MOST_MARKS / 2


def test_a_topic_that_is_missing_is_named(lake_of: Callable[..., SmallLake], broker: Broker) -> None:
    lake = lake_of({"topic": "nowhere"})
    sink = KafkaSink("crm", lake.settings, lake.lake)
    with pytest.raises(OSError, match=r"sinks.crm.kafka.topic: nowhere: .*[Uu]nknown topic"):
        sink.send([Call("k", "t", "uno", pa.table({"x": [1]}))])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topic": "a b"}, "is no topic"),
        ({"topic": "{game}"}, "is no topic"),
        ({"topic": "t", "registry_url": "http://me:secret@there"}, "contains a user or password"),
        ({"topic": "t", "partitioner": "round"}, "partitioner"),
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SinkSettings(kafka=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="in_flight is at most 100"):
        SinkSettings(kafka={"topic": "t"}, in_flight=101)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("generate", ("", "")),
        ("orders", ("orders", "latest")),
        ("orders:3", ("orders", "3")),
        (":.sales:orders", (":.sales:orders", "latest")),
        (":.sales:orders:12", (":.sales:orders", "12")),
    ],
)
def test_a_schema_is_a_subject_and_a_version(text: str, subject: tuple[str, str]) -> None:
    target = SinkSettings(kafka={"topic": "t", "schema": text}).kafka  # type: ignore[arg-type]
    assert target is not None
    assert target.subject == subject
