"""What lands of every feature of the language that is not everyday proto3. Payloads are written by Google's classes."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_app.audit.expected import expected, rows_of
from spark_app.model.catalog import DecodeOptions
from spark_app.model.causes import Cause
from spark_app.protobuf.columns.types import DEEPEST, has_maps
from spark_app.protobuf.decode import Decoder, decoder_for
from spark_app.protobuf.decode.decoder import STRICT
from tests.support.messages import row_or_cause
from tests.support.protos import PROTO3, compile_text, message_class

PROTO2 = 'syntax = "proto2";\n'
EDITION = 'edition = "2023";\n'
NINE = b"\x08\x09"  # field 1 = 9


def prepare(text: str, options: DecodeOptions = STRICT) -> tuple[Decoder, Any]:
    decodable = compile_text(text)
    decoder = decoder_for(decodable, (0,), options)
    assert decoder is not None
    return decoder, message_class(decodable, "M")


def land(decoder: Decoder, payload: bytes) -> object:
    """The row, or the cause."""
    decoded = decoder.decode(pa.array([payload], pa.binary()))
    return rows_of(decoded.table)[0] if len(decoded.rows) else decoded.rejects[0][1]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (PROTO2 + "enum E { A = 1; } message M { optional E e = 1; }", {"e": None}),
        (EDITION + "enum E { option features.enum_type = CLOSED; A = 1; } message M { E e = 1; }", {"e": None}),
        (EDITION + "enum E { A = 0; } message M { E e = 1; }", {"e": "9"}),
        (PROTO3 + "enum E { A = 0; } message M { E e = 1; }", {"e": "9"}),
        (PROTO2 + "enum E { A = 1; } message M { repeated E e = 1; }", {"e": []}),
    ],
    ids=["proto2", "closed in an edition", "open in an edition", "proto3", "list of proto2"],
)
def test_unknown_number_lands_as_digits_where_the_enum_is_open(text: str, row: dict[str, Any]) -> None:
    decoder, message = prepare(text)
    assert land(decoder, NINE) == row == row_or_cause(message, NINE)


def test_missing_required_field_is_null_and_the_record_lands() -> None:
    """As Google's parser has it: FromString does not look."""
    decoder, message = prepare(PROTO2 + "message M { required string s = 1; optional int32 n = 2 [default = 7]; }")
    assert land(decoder, b"") == {"s": None, "n": None} == row_or_cause(message, b"")


@pytest.mark.parametrize(
    "text",
    [
        PROTO2
        + "message M { optional group G = 1 { optional int32 x = 1; } repeated group L = 2 { optional M m = 1; } }",
        EDITION
        + "message M { G g = 1 [features.message_encoding = DELIMITED];"
        + " repeated L l = 2 [features.message_encoding = DELIMITED]; }"
        + " message G { int32 x = 1; } message L { M m = 1; }",
    ],
    ids=["group", "DELIMITED"],
)
def test_groups_land_as_messages_do(text: str) -> None:
    decoder, message = prepare(text)
    value = message()
    value.g.x = 5
    value.l.add()
    value.l.add().m.g.x = 6
    payload = value.SerializeToString()
    assert b"\x0b\x08\x05\x0c" in payload
    assert land(decoder, payload) == expected(value)
    assert land(decoder, payload)["g"] == {"x": 5}  # type: ignore[index]


def test_presence_in_an_edition() -> None:
    text = EDITION + (
        "message M { int32 explicit = 1; int32 implicit = 2 [features.field_presence = IMPLICIT];"
        " int32 needed = 3 [features.field_presence = LEGACY_REQUIRED]; }"
    )
    decoder, message = prepare(text)
    assert land(decoder, b"") == {"explicit": None, "implicit": 0, "needed": None}
    sent = message(explicit=0, implicit=0, needed=0).SerializeToString()
    assert land(decoder, sent) == {"explicit": 0, "implicit": 0, "needed": 0}
    blank, _ = prepare(text, DecodeOptions(defaults=False))
    assert land(blank, sent) == {"explicit": 0, "implicit": None, "needed": 0}


def test_extensions_are_unknown_fields() -> None:
    """Nobody knows all the files that may extend a message; the raw record has them."""
    text = PROTO2 + "message M { optional int32 n = 1; extensions 100 to 199; } extend M { optional string x = 100; }"
    decoder, message = prepare(text)
    value = message(n=1)
    value.Extensions[value.DESCRIPTOR.file.extensions_by_name["x"]] = "kept in bronze"
    assert land(decoder, value.SerializeToString()) == {"n": 1}


CHAIN = (
    "".join(f"message N{n} {{ string at = 1; N{n + 1} in = 2; }} " for n in range(1, 20))
    + "message N20 { int32 x = 1; }"
)


def test_what_is_too_deep_is_kept_as_json() -> None:
    decoder, message = prepare(PROTO3 + "message M { N1 in = 1; } " + CHAIN)
    value = message()
    level = getattr(value, "in")
    for number in range(1, 20):
        level.at = f"level {number}"
        level = getattr(level, "in")
    level.x = 5
    row = land(decoder, value.SerializeToString())
    assert row == expected(value)
    found: Any = row
    for _ in range(DEEPEST):
        found = found["in"]
    assert '"x": 5' in found
    assert '"at": "level 15"' in found


