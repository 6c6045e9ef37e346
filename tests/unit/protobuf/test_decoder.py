"""Payloads to columns: what Google's parser says is what lands. Payloads are written by Google's classes."""

import contextlib
import datetime
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from spark_app.lake.delta.merged_columns import find_clash
from spark_app.model.catalog import DecodeOptions
from spark_app.model.causes import Cause
from spark_app.model.record_schemas import RESERVED
from spark_app.protobuf.decode import Decoder, decoder_for
from spark_app.protobuf.decode.columns import ColumnBuilder
from spark_app.protobuf.decode.decoder import STRICT
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
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NEGATIVE = b"\x20\xff\xff\xff\xff\x0f"  # n = -1 in 5 bytes; written back it takes 10
NO_FIELD = b"\xf2\x3f\x01x"  # a number that no message has
UNPACKED = b"\x10\x01\x18\x01"  # p = [1], q = [1], not packed; written back each takes a byte more


def prepare(body: str, options: DecodeOptions = STRICT) -> tuple[Decoder, Any]:
    decodable = compile_text(PROTO3 + body)
    decoder = decoder_for(decodable, (0,), options)
    assert decoder is not None
    return decoder, message_class(decodable, "M")


def by_reference(decoder: Decoder, payload: bytes) -> list[dict[str, Any]]:
    """The columns as the fallback builds them from what Google's parser read."""
    messages, _ = decoder._parser.parse(pa.array([payload], pa.binary()))
    return ColumnBuilder(decoder.message).build(messages)[0].to_pylist()


def land(decoder: Decoder, *payloads: bytes) -> tuple[list[dict[str, Any]], list[Cause]]:
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    return decoded.table.to_pylist(), [cause for _, cause, _ in decoded.rejects]


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a\x02\x08\x05\x0a\x02\x10\x64",
        b"\x2a\x05\x0a\x01a\x10\x01" * 2,
        b"\x30\x01\x3a\x01x",
        b"\x2a\x07\x0a\x01a\x10\x01\x18\x01",
        b"\x2a\x03\x0a\x01a",
    ],
    ids=["merged message", "map key twice", "two members of a oneof", "unknown in a map entry", "no value in a map"],
)
def test_odd_payload_lands_as_the_reference_parser_reads_it(payload: bytes) -> None:
    decoder, _ = prepare(ODD)
    assert land(decoder, payload) == (by_reference(decoder, payload), [])


FLAT = "message M { map<string, int32> m = 1; N one = 3; } message N { int32 i = 1; }"
NESTED = (
    "message M { map<string, int32> m = 1; map<string, N> n = 2; N one = 3; } message N { map<string, int32> m = 1;}"
)
UNKNOWN = b"\x0a\x07\x0a\x01a\x10\x01\x18\x01"  # an entry of field 1 with a field that maps do not have


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        (FLAT, UNKNOWN),
        (FLAT, b"\x1a\x02\x10\x01" + UNKNOWN),
        (NESTED, b"\x1a\x09" + UNKNOWN),
        (NESTED, b"\x12\x0e\x0a\x01k\x12\x09" + UNKNOWN),
    ],
    ids=["in the message", "beside another unknown field", "in a nested one", "in a map's value"],
)
def test_no_entry_with_an_unknown_field_lands(text: str, payload: bytes) -> None:
    decoder, message = prepare(text)
    known = message(m={"b": 2}).SerializeToString()
    due = [by_reference(decoder, one)[0] for one in (known, payload, known)]
    assert land(decoder, known, payload, known) == (due, [])
    assert land(decoder, payload) == (due[1:2], [])
    assert "'a'" not in str(due)


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


def test_each_record_of_a_batch_is_judged_alone() -> None:
    """The parser gets many at a time: what is read must not depend on the neighbours."""
    decoder, message = prepare(ODD)
    refused, odd = b"\x0a\x05\x08", b"\x2a\x05\x0a\x01a\x10\x01" * 2
    payloads = [message(n=n).SerializeToString() for n in range(1100)]  # those before 512 and after 1023 without one
    payloads[512], payloads[543], payloads[544], payloads[1023] = b"", refused, odd, refused
    payloads[0], payloads[1099] = odd, odd
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    assert decoded.rows.tolist() == [n for n in range(1100) if n not in (543, 1023)]
    assert [(row, cause) for row, cause, _ in decoded.rejects] == [(n, Cause.DECODE_PAYLOAD) for n in (543, 1023)]
    due = [by_reference(decoder, payloads[n])[0] for n in decoded.rows]
    assert decoded.table.to_pylist() == due


