"""Several message types, GUIDs, bare records and wrappers: resolved, committed, merged into gold."""

import shutil
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.confluent.type.decimal_utils import to_proto_decimal

from spark_app.model.catalog import SchemaKey
from spark_app.model.errors import ConfigurationError
from spark_app.units.driver.job_input import Records
from tests.spark.parts import ORIGIN, TOPIC, Given, Parts, source_of
from tests.spark.test_spark_rebuild import ask as rebuild
from tests.spark.test_spark_replay import replay
from tests.support.answers import Answers
from tests.support.frames import batch_of, frame, headers_of
from tests.support.protos import PROTO3, compile_text, message_class

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
GUID = str(uuid.UUID(int=5))
SHOP = f"""{PROTO3} package shop; import "google/protobuf/timestamp.proto";
message Placed {{ string shop = 1; string who = 2; google.protobuf.Timestamp at = 3; int64 total = 4; }}
message Paid {{ string shop = 1; int64 who = 2; google.protobuf.Timestamp at = 3; }}
message Beat {{}}"""
SHOP_2 = SHOP.replace("int64 who = 2;", "int64 who = 2; string total = 4;")
EVENT = {"event": {"routing": "shop", "key": "who", "time": "at"}}
ONE = compile_text(SHOP)
TWO = compile_text(SHOP_2)


def shop(key: SchemaKey, name: str, index: int, **fields: Any) -> bytes:
    kind = message_class(TWO if key == 2 else ONE, f"shop.{name}")
    return frame(key, kind(at={"seconds": 5}, **fields).SerializeToString(), (index,))


def take(parts: Parts, values: list[bytes], headers: pa.Array = None) -> None:
    """An ingest unit of the records, its new schemas resolved and its tables admitted in place."""
    start = parts.next_offset()
    given = {} if headers is None else {"headers": headers}
    records = Records(parts.spark, (Given(batch_of(values, start, TOPIC, **given)),))
    report = parts.units.run(records, parts.manifests.last + 1, ORIGIN_IN_PLACE)
    parts.opened.commit(report, "ingest", source_of(start, start + len(values)))


ORIGIN_IN_PLACE = type(ORIGIN)(ORIGIN.topic_ids, bump_in_place=True)


def gold(parts: Parts, name: str) -> list[dict[str, Any]]:
    columns = [parts.settings.event.key, "session_count"]
    return parts.read(f"gold_{name}_player_agg").select(columns).sort(columns[0]).to_dicts()


def test_message_types_route_to_tables_and_gold_of_their_own(new_parts: NewParts, answers: Answers) -> None:
    answers.schema(1, SHOP)
    parts = new_parts(answers.url, event=EVENT["event"] | {"route_by": "message"})
    values = [
        shop(1, "Placed", 0, shop="a", who="x", total=1),
        shop(1, "Placed", 0, shop="b", who="x"),
        shop(1, "Paid", 1, shop="a", who=7),
        frame(1, b"", (2,)),
    ]
    take(parts, values)
    parts.gold.run()
    assert parts.lake.tables() == [
        *("bronze_events", "gold_paid_player_agg", "gold_placed_player_agg"),
        *("silver_beat_events", "silver_paid_events", "silver_placed_events"),
    ]
    assert gold(parts, "placed") == [{"who": "x", "session_count": 2}]
    assert gold(parts, "paid") == [{"who": 7, "session_count": 1}]
    assert len(parts.read("silver_beat_events")) == 1
    parts = new_parts(answers.url, event=EVENT["event"] | {"route_by": "message"})
    take(parts, values[2:])
    parts.gold.run()
    assert gold(parts, "paid") == [{"who": 7, "session_count": 2}]
    assert parts.read("silver_beat_events")["_offset"].sort().to_list() == [3, 5]


