"""A schema with the names of columns reads the same payloads, and keeps all but the names."""

from __future__ import annotations

import pyarrow as pa
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_app.model.catalog import Decodable
from spark_app.protobuf.changes.declarations import other_names, with_names
from spark_app.protobuf.decode.decoder import decoder_for
from spark_app.protobuf.schemas.descriptors import digest
from tests.support.protos import compile_text, load_files, message_class

TEXT = """syntax = "%s";
import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { optional string note = 50000; }
message Point { %s int64 x = 1; }
message Event {
  %s string text = 1 [(note) = "kept", json_name = "said"];
  map<string, Point> points = 2;
  repeated Point list = 3;
  optional int32 maybe = 4;
  oneof one { string left = 5; int32 right = 6; }
  %s
}"""
PROTO2 = "optional int32 number = 7 [default = 5]; optional group Pair = 8 { optional int32 k = 1; } extensions 100;"
SYNTAXES = {"proto3": TEXT % ("proto3", "", "", ""), "proto2": TEXT % ("proto2", "optional", "optional", PROTO2)}
NAMES = {("Point", 1): "z", **{("Event", number): f"c{number}" for number in (1, 2, 3, 4, 5, 7, 8)}}
SENT = {"said": "t", "points": {"k": {"x": 3}}, "list": [{"x": 4}], "maybe": 7, "left": "l"}


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_payloads_are_read_into_the_columns(syntax: str) -> None:
    registered = compile_text(SYNTAXES[syntax])
    decoded = with_names(registered.descriptor_set, NAMES)
    payload = json_format.ParseDict(SENT, message_class(registered, "Event")()).SerializeToString()
    decoder = decoder_for(Decodable(1, decoded, digest(decoded), "text"), (1,))
    assert decoder is not None
    [row] = decoder.decode(pa.array([payload], pa.binary())).table.to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "c1": "t",
        "c2": [("k", {"z": 3})],
        "c3": [{"z": 4}],
        "c4": 7,
        "c5": "l",
    }


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_all_but_the_names_stays(syntax: str) -> None:
    registered = compile_text(SYNTAXES[syntax]).descriptor_set
    decoded = with_names(registered, NAMES)
    found = other_names(registered, decoded)
    assert {place: column for place, (_, column) in found.items()} == {
        place: name for place, name in NAMES.items() if syntax == "proto2" or place[1] < 7
    }
    back = with_names(decoded, {place: field for place, (field, _) in found.items()})
    assert FileDescriptorSet.FromString(back) == FileDescriptorSet.FromString(registered)


def test_without_other_names_nothing_changes() -> None:
    registered = compile_text(SYNTAXES["proto3"]).descriptor_set
    assert with_names(registered, {}) is registered
    assert other_names(registered, registered) == {}


def test_a_json_name_gives_way_to_the_name_of_another_field() -> None:
    registered = compile_text('syntax = "proto3"; message Event { int32 a = 1; int32 b = 2; }').descriptor_set
    decoded = with_names(registered, {("Event", 1): "b", ("Event", 2): "b_2"})
    assert [field.name for field in load_files(decoded)[1][0].fields] == ["b", "b_2"]