def test_what_is_as_deep_as_the_parser_allows_lands() -> None:
    decoder, message = prepare(ODD)
    nested = {depth: b"\xf3\x3f" * depth + b"\xf4\x3f" * depth for depth in range(90, 110)}
    accepted = []
    for depth, payload in nested.items():
        with contextlib.suppress(DecodeError):
            message.FromString(payload)
            accepted.append(depth)
    assert 90 < len(accepted) + 90 < 110
    rows, causes = land(decoder, *nested.values())
    assert len(rows) == len(accepted)
    assert causes == [Cause.DECODE_PAYLOAD] * (len(nested) - len(accepted))


def test_what_another_encoder_wrote_takes_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps come in any order: it must not cost a producer nine tenths of the speed."""
    decoder, message = prepare(ODD)
    value = message(n=1, m={"b": 2, "a": 1})
    backwards = message(n=1).SerializeToString() + b"\x2a\x05\x0a\x01b\x10\x02\x2a\x05\x0a\x01a\x10\x01"
    monkeypatch.delattr(decoder, "_builder")
    rows, causes = land(decoder, backwards, value.SerializeToString(deterministic=True))
    assert rows[0] == rows[1]
    assert rows[0]["m"] == [("a", 1), ("b", 2)]
    assert causes == []


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800, 18_446_744_073_710, 1 << 60])
def test_timestamp_outside_the_calendar_is_rejected(seconds: int) -> None:
    decoder, message = prepare(TIMES)
    value = message()
    value.l.add().seconds = seconds
    assert land(decoder, value.SerializeToString()) == ([], [Cause.DECODE_RANGE])


def test_timestamp_in_a_map_does_not_abort_the_worker() -> None:
    code = f"""
from tests.unit.protobuf.test_decoder import land, prepare
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


@pytest.mark.parametrize("nanos", [1, 999_999_999, -1, -1500, 10**9, 2**31 - 1, -(2**31)])
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


NO_TEXT_IN_JSON = {
    "string": b"\x0a\x03\x12\x01\xff",
    "list": b"\x0a\x03\x1a\x01\xff",
    "map key": b"\x0a\x07\x22\x05\x0a\x01\xff\x10\x01",
    "message in a map": b"\x0a\x09\x2a\x07\x08\x01\x12\x03\x12\x01\xff",
}


@pytest.mark.parametrize("payload", NO_TEXT_IN_JSON.values(), ids=NO_TEXT_IN_JSON)
def test_proto2_string_that_is_no_text_does_not_land_inside_json(payload: bytes) -> None:
    decodable = compile_text(
        """syntax = "proto2";
        message M {
          optional M m = 1; optional string s = 2; repeated string l = 3; map<string, int32> k = 4; map<int32, M> v = 5;
        }"""
    )
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    assert land(decoder, payload) == ([], [Cause.DECODE_PAYLOAD])


CLASHING = """
message M {
  int32 GAME = 5; int32 game = 2; int32 Game = 3; int32 Game_3 = 4; int32 _OFFSET = 6; int32 _key = 7; N n = 8;
}
message N { int32 _offset = 1; int32 a = 3; int32 A = 2; repeated N2 l = 4; map<string, N2> m = 5; }
message N2 { string b = 1; string B = 2; }
"""