def test_a_field_that_does_not_suit_an_aggregate_is_null_in_its_own_table_only(
    new_parts: NewParts, answers: Answers
) -> None:
    messages = {
        "Text": "string",
        "Raw": "bytes",
        "Many": "map<string, int64>",
        "Part": "Beat",
        "List": "repeated int64",
    }
    text = SHOP + "".join(
        f"message {name} {{ string shop = 1; string who = 2; {kind} total = 4; {kind} at = 5; }}"
        for name, kind in messages.items()
    )
    answers.schema(1, text)
    odd = compile_text(text)
    aggregates = {
        "session_count": {"function": "count"},
        "sum": {"function": "sum", "field": "total"},
        "last": {"function": "max"},
    }
    parts = new_parts(answers.url, event=EVENT["event"] | {"route_by": "message"}, gold={"aggregates": aggregates})
    given = {"Text": "12 EUR", "Raw": b"1", "Many": {"a": 1}, "Part": {}, "List": [1]}
    kinds = {name: message_class(odd, f"shop.{name}") for name in messages}
    values = [
        frame(1, kinds[name](who="x", total=total, at=total).SerializeToString(), (3 + number,))
        for number, (name, total) in enumerate(given.items())
    ]
    take(parts, [*values, shop(1, "Placed", 0, shop="a", who="x", total=5)])
    parts.gold.run()
    assert parts.read("gold_placed_player_agg")["sum"].to_list() == [5]
    for name in messages:
        assert parts.read(f"gold_{name.lower()}_player_agg").select("session_count", "sum").rows() == [(1, None)]


def test_no_round_of_settling_meets_what_only_the_next_one_could_place(new_parts: NewParts, answers: Answers) -> None:
    """Each round knows one schema more, and the last one's tables are not those of the last round."""
    for schema_id in range(1, 11, 2):
        answers.schema(schema_id, SHOP)
    parts = new_parts(answers.url, schemas={"max_unknown_ids_per_batch": 1}, **EVENT)
    pairs = [(shop(i, "Placed", 0, shop=f"s{i}", who="x"), frame(i + 1, b"")) for i in range(1, 11, 2)]
    take(parts, [value for pair in pairs for value in pair])
    while parts.deferred.step(None) is not None:
        pass
    assert sorted(parts.tables.admitted) == ["s1", "s3", "s5", "s7", "s9"]
    assert "quarantine_events" not in parts.lake.tables()


def test_a_table_of_two_message_types_keeps_the_types_that_it_has(new_parts: NewParts, answers: Answers) -> None:
    """What comes later is converted or quarantined, in whatever order the versions were registered."""
    answers.schema(1, SHOP)
    answers.schema(2, SHOP_2)
    parts = new_parts(answers.url, **EVENT)
    take(parts, [shop(2, "Paid", 1, shop="a", who=1, total="five")])
    assert parts.read("silver_a_events").schema["total"] == pl.String
    parts = new_parts(answers.url, **EVENT)
    take(parts, [shop(1, "Placed", 0, shop="a", who="2", total=3), shop(1, "Placed", 0, shop="a", who="x", total=4)])
    rows = parts.read("silver_a_events").sort("_offset").select("who", "total", "_offset").to_dicts()
    assert rows == [{"who": 1, "total": "five", "_offset": 0}]
    assert set(parts.read("quarantine_events")["cause"]) == {"decode_type"}
    take(parts, [shop(1, "Placed", 0, shop="b", who="x", total=4), shop(1, "Paid", 1, shop="b", who=5)])
    parts.gold.run()
    assert parts.tables.messages == {"a": ("shop.Paid", "shop.Placed"), "b": ("shop.Paid", "shop.Placed")}
    assert gold(parts, "a") == [{"who": 1, "session_count": 1}]


