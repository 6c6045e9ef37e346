"""How far a payload can be read, and what is said and shown of it."""

import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_app.lake.lake import Lake
from spark_app.page.views.quarantine.record import (
    MOST_CHARACTERS,
    MOST_DECODED,
    FramedValue,
    field_ends,
    hex_dump,
    message_text,
    readable,
)
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings
from tests.support.frames import frame, headers_of
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text, message_class
from tests.support.quarantines import HOSTILE, SCHEMA, Event, event

PAYLOAD = event("uno", 60, "Ann")


def accepts(data: bytes, kind: Any = Event) -> bool:
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize("kind", [Event, Empty])
def test_a_payload_that_is_cut_off_is_read_up_to_where_it_is_cut(kind: Any) -> None:
    before = 0
    for length in range(len(PAYLOAD) + 1):
        data = PAYLOAD[:length]
        kept, stop = readable(data, kind)
        assert accepts(kept, kind)
        assert (stop is None) == accepts(data, kind)
        if stop is None:
            assert kept == data
            before = length
            continue
        assert before <= stop.at <= length
        assert kept.startswith(PAYLOAD[:before])  # no whole field is lost
        assert "cut off" in stop.why or "end within a number" in stop.why
    assert before == len(PAYLOAD)


def test_a_nested_message_is_read_up_to_its_own_end() -> None:
    cut = PAYLOAD[: PAYLOAD.index(b"Ann") + 1]
    kept, stop = readable(cut, Event)
    assert Event.FromString(kept) == Event(game_name="uno", gamer_id="g", player={})
    assert stop is not None
    assert (stop.field, stop.why) == ("player.name", "field 1 is cut off; bytes that are missing: 2")
    assert stop.at == PAYLOAD.index(b"Ann") - 2


def test_text_that_is_not_utf_8_is_found_at_any_depth() -> None:
    deep = Event(game_name="uno", player={"next": {"next": {"name": "Bob"}}}, chips=7).SerializeToString()
    kept, stop = readable(deep.replace(b"Bob", b"\xff\xfe\xfd"), Event)
    assert Event.FromString(kept) == Event(game_name="uno", player={"next": {"next": {}}})
    assert stop is not None
    assert (stop.field, stop.why) == ("player.next.next.name", "its text is not UTF-8")
    assert deep[stop.at + 2 :].startswith(b"Bob")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_far_as_the_parser_reads_them(data: bytes) -> None:
    for kind in (Event, Empty):
        kept, stop = readable(data, kind)
        assert accepts(kept, kind)
        assert (stop is None) == accepts(data, kind)
        assert stop is None or (0 <= stop.at <= len(data) and stop.why)
        text, _ = message_text(kind.FromString(kept))
        assert all(one == "\n" or one.isprintable() for one in text)


@settings(deadline=None)
@given(st.data())
def test_the_longest_prefix_of_whole_fields_is_kept(data: st.DataObject) -> None:
    """Against trying each prefix."""
    at = data.draw(st.integers(0, len(PAYLOAD) - 1))
    broken = PAYLOAD[:at] + data.draw(st.binary(max_size=3)) + PAYLOAD[at + 1 :]
    kept, _ = readable(broken, Empty)
    assert kept == max((broken[:end] for end in range(len(broken) + 1) if accepts(broken[:end], Empty)), key=len)


def nested(levels: int, tag: bytes = b"\x12") -> bytes:
    """A player in a player in a player ..."""
    heads: list[bytes] = []
    size = 0
    for _ in range(levels):
        length, rest = b"", size
        while rest >= 0x80:
            length, rest = length + bytes([rest & 0x7F | 0x80]), rest >> 7
        heads.append(tag + length + bytes([rest]))
        size += len(heads[-1])
    return b"".join(reversed(heads))


def test_messages_that_are_nested_too_deep_are_shown_to_a_depth() -> None:
    player = message_class(SCHEMA, "Player")
    kept, stop = readable(nested(150), player)
    assert accepts(kept, player)
    assert kept
    assert stop is not None
    assert "nested deeper than 100 levels" in stop.why
    assert stop.field.startswith("next.next.")
    assert message_text(player.FromString(kept))[0].count("next {") > 40


@pytest.mark.parametrize(
    "payload",
    [
        nested(250_000),
        b"\x08\x01" * (1 << 19),
        b"\x08\x01" * (1 << 19) + b"\x0a",
        b"\x0b" * (1 << 20),
        b"\x0b\x0c" * (1 << 19),
        b"\x0a\xff\xff\x3f" + b"x" * (1 << 20),
        b"\x0a\xff\xff\x3f" + b"\xff" * (1 << 20),
        b"\x1a\xff\xff\x3f" + b"\x12\x00" * (1 << 19),
    ],
    ids=["nested", "numbers", "numbers cut", "groups", "closed groups", "text", "no text", "messages cut"],
)
@pytest.mark.parametrize("kind", [pytest.param(Event, marks=pytest.mark.nightly), Empty])
def test_a_large_payload_takes_bounded_time_and_text(payload: bytes, kind: Any) -> None:
    began = time.process_time()
    kept, _ = readable(payload, kind)
    text, _ = message_text(kind.FromString(kept))
    assert time.process_time() - began < 15  # the page waits for 30 s
    assert len(text) <= 12 * MOST_CHARACTERS  # a character that is not seen takes up to ten


