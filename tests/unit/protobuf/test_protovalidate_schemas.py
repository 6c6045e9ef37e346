"""Schemas with the rules of protovalidate, which annotate fields and change no value."""

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_app.model.catalog import Decodable
from spark_app.protobuf.decode import decoder_for
from spark_app.protobuf.schemas.descriptors import compile_sources, digest
from spark_app.protobuf.schemas.limits import SchemaInvalid
from spark_app.protobuf.schemas.registry import ROOT, Sources
from spark_app.protobuf.schemas.well_known import spare_files
from tests.support.protos import CAPS, PROTO3, compile_text, message_class

NAME = "buf/validate/validate.proto"
RULES = f"""{PROTO3} import "{NAME}";
message Order {{
  option (buf.validate.message).cel = {{ id: "x", message: "no", expression: "this.amount > 0" }};
  string id = 1 [(buf.validate.field).string.min_len = 3, (buf.validate.field).required = true];
  int64 amount = 2 [(buf.validate.field).int64.gt = 0];
  repeated string tags = 3 [(buf.validate.field).repeated.max_items = 2];
}}"""
OWN = """syntax = "proto2"; package own; import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { optional bool rule = 50000; }"""
PLAIN = PROTO3 + "message Order { string id = 1; int64 amount = 2; repeated string tags = 3; }"


def decoded(decodable: Decodable, payload: bytes) -> tuple[list[dict[str, object]], bool]:
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    table = decoder.decode(pa.array([payload], pa.binary())).table
    return table.to_pylist(), decoder._fast is not None


def test_rules_need_no_import_and_change_neither_values_nor_speed() -> None:
    plain, ruled = compile_text(PLAIN), compile_text(RULES)
    payload = message_class(plain, "Order")(id="a", amount=-5, tags=["x", "y", "z"]).SerializeToString()
    assert decoded(ruled, payload) == decoded(plain, payload) == ([{"id": "a", "amount": -5, "tags": [*"xyz"]}], True)


def test_rules_of_a_compiled_schema_need_no_import_either() -> None:
    files = FileDescriptorSet.FromString(compile_text(RULES).descriptor_set).file
    descriptor_set = compile_sources(Sources(compiled={ROOT: files[-1]}), CAPS)
    assert [file.name for file in FileDescriptorSet.FromString(descriptor_set).file][-2:] == [NAME, files[-1].name]
    payload = message_class(compile_text(PLAIN), "Order")(id="a").SerializeToString()
    rows, _ = decoded(Decodable(2, descriptor_set, digest(descriptor_set)), payload)
    assert rows == [{"id": "a", "amount": 0, "tags": []}]


def test_rules_that_are_registered_count() -> None:
    """Their versions differ: what ours has not, or no longer, is known to the registered one."""
    text = f'{PROTO3} import "{NAME}"; message M {{ string x = 1 [(own.rule) = true]; }}'
    with pytest.raises(SchemaInvalid, match=r"own\.rule"):
        compile_sources(Sources(texts={ROOT: text}), CAPS)
    files = FileDescriptorSet.FromString(compile_sources(Sources(texts={ROOT: text, NAME: OWN}), CAPS)).file
    own = next(file for file in files if file.name == NAME)
    assert own.package == "own"
    compiled = Sources(texts={ROOT: text}, compiled={NAME: own})
    assert FileDescriptorSet.FromString(compile_sources(compiled, CAPS)).file[-2].package == "own"


def test_the_file_is_here_with_its_licence() -> None:
    assert "Licensed under the Apache License, Version 2.0" in spare_files()[NAME].read_text()