def test_guids_settle_and_land_under_their_guid(new_parts: NewParts, answers: Answers) -> None:
    answers[f"/schemas/guids/{GUID}"] = (200, {"schemaType": "PROTOBUF", "schema": SHOP})
    parts = new_parts(answers.url, **EVENT)
    whole = shop(GUID, "Placed", 0, shop="a", who="x")
    headers = headers_of([None, [("__value_schema_id", frame(GUID, b""))]])
    take(parts, [whole, whole[18:]], headers)
    rows = parts.read("silver_a_events").sort("_offset")
    assert rows["_schema_guid"].to_list() == [GUID, GUID]
    assert rows["_schema_id"].to_list() == [None, None]
    other = str(uuid.UUID(int=6))
    take(parts, [shop(other, "Placed", 0, shop="a", who="y")])
    assert parts.read("deferred_events")["waits_for"].to_list() == [other]
    answers[f"/schemas/guids/{other}"] = (200, {"schemaType": "PROTOBUF", "schema": SHOP})
    parts = new_parts(answers.url, **EVENT)
    assert parts.deferred.step(None) is not None
    assert parts.read("silver_a_events")["_schema_guid"].sort().to_list() == [GUID, GUID, other]


def test_records_without_a_frame_have_the_message_of_the_settings(new_parts: NewParts, answers: Answers) -> None:
    answers.schema(1, SHOP)
    sections = EVENT | {"decode": {"unframed_schema_id": 1, "unframed_message": "shop.Paid"}}
    parts = new_parts(answers.url, **sections)
    parts.schemas.load_schema(1)
    take(parts, [shop(1, "Paid", 1, shop="a", who=7)[7:], shop(1, "Placed", 0, shop="b", who="x")])
    assert parts.read("silver_a_events")["who"].to_list() == [7]
    assert parts.read("silver_b_events")["who"].to_list() == ["x"]
    parts = new_parts(answers.url, **EVENT, decode={"unframed_schema_id": 1, "unframed_message": "shop.Nothing"})
    with pytest.raises(ConfigurationError, match=r"schema 1 has no message shop\.Nothing"):
        take(parts, [b"\x0a\x01a"])


def test_wrapped_events_settle_and_wait_by_their_own_schema(new_parts: NewParts, answers: Answers) -> None:
    outer_text = PROTO3 + "message Outer { string shop = 1; int32 id = 2; bytes body = 3; }"
    answers.schema(9, outer_text)
    answers.schema(1, SHOP)
    outer = message_class(compile_text(outer_text), "Outer")
    sections = EVENT | {"wrapper": {"payload": "body", "schema_id": "id"}}

    def wrapped(schema_id: int, who: str) -> bytes:
        body = shop(schema_id, "Placed", 0, shop="ignored", who=who)[6:]
        return frame(9, outer(shop="a", id=schema_id, body=body).SerializeToString())

    parts = new_parts(answers.url, **sections)
    take(parts, [wrapped(1, "x"), wrapped(3, "y")])
    rows = parts.read("silver_a_events").select("who", "shop", "_schema_id", "_wrapper").to_dicts()
    assert rows == [{"who": "x", "shop": "ignored", "_schema_id": 1, "_wrapper": {"shop": "a"}}]
    assert parts.read("deferred_events").select("waits_for", "schema_id").row(0) == ("3", 9)
    answers.schema(3, SHOP)
    parts = new_parts(answers.url, **sections)
    parts.deferred.step(None)
    parts.gold.run()
    assert parts.read("silver_a_events")["_schema_id"].sort().to_list() == [1, 3]
    assert gold(parts, "a") == [{"who": "x", "session_count": 1}, {"who": "y", "session_count": 1}]


