"""Frames of several kinds by Google's and Confluent's own code, and what a bad disk or client makes of them."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import replace
from pathlib import Path

from google.protobuf.message import Message

from spark_app.model.catalog import Decodable, SchemaKey
from tests.support.frames import frame
from tests.support.messages import fill
from tests.support.protos import PROTO3, compile_text, message_class

FLAT = (
    PROTO3
    + """
message Flat {
  string game_name = 1; string gamer_id = 2; sint64 f1 = 3; double f2 = 4; fixed32 f3 = 5; bool f4 = 6; uint64 f5 = 7;
  bytes f6 = 8; float f7 = 9;
}
"""
)
RICH = (
    PROTO3
    + """
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Color { RED = 0; BLUE = 5; }
message Rich {
  string game_name = 1; google.protobuf.Timestamp r1 = 2; google.protobuf.Duration r2 = 3; Part r3 = 4;
  repeated Part r4 = 5; map<string, int64> r5 = 6; map<int32, Part> r6 = 7; oneof one { int32 r7 = 8; string r8 = 9; }
  optional string r9 = 10; Color r10 = 11; repeated Color r11 = 12; google.protobuf.StringValue r12 = 13;
  repeated sfixed64 r13 = 14; repeated google.protobuf.Timestamp r14 = 15;
}
message Part { string p1 = 1; repeated uint32 p2 = 2; Color p3 = 3; }
"""
)
OLD = """
syntax = "proto2";
enum Suit { NONE = 0; CLUBS = 1; HEARTS = 2; }
message Old {
  required string game_name = 1; optional group Bag = 2 { optional int32 b1 = 1; repeated string b2 = 2; }
  optional Suit o1 = 3; repeated Suit o2 = 4 [packed = true]; optional int32 o3 = 5 [default = 7];
  map<string, Suit> o4 = 6;
  extensions 100 to 200;
}
"""
TREE = (
    PROTO3
    + """
import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";
message Shell { string s1 = 1; message Tree {
  string game_name = 1; Tree t1 = 2; google.protobuf.Any t2 = 3; google.protobuf.Struct t3 = 4; repeated Tree t4 = 5;
  google.protobuf.Value t5 = 6;
} }
"""
)
KINDS = [(FLAT, "Flat", (0,)), (RICH, "Rich", (0,)), (OLD, "Old", (0,)), (TREE, "Shell.Tree", (0, 0))]
CASES = json.loads((Path(__file__).parents[1] / "cases" / "frames.json").read_text())
GOLDEN = [case for case in CASES if not case["headers"]]
GAMES = ["rummy", "Go_Fish"]


def schemas() -> list[Decodable]:
    """The schemas of all frames; the golden ones have the ids that the mock registry gave them, ours come after, and
    also have a GUID."""
    texts = {int.from_bytes(bytes.fromhex(case["value"])[1:5]): case["schema"] for case in GOLDEN}
    texts |= {100 + place: text for place, (text, _, _) in enumerate(KINDS)}
    by_id = [compile_text(text, schema_id=schema_id) for schema_id, text in texts.items()]
    return by_id + [replace(d, key=guid_of(int(d.key) - 100)) for d in by_id if int(d.key) >= 100]


def guid_of(place: int) -> str:
    return str(uuid.UUID(int=place + 1))


def frames(decodables: list[Decodable], dice: random.Random, count: int) -> list[bytes]:
    """Whole frames of every kind."""
    classes: list[type[Message]] = [
        message_class(next(d for d in decodables if d.key == 100 + place), name)
        for place, (_, name, _) in enumerate(KINDS)
    ]
    made = [bytes.fromhex(case["value"]) for case in GOLDEN]
    while len(made) < count:
        place = len(made) % len(KINDS)
        message = fill(classes[place](), dice, depth=1)
        message.game_name = dice.choice(GAMES)  # type: ignore[attr-defined]
        key: SchemaKey = dice.choice((100 + place, guid_of(place)))
        made.append(frame(key, message.SerializePartialToString(), KINDS[place][2]))
    return made


def mutate(value: bytes, other: bytes, dice: random.Random) -> bytes:
    """The frame after one to three accidents."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        value = dice.choice(ACCIDENTS)(value, other, dice)
    return value


def _flip(value: bytes, _: bytes, dice: random.Random) -> bytes:
    changed = bytearray(value)
    for _n in range(dice.randrange(1, 4)):
        if changed:
            changed[_place(changed, dice)] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _cut(value: bytes, _: bytes, dice: random.Random) -> bytes:
    return value[: dice.randrange(len(value) + 1)]


def _insert(value: bytes, _: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(value) + 1)
    return value[:place] + dice.randbytes(dice.randrange(1, 6)) + value[place:]


def _drop(value: bytes, _: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(value) + 1)
    return value[:place] + value[place + dice.randrange(1, 9) :]


def _splice(value: bytes, other: bytes, dice: random.Random) -> bytes:
    return value[: dice.randrange(len(value) + 1)] + other[dice.randrange(len(other) + 1) :]


def _append(value: bytes, other: bytes, dice: random.Random) -> bytes:
    return value + other[6:]  # fields twice, messages and maps merged


def _lengthen(value: bytes, _: bytes, dice: random.Random) -> bytes:
    """A byte becomes a varint of several: the same number, another, or one that never ends."""
    if not value:
        return value
    place = _place(value, dice)
    longer = dice.choice((bytes([value[place] | 0x80, 0]), b"\xff" * dice.randrange(1, 12), b"\xff\xff\xff\xff\x0f"))
    return value[:place] + longer + value[place + 1 :]


def _resize(value: bytes, _: bytes, dice: random.Random) -> bytes:
    """A byte, maybe a length or a tag, becomes another one near it or at an edge."""
    if not value:
        return value
    place = _place(value, dice)
    near = dice.choice((value[place] + 1, value[place] - 1, 0, 1, 0x7F, 0x80, 0xFF)) & 0xFF
    return value[:place] + bytes([near]) + value[place + 1 :]


def _behead(value: bytes, _: bytes, dice: random.Random) -> bytes:
    """Damage to magic byte, schema id or message index."""
    place = dice.randrange(7)
    return value[:place] + bytes([dice.choice((0, 1, 2, 4, 100, 101, 102, 103, 128, 255))]) + value[place + 1 :]


def _place(value: bytes | bytearray, dice: random.Random) -> int:
    """Seldom in the header: it is short, and most damage to it ends the same way."""
    low = 6 if len(value) > 6 and dice.random() < 0.9 else 0
    return dice.randrange(low, len(value))


ACCIDENTS = [_flip, _cut, _insert, _drop, _splice, _append, _lengthen, _resize, _behead]