def test_recursion_is_kept_as_json() -> None:
    decoder, message = prepare(PROTO3 + "message M { int32 n = 1; M m = 2; repeated M l = 3; map<string, M> k = 4; }")
    value = message(n=1)
    value.m.m.n = 3
    value.l.add(n=4)
    value.k["a"].n = 5
    row = land(decoder, value.SerializeToString())
    assert row == {"n": 1, "m": '{"m": {"n": 3}}', "l": ['{"n": 4}'], "k": [["a", '{"n": 5}']]}


ANY = 'import "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; } message R { int32 x = 1; }'


@pytest.mark.parametrize(
    ("url", "landed"),
    [
        ("type.googleapis.com/R", '{"@type": "type.googleapis.com/R", "x": 1}'),
        ("type.googleapis.com/Nobody", '{"@type": "type.googleapis.com/Nobody", "value": "CAE="}'),
        ("", '{"@type": "google.protobuf.Any", "value": "EgIIAQ=="}'),
    ],
    ids=["in the files", "in no file", "without a type"],
)
def test_any_lands_as_json_or_as_its_bytes(url: str, landed: str) -> None:
    decoder, message = prepare(PROTO3 + ANY)
    value = message()
    value.a.type_url, value.a.value = url, b"\x08\x01"
    assert land(decoder, value.SerializeToString()) == {"a": landed}


SHAPES = """
import "google/protobuf/empty.proto"; import "google/protobuf/field_mask.proto"; import "google/protobuf/struct.proto";
import "google/type/money.proto"; import "google/type/date.proto"; import "google/type/timeofday.proto";
message M {
  google.protobuf.Empty e = 1; google.protobuf.FieldMask f = 2; google.protobuf.Struct s = 3; google.type.Money m = 4;
  google.type.Date d = 5; google.type.TimeOfDay t = 6;
}
"""


def test_well_known_messages_without_a_type_of_their_own_land_as_structs() -> None:
    decoder, message = prepare(PROTO3 + SHAPES)
    value = message()
    value.e.SetInParent()
    value.f.paths.append("a.b")
    value.s["k"] = [1, None]
    value.m.currency_code, value.m.units, value.m.nanos = "EUR", 2**40, -5
    value.d.year, value.t.hours = 2026, 25
    row = land(decoder, value.SerializeToString())
    assert row == expected(value)
    assert row == {
        "e": True,
        "f": {"paths": ["a.b"]},
        "s": '{"k": [1.0, null]}',
        "m": {"currency_code": "EUR", "units": 2**40, "nanos": -5},
        "d": {"year": 2026, "month": 0, "day": 0},
        "t": {"hours": 25, "minutes": 0, "seconds": 0, "nanos": 0},
    }


def test_unsigned_numbers_do_not_wrap() -> None:
    decoder, message = prepare(
        PROTO3 + "message M { uint32 a = 1; fixed32 b = 2; uint64 c = 3; fixed64 d = 4; repeated uint64 e = 5; }"
    )
    value = message(a=2**32 - 1, b=2**32 - 1, c=2**64 - 1, d=2**64 - 1, e=[2**63])
    due = {"a": 2**32 - 1, "b": 2**32 - 1, "c": Decimal(2**64 - 1), "d": Decimal(2**64 - 1), "e": [Decimal(2**63)]}
    assert land(decoder, value.SerializeToString()) == due


def test_empty_payload_is_a_row_of_defaults() -> None:
    decoder, _ = prepare(
        PROTO3 + "message M { int32 n = 1; optional int32 o = 2; M2 m = 3; } message M2 { int32 x = 1; }"
    )
    assert land(decoder, b"") == {"n": 0, "o": None, "m": None}
    assert land(decoder, b"\x08") == Cause.DECODE_PAYLOAD


def test_messages_below_the_deepest_level_may_contain_each_other_in_any_number_of_ways() -> None:
    """They are JSON text, and so one column for every cap."""
    chain = "".join(f"message C{i} {{ C{i + 1} f = 1; }}" for i in range(DEEPEST))
    tree = "".join(f"message C{i} {{ C{i + 1} f = 1; C{i + 1} g = 2; }}" for i in range(DEEPEST, DEEPEST + 40))
    text = f"{PROTO3}{chain}{tree} message C{DEEPEST + 40} {{ string s = 1; }}"
    decodable = compile_text(f'{PROTO3}import "c.proto"; message M {{ C0 c = 1; }}', {"c.proto": text})
    assert not has_maps(message_class(decodable, "M").DESCRIPTOR)
    with_map = text.replace("string s = 1;", "map<string, string> s = 1;")
    decodable = compile_text(f'{PROTO3}import "c.proto"; message M {{ C0 c = 1; }}', {"c.proto": with_map})
    assert has_maps(message_class(decodable, "M").DESCRIPTOR)
