"""Fields of another wire type than in the schema: a parser keeps them as unknown ones, so their columns are empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.model.catalog import DecodeOptions
from spark_app.model.causes import Cause
from spark_app.protobuf.decode.decoder import LOOKED_AT, Decoder, decoder_for
from spark_app.units.driver.status import Status
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text

GROUP = bytes.fromhex("0a016f1b0a0267671c")  # game_name = "o", and the group 3 with n = "gg"
EVENT = "message Event { string game_name = 1; repeated Item items = 3; } message Item { string n = 1; }"
SAID = "Event.items is sent as a group, and the schema has text, bytes or a message"


def decoder(text: str, **options: bool) -> Decoder:
    found = decoder_for(compile_text(text), (0,), DecodeOptions(**options))
    assert found is not None
    return found


def binary(*payloads: bytes) -> pa.Array:
    return pa.array(payloads, pa.binary())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("syntax", [PROTO3, 'syntax = "proto2";\n'])
def test_a_group_where_the_schema_has_a_message_is_said_and_the_row_lands(strict: bool, syntax: str) -> None:
    text = syntax + (EVENT if syntax == PROTO3 else EVENT.replace("string", "optional string"))
    decoded = decoder(text, strict=strict).decode(binary(b"\x0a\x01a", GROUP))
    assert decoded.misfit == SAID
    assert decoded.table.select(["game_name", "items"]).to_pylist() == [
        {"game_name": "a", "items": []},
        {"game_name": "o", "items": []},
    ]


@pytest.mark.parametrize("strict", [True, False])
def test_a_setting_keeps_such_payloads_out_wherever_they_are(strict: bool) -> None:
    rows = 3 * LOOKED_AT
    payloads = [GROUP if row in (5, rows - 1) else b"\x0a\x01a" for row in range(rows)]
    decoded = decoder(PROTO3 + EVENT, strict=strict, wire_types=True).decode(binary(*payloads))
    assert [(row, cause, said) for row, cause, said in decoded.rejects] == [
        (5, Cause.DECODE_WIRE, SAID),
        (rows - 1, Cause.DECODE_WIRE, SAID),
    ]
    assert decoded.rows.tolist() == [row for row in range(rows) if row not in (5, rows - 1)]


def test_a_required_field_that_is_missing_hides_nothing() -> None:
    found = decoder('syntax = "proto2"; message Event { required int32 a = 1; optional string b = 2; }')
    decoded = found.decode(binary(b"", b"\x10\x01"))  # the second has a number where the schema has a text
    assert decoded.misfit == "Event.b is sent as a varint, and the schema has text, bytes or a message"
    assert decoded.table.select(["a", "b"]).to_pylist() == [{"a": None, "b": None}] * 2


INNER = "message Inner { int32 x = 1; }"


@pytest.mark.parametrize(
    ("fields", "payload", "said"),
    [
        (
            "Inner i = 1;",
            b"\x0a\x02\x0a\x00",
            "Inner.x is sent as text, bytes or a message, and the schema has a varint",
        ),
        ("repeated Inner i = 1;", b"\x0a\x00\x0a\x02\x0b\x0c", "x is sent as a group, and the schema has a varint"),
        ("map<string, Inner> m = 1;", b"\x0a\x07\x0a\x01k\x12\x02\x0a\x00", "x is sent as text, bytes or a message"),
        ("int32 x = 1;", b"\x0d\0\0\0\0", "M.x is sent as a fixed32, and the schema has a varint"),
        ("double x = 1;", b"\x08\x01", "M.x is sent as a varint, and the schema has a fixed64"),
        ("string x = 1;", b"\x09" + bytes(8), "M.x is sent as a fixed64, and the schema has text, bytes or a message"),
        ("oneof o { string x = 1; int32 y = 2; }", b"\x12\x00", "M.y is sent as text, bytes or a message"),
    ],
)
def test_any_depth_and_any_type(fields: str, payload: bytes, said: str) -> None:
    assert said in decoder(f"{PROTO3}message M {{ {fields} }} {INNER}").decode(binary(payload)).misfit


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        (f"{PROTO3}message M {{ int32 x = 1; }}", b"\x08\x01\xf2\x3f\x01x"),  # a number that the message has not
        (f"{PROTO3}message M {{ repeated int32 x = 1; }}", b"\x08\x01\x0a\x02\x01\x02"),  # packed, and not
        ('syntax = "proto2"; message M { repeated int32 x = 1; }', b"\x0a\x02\x01\x02"),
        ('syntax = "proto2"; enum E { A = 0; } message M { optional E e = 1; }', b"\x08\x07"),  # a new value
        ('syntax = "proto2"; enum E { A = 0; } message M { repeated E e = 1 [packed = true]; }', b"\x0a\x02\x00\x07"),
        ('syntax = "proto2"; message M { repeated group G = 1 { optional int32 x = 1; } }', b"\x0b\x08\x01\x0c"),
        (f"{PROTO3}message M {{ map<string, int32> m = 1; }}", b"\x0a\x05\x0a\x01k\x18\x01"),  # an unknown field in it
    ],
)
def test_what_fits_is_not_said(text: str, payload: bytes) -> None:
    assert decoder(text).decode(binary(payload)).misfit == ""


def quarantined(lake: SmallLake) -> list[dict[str, Any]]:
    path = str(lake.lake.path("quarantine_events"))
    return DeltaTable(path).to_pyarrow_table(columns=["cause", "detail"]).to_pylist()


def test_it_is_told_once_for_each_schema_and_the_audit_agrees(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    schemas = [compile_text(PROTO3 + EVENT, schema_id=number) for number in (7, 8)]
    lake = SmallLake(tmp_path / "lake", *schemas)
    for _ in range(2):  # two runs of the app
        status = Status(lake.lake, lake.settings.layout)
        for number in (7, 7, 8):
            first = lake.ends.get(0, 0)
            report = lake.take(batch_of([frame(number, b"\x0a\x01o"), frame(number, GROUP)], first=first))
            status.batch_done(1, report, 0.1)
        status.end("stopped", None)
    told = [line for line in capfd.readouterr().err.splitlines() if "another wire type" in line]
    assert [("schema=7" in line, "schema=8" in line, SAID in line) for line in told] == [
        (True, False, True),
        (False, True, True),
    ]
    assert lake.audit().faults() == {}
    lake.reopen(decode={"other_wire_types": "quarantine"})
    report = lake.take(batch_of([frame(7, GROUP)], first=lake.ends[0]))
    assert (report.quarantine, report.misfits) == ({"decode_wire": 1}, {"7": SAID})
    assert quarantined(lake) == [{"cause": "decode_wire", "detail": SAID}]
    assert lake.audit().faults() == {}
