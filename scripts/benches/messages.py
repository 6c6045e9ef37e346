"""The schemas of the measurements' events in any number of versions: each version adds two text fields.

`flat` is the demo's event, `rich` has 40 fields of every kind (nested, repeated, map, oneof, wrappers), `wide` has 500.
"""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from spark_app.protobuf.columns.types import is_map
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import message_at
from spark_app.protobuf.schemas.descriptors import compile_sources
from spark_app.protobuf.schemas.limits import SchemaLimits
from spark_app.protobuf.schemas.registry import ROOT, Sources

KINDS = ("flat", "rich", "wide")
INDEX = (0,)
WIDE = 500
SCALARS = ("string", "int64", "double", "bool", "int32", "fixed64", "float", "sint64")
CAPS = SchemaLimits(
    max_text_bytes=1 << 20, max_files=100, max_columns=2000, max_compile_cpu_s=15, max_compile_bytes=512 << 20
)
HEAD = """syntax = "proto3";
package protolake.bench;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
"""
COMMON = """  string game_name = 1;
  string gamer_id = 2;
  google.protobuf.Timestamp event_timestamp = 3;
  string device_id = 4;
"""
RICH = """  enum Color { NONE = 0; RED = 1; BLUE = 2; GREEN = 3; }
  message Place { double x = 1; double y = 2; string name = 3; Color color = 4; }
  message Item { string sku = 1; int32 count = 2; double price = 3; repeated string tags = 4; }
  double amount = 5; bool won = 6; int32 round = 7; uint64 serial = 8; sint32 delta = 9; fixed32 flags = 10;
  float ratio = 11; bytes token = 12; Color color = 13; int64 score = 14; string country = 15; string city = 16;
  Place place = 17; Place origin = 18; repeated int32 scores = 19; repeated string badges = 20;
  repeated Item items = 21; map<string, int64> counts = 22; map<string, string> labels = 23;
  optional string comment = 24; optional int32 level = 25;
  oneof prize { int64 coins = 26; string badge = 27; Item item = 28; }
  google.protobuf.StringValue nickname = 29; google.protobuf.Int64Value rank = 30;
  google.protobuf.BoolValue premium = 31; google.protobuf.DoubleValue balance = 32;
  google.protobuf.Timestamp joined_at = 33; string platform = 34; string build = 35; int32 latency_ms = 36;
  int64 session = 37; bool muted = 38; double volume = 39; string language = 40;
"""


def schema_text(kind: str, version: int) -> str:
    """The .proto text of one version of one kind; the event is its first message."""
    fields = COMMON + {"flat": "", "rich": RICH, "wide": _wide()}[kind]
    first = {"flat": 5, "rich": 41, "wide": WIDE + 1}[kind]
    custom = [f"  optional string col_custom_{n} = {first + n - 1};\n" for n in range(1, 2 * version - 1)]
    return f"{HEAD}message Event {{\n{fields}{''.join(custom)}}}\n"


def _wide() -> str:
    return "".join(f"  {SCALARS[n % len(SCALARS)]} field_{n} = {n};\n" for n in range(5, WIDE + 1))


def compile_version(kind: str, version: int) -> tuple[bytes, type[Message]]:
    """A serialized FileDescriptorSet, and the event's class, made from it without executing generated code."""
    data = compile_sources(Sources(texts={ROOT: schema_text(kind, version)}), CAPS)
    message = message_at(load_files(data)[1], INDEX)
    assert message is not None
    return data, GetMessageClass(message)


def fill(message: Any, dice: random.Random) -> Any:
    """Set every field to a value of a usual size; of a oneof, one field."""
    chosen = {oneof.name: dice.choice(oneof.fields).name for oneof in message.DESCRIPTOR.oneofs}
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is None or chosen[oneof.name] == field.name:
            _set(message, field, dice)
    return message


def _set(message: Any, field: Any, dice: random.Random) -> None:
    value = getattr(message, field.name)
    if is_map(field):
        kind = field.message_type.fields_by_name["value"]
        for number in range(2):
            value[f"key_{number}"] = _scalar(kind, dice)
    elif field.message_type is None:
        if field.is_repeated:
            value.extend(_scalar(field, dice) for _ in range(3))
        else:
            setattr(message, field.name, _scalar(field, dice))
    elif field.message_type.full_name == "google.protobuf.Timestamp":
        value.seconds, value.nanos = 1_700_000_000 + dice.getrandbits(24), dice.randrange(1_000_000) * 1000
    else:
        for one in [value.add() for _ in range(2)] if field.is_repeated else [value]:
            one.SetInParent()
            fill(one, dice)


def _scalar(field: Any, dice: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        text = f"{dice.getrandbits(48):012x}"
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return dice.choice(field.enum_type.values).number
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return dice.random() * 100
    return dice.getrandbits(20)
