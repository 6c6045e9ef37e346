"""Rows become Protobuf messages from which the same rows are decoded, whatever the schema is."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from spark_app.followers.sinks.proto_rows import RowEncoder
from spark_app.model.catalog import Decodable
from spark_app.protobuf.columns.types import has_maps
from spark_app.protobuf.decode import decoder_for
from tests.support.examples import examples
from tests.support.messages import decodables, payloads_of, pool_of, row_or_cause
from tests.support.protos import PROTO3, compile_text, message_class

ROWS = 64


@given(decodables(), st.integers(0, 2**32))
@examples()
def test_the_way_back_gives_the_same_rows(decodable: Decodable, seed: int) -> None:
    kind = message_factory.GetMessageClass(pool_of(decodable).FindMessageTypeByName("r.M"))
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    payloads = payloads_of(kind, random.Random(seed), ROWS)
    before = decoder.decode(pa.array(payloads, pa.binary()))
    written, fits, why = RowEncoder(decoder.message).encode(before.table)
    assert bool(why) is not bool(fits.all())
    assert decoder.decode(written.cast(pa.binary())).rejects == []
    for row, payload, fit in zip(before.rows, written.to_pylist(), fits, strict=True):
        sent = kind.FromString(payloads[row])
        assert fit == sent.IsInitialized()
        if fit:
            assert row_or_cause(kind, payload) == row_or_cause(kind, payloads[row])


@given(decodables(tame=True), st.integers(0, 2**32))
@examples()
def test_bytes_are_those_of_the_official_serializer(decodable: Decodable, seed: int) -> None:
    """For messages whose columns keep all that they have."""
    kind = message_factory.GetMessageClass(pool_of(decodable).FindMessageTypeByName("r.M"))
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    before = decoder.decode(pa.array(payloads_of(kind, random.Random(seed), ROWS), pa.binary()))
    written, fits, _ = RowEncoder(decoder.message).encode(before.table)
    assert fits.all()
    for payload in written.to_pylist():
        official = kind.FromString(payload).SerializeToString(deterministic=True)
        assert official == payload or (has_maps(kind.DESCRIPTOR) and len(official) == len(payload))


KINDS = compile_text(
    PROTO3
    + """