def test_what_is_too_long_or_too_deep_is_marked() -> None:
    assert message_text(Empty.FromString(b"\x08\x01" * (1 << 16)))[1] == "Only the first 40,000 characters are shown."
    text, why = message_text(Empty.FromString(nested(2000, b"\x0a")))
    assert text.startswith("1 {\n  1 {\n")
    assert why.startswith(("Only the first", "Its fields are nested too deep"))


def test_a_proto2_text_that_is_not_utf_8_is_shown_by_number() -> None:
    text = 'syntax = "proto2"; message M { map<string, string> m = 1; optional string s = 2; required int32 n = 3; }'
    kind = message_class(compile_text(text), "M")
    kept, stop = readable(b"\x12\x02\xff\xfe", kind)
    assert stop is None
    assert message_text(kind.FromString(kept)) == ('s: "\\377\\376"\n', "")
    kept, stop = readable(b"\x0a\x04\x0a\x02\xff\xfe", kind)  # the library cannot print such a map
    assert stop is None
    assert message_text(kind.FromString(kept)) == ('1 {\n  1: "\\377\\376"\n  2 {\n  }\n}\n', "")


def test_an_any_that_holds_no_message_is_shown_as_bytes() -> None:
    text = PROTO3 + 'import "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; string s = 2; }'
    kind = message_class(compile_text(text), "M")
    made = kind(s="seen", a={"type_url": "type.googleapis.com/M", "value": b"\x12\xff"})
    shown, why = message_text(made)
    assert 'value: "\\022\\377"' in shown
    assert 's: "seen"' in shown
    assert why == ""


def test_hostile_text_is_escaped_where_it_is_not_seen() -> None:
    text, _ = message_text(Event(game_name=HOSTILE))
    assert "<script>window.hurt=1</script>" in text
    assert "\\u202e\\000" in text
    assert "\u202e" not in text


def test_a_hex_dump_has_offsets_and_ascii_and_an_end() -> None:
    assert hex_dump(b"") == ""
    assert hex_dump(b"Hello, \x00world\xff!\n") == (
        "00000000  48 65 6c 6c 6f 2c 20 00  77 6f 72 6c 64 ff 21 0a  Hello, .world.!."
    )
    lines = hex_dump(bytes(range(256)) * 20).splitlines()
    assert len(lines) == 256
    assert lines[1] == "00000010  10 11 12 13 14 15 16 17  18 19 1a 1b 1c 1d 1e 1f  ................"
    assert hex_dump(b"a" * 4097) == hex_dump(b"a" * 4096)


def test_field_ends_name_what_is_wrong() -> None:
    for data, why in (
        (b"\x08", "the bytes end within a number"),
        (b"\x08" + b"\xff" * 10, "a number has more than 10 bytes"),
        (b"\xf8\xff\xff\xff\x1f\x00", "no field has the number 1073741823"),
        (b"\x0f", "no field has the wire type 7"),
        (b"\x0c", "a group of field 1 ends that has not begun"),
        (b"\x0b\x14", "a group of field 2 ends that has not begun"),
        (b"\x09\x01", "field 1 is cut off; bytes that are missing: 7"),
    ):
        assert field_ends(b"\x10\x05" + data) == ([0, 2], why)


GUID = "0f4bd9a5-6f0e-4a0b-9c53-3f1c6b1d9e11"


@pytest.fixture
def reader(tmp_path: Path) -> FramedValue:
    return reader_of(tmp_path)


def reader_of(folder: Path, **sections: Any) -> FramedValue:
    lake = SmallLake(folder / "lake", SCHEMA, compile_text(PROTO3 + WRAPPER, schema_id=GUID), **sections)
    return FramedValue(lake.settings, Ledger(lake.lake))


WRAPPER = "message Wrapper { int32 schema = 1; bytes body = 2; }"
NUMBERS = "Fields have numbers instead of names, and what may be a message is shown as one."
WHOLE = "It can be read as Protobuf to its end."


def headers(value: bytes, key: str = "__value_schema_id") -> str:
    return str(headers_of([[(key, value)]])[0].as_py())