@pytest.mark.nightly
def test_replay_and_rebuild_know_wrappers_and_guids(new_parts: NewParts, answers: Answers) -> None:
    """What a wrapper held, or a GUID named, was refused: it is asked for again by its own key."""
    outer_text = PROTO3 + "message Outer { string shop = 1; bytes body = 2; }"
    answers.schema(9, outer_text)
    answers.schema(3, 'syntax = "proto3"; message Broken {')
    answers[f"/schemas/guids/{GUID}"] = answers["/schemas/ids/3"]
    outer = message_class(compile_text(outer_text), "Outer")
    sections = EVENT | {"wrapper": {"payload": "body"}}
    bodies = [shop(key, "Placed", 0, shop="a", who="x", total=5) for key in (3, GUID)]
    parts = new_parts(answers.url, **sections)
    take(parts, [frame(9, outer(shop="a", body=body).SerializeToString()) for body in bodies])
    refused = parts.read("quarantine_events").sort("offset").select("cause", "schema_id", "refused_schema").rows()
    assert refused == [("schema_invalid", 9, "3"), ("schema_invalid", 9, GUID)]
    answers.schema(3, SHOP)
    answers[f"/schemas/guids/{GUID}"] = answers["/schemas/ids/3"]
    parts = new_parts(answers.url, **sections)
    assert replay(parts, schemas=[GUID])["resolved"] == {"silver_a_events": 1}
    assert replay(parts)["resolved"] == {"silver_a_events": 1}
    rows = parts.read("silver_a_events").sort("_offset")
    assert rows.select("total", "_schema_id", "_schema_guid").rows() == [(5, 3, None), (5, None, GUID)]
    assert rows["_wrapper"].to_list() == [{"shop": "a"}] * 2
    shutil.rmtree(parts.lake.path("silver_a_events"))
    parts = new_parts(answers.url, **sections)
    found = rebuild(parts)
    assert found["tables"]["silver_a_events"]["added"] == 2
    assert parts.read("silver_a_events").sort("_offset").select(rows.columns).equals(rows)


def bet(key: int, kind: Any, amount: str, **stack: Any) -> bytes:
    message = kind(shop="uno", who="x", at={"seconds": 5}, stack=stack)
    message.amount.MergeFromString(to_proto_decimal(Decimal(amount)).SerializeToString())
    return frame(key, message.SerializeToString())


def test_decimals_and_other_types_inside_are_summed_filtered_and_rebuilt(new_parts: NewParts, answers: Answers) -> None:
    """What does not fit its column is refused again by a rebuild, and the rest is equal."""
    option = '[(confluent.field_meta) = {params: [{key: "precision", value: "6"}, {key: "scale", value: "2"}]}]'
    text = f"""{PROTO3} import "google/protobuf/timestamp.proto"; import "confluent/meta.proto";
    import "confluent/type/decimal.proto"; message Bet {{ string shop = 1; string who = 2;
    google.protobuf.Timestamp at = 3; confluent.type.Decimal amount = 4 {option}; Stack stack = 5; }}
    message Stack {{ int64 chips = 1; }}"""
    texts = {1: text, 2: text.replace("int64 chips", "uint64 chips")}
    one, two = (message_class(compile_text(text), "Bet") for text in texts.values())
    for key, schema in texts.items():
        answers.schema(key, schema)
    sums = {"total": {"function": "sum", "field": "amount"}}
    parts = new_parts(answers.url, event=EVENT["event"], gold={"aggregates": sums})
    take(parts, [bet(1, one, "1.5", chips=7), bet(1, one, "0.001")])
    take(parts, [bet(2, two, "20", chips=8), bet(2, two, "1", chips=2**63)])
    parts.gold.run()
    rows = parts.spark.read.format("delta").load(str(parts.lake.path("silver_uno_events")))
    assert [tuple(row) for row in rows.where("amount > 1.5 AND stack.chips = 8").select("amount").collect()] == [
        (Decimal("20.00"),)
    ]
    assert parts.read("quarantine_events").sort("offset").select("offset", "cause").rows() == [
        (1, "decode_type"),
        (3, "decode_type"),
    ]
    assert parts.read("gold_uno_player_agg")["total"].to_list() == [Decimal("21.50")]
    result = rebuild(parts)
    assert result["tables"]["silver_uno_events"]["present"] == 2
    assert (result["exit_code"], result["named"], result["replayable"]) == (0, {}, 0)
    assert result["gold"]["gold_uno_player_agg"]["differing"] == 0