import "google/protobuf/duration.proto"; import "google/protobuf/struct.proto"; import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto"; import "google/protobuf/any.proto"; import "google/protobuf/empty.proto";
import "confluent/type/decimal.proto";
message A {
  int32 i = 1; uint32 u = 2; uint64 big = 3; float f = 4; string s = 5; Suit suit = 6; repeated int32 list = 7;
  map<string, int32> map = 8; oneof one { string x = 9; int64 y = 10; } google.protobuf.Duration d = 11;
  google.protobuf.Struct json = 12; google.protobuf.Int32Value wrapped = 13; google.protobuf.Timestamp at = 14;
  B b = 15; confluent.type.Decimal price = 16; google.protobuf.Empty nothing = 17; bytes raw = 18; A inner = 19;
  google.protobuf.Any any = 20; double real = 21; bool flag = 22;
}
message B { int32 n = 1; }
enum Suit { NONE = 0; HEARTS = 2; }
"""
)
SECOND = datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)


def written(name: str, values: pa.Array) -> tuple[list[bool], list[Any]]:
    """(for each value of the column whether it fits, the messages by the official parser)"""
    kind = message_class(KINDS, "A")
    found, fits, _ = RowEncoder(kind.DESCRIPTOR).encode(pa.table({name: values}))
    return fits.tolist(), [kind.FromString(payload) for payload in found.to_pylist()]


@pytest.mark.parametrize(
    ("name", "values", "due"),
    [
        ("i", pa.array([1, -1, None], pa.int16()), [1, -1, 0]),
        ("i", pa.array([2.0, -3.0]), [2, -3]),
        ("u", pa.array([2**32 - 1]), [2**32 - 1]),
        ("big", pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        ("big", pa.array([Decimal(7)], pa.decimal128(9, 0)), [7]),
        ("f", pa.array([1.5, float("inf"), None]), [1.5, float("inf"), 0.0]),
        ("real", pa.array([0.1, -0.0, 1e300]), [0.1, -0.0, 1e300]),
        ("flag", pa.array([True, False, None]), [True, False, False]),
        ("s", pa.array(["a", "", None], pa.large_string()), ["a", "", ""]),
        ("s", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("s", pa.array([12]), ["12"]),
        ("s", pa.array([date(2026, 1, 2)]), ["2026-01-02"]),
        ("s", pa.array([Decimal("1.50")], pa.decimal128(5, 2)), ["1.50"]),
        ("raw", pa.array(["a", b"\xff"], pa.large_binary()), [b"a", b"\xff"]),
        ("suit", pa.array(["HEARTS", "2", "0", "77"]), [2, 2, 0, 77]),
        ("suit", pa.array([2, 0]), [2, 0]),
        ("list", pa.array([[1, 2], [], None]), [[1, 2], [], []]),
        ("wrapped", pa.array([0, 5]), [0, 5]),
        ("x", pa.array(["", "a"]), ["", "a"]),
    ],
)
def test_values_of_other_types_are_converted_without_loss(name: str, values: pa.Array, due: list[Any]) -> None:
    fits, messages = written(name, values)
    assert fits == [True] * len(values)
    found = [getattr(message, name) for message in messages]
    plain = [list(one) if name == "list" else getattr(one, "value", one) for one in found]
    assert plain == due
    for message, value in zip(messages, values.to_pylist(), strict=True):
        if message.DESCRIPTOR.fields_by_name[name].has_presence:
            assert message.HasField(name) is (value is not None)


@pytest.mark.parametrize(
    ("name", "values", "fits"),
    [
        ("i", pa.array([2**31, 1, -(2**31) - 1]), [False, True, False]),
        ("u", pa.array([-1, 2**32, 0]), [False, False, True]),
        ("big", pa.array([Decimal(-1), Decimal(2**64), None], pa.decimal128(20, 0)), [False, False, True]),
        ("f", pa.array([0.1, 1e300, float("nan")]), [False, False, True]),
        ("i", pa.array([1.5, float("nan"), 2.0]), [False, False, True]),
        ("i", pa.array(["1", None]), [False, True]),
        ("s", pa.array([b"\xff", b"a"]), [False, True]),
        ("suit", pa.array(["CLUBS", "2147483648", "", "-1"]), [False, False, False, True]),
        ("suit", pa.array([1.5]), [False]),
        ("list", pa.array([[1, None], [2**31], [7], None]), [False, False, True, True]),
        ("list", pa.array([1, None]), [False, True]),
        (
            "map",
            pa.array([[("a", None)], [("a", 2**31)], [("a", 1)]], pa.map_(pa.string(), pa.int64())),
            [False, False, True],
        ),
        ("d", pa.array([2**62, -(2**62), 1]), [False, False, True]),
        ("d", pa.array(["1s", None]), [False, True]),
        ("at", pa.array([1, None]), [False, True]),
        ("json", pa.array(["{", "[1]", '{"a": 1}', None]), [False, False, True, True]),
        ("json", pa.array([1, None]), [False, True]),
        ("b", pa.array([{"n": 1}, {"n": 2**31}, None]), [True, False, True]),
        ("b", pa.array([{"n": 1, "other": None}, {"n": 1, "other": 2}]), [True, False]),
        ("b", pa.array([1, None]), [False, True]),
        ("unknown", pa.array([1, None]), [False, True]),
        ("unknown", pa.array([[1], [], None]), [False, True, True]),
        ("price", pa.array([1, None]), [False, True]),
    ],
)
def test_a_value_that_does_not_fit_is_found(name: str, values: pa.Array, fits: list[bool]) -> None:
    assert written(name, values)[0] == fits


def test_times_and_messages_of_google() -> None:
    kind = message_class(KINDS, "A")
    rows = pa.table(
        {
            "at": pa.array([SECOND], pa.timestamp("ms", "UTC")),
            "d": pa.array([-1_500_000]),
            "json": ['{"a": [1, null, "x"]}'],
            "price": pa.array([Decimal("-1.50")], pa.decimal128(10, 2)),
            "nothing": [True],
            "inner": ['{"i": 5, "inner": {"s": "deep"}}'],
            "any": ['{"@type": "type.googleapis.com/nobody.Knows", "value": "CAU="}'],
        }
    )
    found, fits, why = RowEncoder(kind.DESCRIPTOR).encode(rows)
    assert fits.all(), why
    message = kind.FromString(found[0].as_py())
    assert (message.at.seconds, message.at.nanos) == (-1, 500_000_000)
    assert (message.d.seconds, message.d.nanos) == (-1, -500_000_000)
    assert message.json["a"][2] == "x"
    assert (message.price.value, message.price.scale, message.price.precision) == (b"\xff\x6a", 2, 10)
    assert message.HasField("nothing")
    assert message.inner.inner.s == "deep"
    assert (message.any.type_url, message.any.value) == ("type.googleapis.com/nobody.Knows", b"\x08\x05")


def test_of_a_oneof_one_value_can_be_there() -> None:
    kind = message_class(KINDS, "A")
    rows = pa.table({"x": ["a", None, "b"], "y": pa.array([None, 1, 2], pa.int64())})
    _, fits, why = RowEncoder(kind.DESCRIPTOR).encode(rows)
    assert fits.tolist() == [True, True, False]
    assert why == "more than one field of a oneof: the value does not fit A"


def test_slices_are_written_as_whole_columns_are() -> None:
    kind = message_class(KINDS, "A")
    rows = pa.table(
        {
            "list": [[1], [], [2, 3], None, [4]],
            "map": pa.array([[("a", 1)], [], None, [("b", 2), ("c", 3)], []], pa.map_(pa.string(), pa.int64())),
            "b": [{"n": 1}, None, {"n": 3}, {"n": 4}, {"n": 5}],
        }
    )
    encoder = RowEncoder(kind.DESCRIPTOR)
    whole = encoder.encode(rows)[0].to_pylist()
    parts = [encoder.encode(rows.slice(start, 2))[0].to_pylist() for start in (0, 2, 4)]
    assert [one for part in parts for one in part] == whole
    assert encoder.encode(rows.slice(0, 0))[0].to_pylist() == []