def test_frames_are_described_in_words(reader: FramedValue) -> None:
    def said(value: bytes, given: str | None = None) -> tuple[list[str], str]:
        [part] = reader.parts(value, given)
        return part["said"], part["text"]

    named = "The frame names the schema id 1 and the message index [0]; the payload begins at byte 6."
    assert said(frame(1, b"\x0a\x03uno")) == ([named, WHOLE], 'game_name: "uno"\n')
    by_guid, _ = said(frame(GUID, b""))
    assert by_guid[0].startswith(f"The frame names the schema GUID {GUID} and the message index [0]")
    unknown, text = said(frame(9, b"\x0a\x03uno"))
    assert unknown[1:] == [
        "The writer's schema is not known here: the ledger of the lake has no schema of that name.",
        NUMBERS,
        WHOLE,
    ]
    assert text == '1: "uno"\n'
    no_such, text = said(frame(1, b"\x0a\x03uno", (7,)))
    assert "The writer's schema has no message with the index [7]." in no_such
    assert text == '1: "uno"\n'
    short, text = said(b"\0\0\0")
    assert short == ["The value is shorter than a frame (magic byte, schema id or GUID, message index)."]
    assert text == ""
    magic, text = said(b"\x0a\x03uno")
    assert magic[0].startswith("The first byte is neither 0 nor 1")
    assert text == '1: "uno"\n'
    index, text = said(b"\0\0\0\0\x01\xff")
    assert index[0] == "The schema id 1 is named."
    assert index[1] == "The schema is Protobuf, but the message index is not a list of zig-zag varints."
    assert index[3] == "It cannot be read as Protobuf: the bytes end within a number."
    by_header, text = said(b"\x0a\x03uno", headers(frame(GUID, b"")))
    assert by_header[0].startswith(f"A header or the settings name the schema GUID {GUID}")
    broken, text = said(b"\x0a\x03uno", headers(b"\x01\x02"))
    assert broken[0].startswith("The __value_schema_id header is not a schema id")
    assert text == '1: "uno"\n'


def test_the_byte_where_it_stops_is_that_of_the_value(reader: FramedValue) -> None:
    [part] = reader.parts(frame(1, b"\x20\x05\x0a\x02\xff\xfe"), None)
    assert part["said"][1] == (
        "It can be read as Protobuf up to byte 8 (0x8) of the 12 bytes, in the field game_name: its text is not UTF-8."
    )
    assert part["text"] == "chips: 5\n"


@settings(deadline=None)
@given(st.integers(0, 1 << 31), st.binary(max_size=40))
def test_any_value_and_any_header_get_an_answer(schema: int, data: bytes) -> None:
    reader = FramedValue(Settings(registry={"url": "http://127.0.0.1:1"}), Ledger(Lake("/no/lake")))
    for value, given_headers in ((data, None), (b"\0" + data, None), (b"\1" + data, None), (data, headers(data))):
        [part] = reader.parts(value, given_headers)
        assert part["said"]
    assert reader.parts(frame(schema % (1 << 31), data), None)[0]["said"]


def test_only_a_first_part_of_a_very_large_value_is_decoded(reader: FramedValue) -> None:
    large = frame(1, Event(game_name="x" * (MOST_DECODED - 20), gamer_id="g" * 100).SerializeToString())
    [part] = reader.parts(large, None)
    assert part["said"][1] == "Only the first 1,048,576 bytes of the payload are decoded, as if it ended there."
    assert part["said"][2].endswith("in the field gamer_id: field 2 is cut off; bytes that are missing: 86.")
    assert part["said"][3] == "Only the first 40,000 characters are shown."


def test_a_value_without_a_frame_is_that_of_the_settings(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, decode={"unframed_schema_id": 1, "unframed_message": "Player"})
    [part] = reader.parts(b"\x0a\x03Ann", None)
    assert (part["message"], part["text"]) == ("Player", 'name: "Ann"\n')


def test_a_wrapper_shows_what_it_holds_too(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, wrapper={"payload": "body", "schema_id": "schema"})
    wrapper = message_class(compile_text(PROTO3 + WRAPPER), "Wrapper")
    bare = wrapper(schema=1, body=PAYLOAD[:-1]).SerializeToString()
    outer, inner = reader.parts(frame(GUID, bare), None)
    assert outer["message"] == "Wrapper"
    assert (inner["title"], inner["message"]) == ("payload in the field body", "Event")
    assert "counts" in inner["said"][1]
    framed = wrapper(body=frame(1, PAYLOAD)).SerializeToString()
    assert reader.parts(frame(GUID, framed), None)[1]["said"][-1] == WHOLE
    nothing = wrapper(body=b"\x0a\x01x").SerializeToString()
    assert reader.parts(frame(GUID, nothing), None)[1]["text"] == '1: "x"\n'


def test_a_schema_that_was_altered_is_no_reason_to_hide_a_record(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", SCHEMA)
    [file] = (tmp_path / "lake" / "_protolake" / "schemas").glob("*.fds")
    file.write_bytes(b"\xff")
    [part] = FramedValue(lake.settings, Ledger(lake.lake)).parts(frame(1, b"\x0a\x03uno"), None)
    assert "The writer's schema cannot be read" in part["said"][1]
    assert part["text"] == '1: "uno"\n'
