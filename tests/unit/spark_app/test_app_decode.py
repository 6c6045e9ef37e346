"""Payloads to columns: what Google's parser says is what lands. Payloads are written by Google's classes."""

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from spark_app.records import Cause
from spark_app.worker.decode import Decoder, decoder_for
from spark_app.worker.decode.columns import ColumnBuilder
from tests.support.protos import PROTO3, compile_text, message_class

TIMES = """
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message M { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; repeated google.protobuf.Timestamp l = 3; }
"""
ODD = """
import "google/protobuf/timestamp.proto";
message M {
  google.protobuf.Timestamp t = 1; repeated int32 p = 2; repeated int32 q = 3; int32 n = 4; map<string, int32> m = 5;
  oneof o { int32 a = 6; string b = 7; }
}
"""
ANY = 'import "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; } message R { int32 x = 1; }'
VALUE = 'import "google/protobuf/struct.proto"; message M { google.protobuf.Value v = 1; }'
IN_A_MAP = 'import "google/protobuf/timestamp.proto"; message M { map<string, google.protobuf.Timestamp> m = 1; }'
NEGATIVE = b"\x20\xff\xff\xff\xff\x0f"  # n = -1 in 5 bytes; written back it takes 10
UNPACKED = b"\x10\x01\x18\x01"  # p = [1], q = [1], not packed; written back each takes a byte more


def prepare(body: str) -> tuple[Decoder, Any]:
    decodable = compile_text(PROTO3 + body)
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    return decoder, message_class(decodable, "M")


def by_reference(decoder: Decoder, payload: bytes) -> list[dict[str, Any]]:
    """The columns as the fallback builds them from what the reference parser read."""
    judgement = decoder._parser.judge(pa.array([payload], pa.binary()), keep=True)
    return ColumnBuilder(type(judgement.odd[0][1]).DESCRIPTOR).build(judgement.odd)[0].to_pylist()


def land(decoder: Decoder, *payloads: bytes) -> tuple[list[dict[str, Any]], list[Cause]]:
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    return decoded.table.to_pylist(), [cause for _, cause, _ in decoded.rejects]


@pytest.mark.parametrize(
    "payload",
    [b"\x0a\x02\x08\x05\x0a\x02\x10\x64", b"\x2a\x05\x0a\x01a\x10\x01" * 2, b"\x30\x01\x3a\x01x"],
    ids=["merged message", "map key twice", "two members of a oneof"],
)
def test_odd_payload_lands_as_the_reference_parser_reads_it(payload: bytes) -> None:
    decoder, _ = prepare(ODD)
    assert land(decoder, payload) == (by_reference(decoder, payload), [])


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a\x02\x08\x05\x0a\x02\x10\x64" + UNPACKED,
        b"\x2a\x05\x0a\x01a\x10\x01" * 2 + NEGATIVE + UNPACKED,
        b"\x30\x01\x3a\x01x" + UNPACKED,
    ],
    ids=["merged message", "map key twice", "two members of a oneof"],
)
def test_odd_payload_of_canonical_size_lands_as_the_reference_parser_reads_it(payload: bytes) -> None:
    decoder, _ = prepare(ODD)
    assert land(decoder, payload) == (by_reference(decoder, payload), [])


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800, 18_446_744_073_710, 1 << 60])
def test_timestamp_outside_the_calendar_is_rejected(seconds: int) -> None:
    decoder, message = prepare(TIMES)
    value = message()
    value.l.add().seconds = seconds
    assert land(decoder, value.SerializeToString()) == ([], [Cause.DECODE_RANGE])


def test_timestamp_in_a_map_does_not_abort_the_worker() -> None:
    code = f"""
from tests.unit.spark_app.test_app_decode import land, prepare
decoder, message = prepare({IN_A_MAP!r})
value = message()
value.m["a"].seconds = 5
rows, causes = land(decoder, value.SerializeToString())
assert rows[0]["m"][0][1].timestamp() == 5 and not causes
value.m["b"].seconds = 1 << 50
assert [cause.value for cause in land(decoder, value.SerializeToString())[1]] == ["decode_range"]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("seconds", [9_223_372_036_855, 1 << 60, -(1 << 60)])
def test_duration_beyond_64_bits_is_rejected(seconds: int) -> None:
    decoder, message = prepare(TIMES)
    value = message()
    value.d.seconds = seconds
    assert land(decoder, value.SerializeToString()) == ([], [Cause.DECODE_RANGE])


@pytest.mark.parametrize("nanos", [1, 999_999_999, -1, -1500])
@pytest.mark.parametrize("field", ["t", "d"])
def test_nanos_are_cut_the_same_way_on_both_paths(field: str, nanos: int) -> None:
    decoder, message = prepare(TIMES)
    value = message()
    getattr(value, field).nanos = nanos
    payload = value.SerializeToString()
    assert land(decoder, payload) == (by_reference(decoder, payload), [])


@pytest.mark.parametrize("url", ["type.googleapis.com/R", "x/unknown", ""])
def test_any_of_any_type_neither_crashes_nor_gets_lost(url: str) -> None:
    decoder, message = prepare(ANY)
    value = message()
    value.a.type_url = url
    value.a.value = b"\x08\x01"
    rows, causes = land(decoder, value.SerializeToString())
    assert len(rows) + len(causes) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_value_that_json_does_not_have_neither_crashes_nor_gets_lost(number: float) -> None:
    decoder, message = prepare(VALUE)
    value = message()
    value.v.number_value = number
    rows, causes = land(decoder, value.SerializeToString())
    assert len(rows) + len(causes) == 1


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        ("message M { optional string s = 1; }", b"\x0a\x01\xff"),
        ("message M { repeated string s = 1; }", b"\x0a\x01\xff"),
        ("message M { map<string, int32> s = 1; }", b"\x0a\x05\x0a\x01\xff\x10\x01"),
    ],
    ids=["string", "list", "map key"],
)
def test_proto2_string_that_is_no_text_is_rejected(body: str, payload: bytes) -> None:
    decoder = decoder_for(compile_text('syntax = "proto2"; ' + body), (0,))
    assert decoder is not None
    assert land(decoder, payload) == ([], [Cause.DECODE_PAYLOAD])


@pytest.mark.xfail(strict=True, reason="open: bytes that are no text land as Python's repr of them, inside the JSON")
def test_proto2_string_that_is_no_text_does_not_land_inside_json() -> None:
    decodable = compile_text('syntax = "proto2"; message M { optional M m = 1; optional string s = 2; }')
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    assert land(decoder, b"\x0a\x03\x12\x01\xff") == ([], [Cause.DECODE_PAYLOAD])