def test_names_that_are_the_same_for_delta_get_their_number() -> None:
    decoder, message = prepare(CLASHING)
    value = message(GAME=5, game=2, Game=3, Game_3=4, _OFFSET=6, _key=7)
    value.n._offset, value.n.a, value.n.A = 1, 3, 2
    value.n.l.add(b="b", B="B")
    value.n.m["k"].B = "B"
    inner = {"_offset": 1, "A": 2, "a_3": 3, "l": [{"b": "b", "B_2": "B"}], "m": [("k", {"b": "", "B_2": "B"})]}
    row = {"game": 2, "Game_3_3": 3, "Game_3": 4, "GAME_5": 5, "_OFFSET_6": 6, "_key_7": 7, "n": inner}
    assert land(decoder, value.SerializeToString()) == ([row], [])
    assert find_clash(decoder.schema) is None


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_of_our_own_columns_are_used_on_both_paths(name: str) -> None:
    decoder, message = prepare(f"message M {{ int32 {name} = 1; string {name}_1 = 2; }}")
    assert decoder._fast is not None
    for payload in (message(**{name: 4}).SerializeToString(), NO_FIELD + message(**{name: 4}).SerializeToString()):
        assert land(decoder, payload) == ([{f"{name}_1_1": 4, f"{name}_1": ""}], [])


DEFAULTS = """
enum E { ZERO = 0; NIL = 0; ONE = 1; option allow_alias = true; }
message M {
  int32 i = 1; uint64 u = 2; float f = 3; double d = 4; bool b = 5; string s = 6; bytes y = 7; E e = 8;
  optional int32 oi = 9; oneof o { string os = 10; } repeated E l = 11; map<string, int32> m = 12;
  M2 n = 13; repeated M2 nl = 14; map<int32, M2> nm = 15;
}
message M2 { int32 i = 1; optional bool b = 2; repeated M3 l = 3; }
message M3 { E e = 1; }
"""
PANICS = b"\x12\x03\x0a\x01k"  # a map entry without its value
BLANK = dict.fromkeys(["i", "u", "f", "d", "b", "s", "y", "e"])


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("extra", [b"", NO_FIELD], ids=["canonical", "with an unknown field"])
def test_defaults_land_as_null_where_they_have_no_presence(strict: bool, extra: bytes) -> None:
    decoder, message = prepare(DEFAULTS, DecodeOptions(strict, defaults=False))
    value = message(oi=0, os="", l=["ZERO"], m={"": 0})
    value.n.b = False
    value.nl.add().l.add()
    value.nl.add(i=7).l.add(e=1)
    value.nm[0].SetInParent()
    rows, causes = land(decoder, *(payload + extra for payload in (value.SerializeToString(), b"", b"\x08\x01")))
    nothing = {"i": None, "b": None, "l": []}
    nested = {
        "n": nothing | {"b": False},
        "nl": [nothing | {"l": [{"e": None}]}, nothing | {"i": 7, "l": [{"e": "ONE"}]}],
        "nm": [(0, nothing)],
    }
    assert rows[0] == BLANK | {"oi": 0, "os": "", "l": ["ZERO"], "m": [("", 0)]} | nested
    empty = BLANK | {"oi": None, "os": None, "l": [], "m": [], "n": None, "nl": [], "nm": []}
    assert rows[1:] == [empty, empty | {"i": 1}]
    assert causes == []


def test_minus_zero_is_no_default() -> None:
    decoder, message = prepare(DEFAULTS, DecodeOptions(defaults=False))
    rows, _ = land(decoder, message(f=-0.0, d=-0.0).SerializeToString())
    assert (repr(rows[0]["f"]), repr(rows[0]["d"])) == ("-0.0", "-0.0")


def test_of_enum_aliases_the_first_one_lands_on_both_paths() -> None:
    decoder, message = prepare(DEFAULTS)
    payload = message(l=["NIL"]).SerializeToString()
    assert [row["l"] for row in land(decoder, payload, payload + NO_FIELD)[0]] == [["ZERO"], ["ZERO"]]


LAX = """
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message M {
  int32 n = 1; repeated fixed64 w = 2; oneof o { int32 a = 3; string b = 4; } map<string, int32> m = 5;
  google.protobuf.Timestamp t = 6; google.protobuf.Duration d = 7; google.protobuf.Int64Value v = 8;
  repeated fixed32 x = 9;
}
"""
GROUP, END, OTHER_END = b"\x83\x06", b"\x84\x06", b"\x8c\x06"  # tags of the unknown fields 96 and 97
# What decoding.md says is read otherwise without strictness: payload -> (fields by Google's parser, None = refused;
# fields without strictness). No serializer writes these.
OTHERWISE: dict[str, tuple[bytes, dict[str, Any] | None, dict[str, Any]]] = {
    "ragged list of 8 bytes": (b"\x12\x0c" + b"\0" * 12, None, {"w": [0]}),
    "ragged list of 4 bytes": (b"\x4a\x06" + b"\0" * 6, None, {"x": [0]}),
    "tag of six bytes": (b"\x88\x80\x80\x80\x80\0\5", None, {"n": 5}),
    "field number 2^29": (b"\x80\x80\x80\x80\x10\1", None, {}),
    "groups that do not match": (GROUP + OTHER_END, None, {}),
    "groups 101 deep": (GROUP * 101 + END * 101, None, {}),
    "two members of a oneof": (b"\x18\5\x22\1x", {"b": "x"}, {"a": 5, "b": "x"}),
    "a map key twice": (b"\x2a\5\x0a\1k\x10\1\x2a\5\x0a\1k\x10\2", {"m": [("k", 2)]}, {"m": [("k", 1), ("k", 2)]}),
    "an entry with an unknown field": (b"\x2a\7\x0a\1k\x10\1\x18\1", {}, {"m": [("k", 1)]}),
    "an entry's key of another type": (b"\x2a\4\x08\1\x10\1", {}, {"m": [("", 1)]}),
    "parts of a timestamp": (
        b"\x32\2\x08\5\x32\3\x10\xe8\7",
        {"t": EPOCH + timedelta(seconds=5, microseconds=1)},
        {"t": EPOCH + timedelta(microseconds=1)},
    ),
    "parts of a duration": (b"\x3a\2\x08\5\x3a\3\x10\xe8\7", {"d": 5_000_001}, {"d": 1}),
    "a wrapper twice": (b"\x42\2\x08\5\x42\0", {"v": 5}, {"v": 0}),
}


@pytest.mark.parametrize(("payload", "due", "lax"), OTHERWISE.values(), ids=OTHERWISE)
def test_what_lands_otherwise_without_strictness(
    payload: bytes, due: dict[str, Any] | None, lax: dict[str, Any]
) -> None:
    nothing = {"n": 0, "w": [], "a": None, "b": None, "m": [], "t": None, "d": None, "v": None, "x": []}
    rows, causes = land(prepare(LAX)[0], payload)
    assert (rows, causes) == (([], [Cause.DECODE_PAYLOAD]) if due is None else ([nothing | due], []))
    assert land(prepare(LAX, DecodeOptions(strict=False))[0], payload) == ([nothing | lax], [])


@pytest.mark.parametrize("options", [STRICT, DecodeOptions(strict=False)], ids=["strict", "not strict"])
@pytest.mark.parametrize("more", ["", "M self = 2;"], ids=["fast", "by the fallback"])
def test_all_entries_of_a_map_land_in_whatever_order(options: DecodeOptions, more: str) -> None:
    decoder, message = prepare(f"message M {{ map<string, int32> m = 1; {more} }}", options)
    entries = {key: number for number, key in enumerate(["b", "", "abc", "a", "ab"])}
    rows, causes = land(decoder, message(m=entries).SerializeToString())
    assert (sorted(rows[0]["m"]), causes) == (sorted(entries.items()), [])


TRUSTED = "message M { int32 n = 1; map<string, M2> m = 2; string s = 3; } message M2 { int32 x = 1; }"


def test_without_strictness_the_reference_parser_reads_what_ptars_refuses() -> None:
    decoder, message = prepare(TRUSTED, DecodeOptions(strict=False))
    good = message(n=5).SerializeToString()
    payloads = [good] * 2000
    payloads[700], payloads[701], payloads[1900] = b"\x1a\x01\xff", PANICS, b"\x1a\xff"
    rows, causes = land(decoder, *payloads)
    due = [{"n": 5, "m": [], "s": ""}] * 1998
    due[700] = {"n": 0, "m": [("k", {"x": 0})], "s": ""}
    assert (rows, causes) == (due, [Cause.DECODE_PAYLOAD] * 2)
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    assert [row for row, _, _ in decoded.rejects] == [700, 1900]
    assert decoded.rows.tolist() == sorted(set(range(2000)) - {700, 1900})
