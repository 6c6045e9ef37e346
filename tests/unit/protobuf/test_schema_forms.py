"""Schemas that the registry has in no one form, and files that only re-export."""

import base64
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from spark_app.protobuf.decode import decoder_for
from spark_app.protobuf.schemas.descriptors import entry_name
from spark_app.protobuf.schemas.limits import SchemaInvalid
from spark_app.protobuf.schemas.resolution import resolve
from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import CAPS, PROTO3, compile_text, message_class
from tests.unit.protobuf.test_message_index import BY_MESSAGE, decodable, landed, message, quarantined, registry


def serialized(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def part_file() -> FileDescriptorProto:
    """`message Part { map<string, int32> counts = 1; }` as Confluent's registry compiles its text."""
    file = FileDescriptorProto(name="part.proto", syntax="proto3", package="parts")
    part = file.message_type.add(name="Part")
    field = part.field.add(name="counts", number=1, label=3, type=11, type_name="countsEntry")
    entry = part.nested_type.add(name=field.type_name)
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=5)
    entry.options.map_entry = True
    return file


PART = PROTO3 + "package parts; message Part { map<string, int32> counts = 1; }"
WHOLE = PROTO3 + 'package whole; import "part.proto"; message Whole { parts.Part part = 1; %s }'
ENTRY = (
    "repeated NamesEntry names = 2; message NamesEntry { option map_entry = true; string key = 1; string value = 2; }"
)


def register(answers: Answers, form: str, schema: str, part: str) -> None:
    query, of_reference = ("", "") if form == "text" else ("?format=serialized", "?deleted=true&format=serialized")
    reference = {"name": "part.proto", "subject": "part", "version": 1}
    answers[f"/schemas/ids/1{query}"] = (200, {"schemaType": "PROTOBUF", "schema": schema, "references": [reference]})
    answers[f"/subjects/part/versions/1{of_reference}"] = (200, {"schemaType": "PROTOBUF", "schema": part})


def whole_file(spelt_out: bool) -> FileDescriptorProto:
    text = WHOLE % ("map<string, string> names = 2;")
    file = FileDescriptorProto()
    [kind] = [message_class(compile_text(text, {"part.proto": PART}), "whole.Whole").DESCRIPTOR]
    kind.file.CopyToProto(file)
    entry = file.message_type[0].nested_type[0]
    entry.name = "NamesEntry" if spelt_out else "namesEntry"
    file.message_type[0].field[1].type_name = f".whole.Whole.{entry.name}"
    return file


@pytest.mark.parametrize("form", ["text", "serialized"])
@pytest.mark.parametrize("spelt_out", [True, False], ids=["entries spelt out", "map<>"])
def test_a_schema_with_maps_compiles_whatever_form_its_reference_has(
    answers: Answers, spelt_out: bool, form: str
) -> None:
    text = WHOLE % (ENTRY if spelt_out else "map<string, string> names = 2;")
    register(answers, "text", text, PART)
    register(answers, "serialized", serialized(whole_file(spelt_out)), serialized(part_file()))
    resolved = resolve(registry(answers, format=form), 1, CAPS)
    decoder = decoder_for(decodable(resolved, "registered"), (0,))
    assert decoder is not None
    payload = b"\x0a\x07\x0a\x05\x0a\x01k\x10\x07" + b"\x12\x06\x0a\x01a\x12\x01b"
    [row] = decoder.decode(pa.array([payload], pa.binary())).table.to_pylist()
    assert row == {"part": {"counts": [("k", 7)]}, "names": [("a", "b")]}


def test_the_own_file_stays_text_where_only_its_reference_does_not_compile(answers: Answers) -> None:
    """Else the places of its maps among the messages would be lost."""
    register(
        answers,
        "text",
        WHOLE % "map<string, string> names = 2; message Inner {}",
        PART.replace("map<string, int32> c", f"{ENTRY} map<string, int32> c"),
    )
    compiled = whole_file(False)
    compiled.message_type[0].nested_type.add(name="Inner")
    register(answers, "serialized", serialized(compiled), serialized(part_file()))
    resolved = resolve(registry(answers), 1, CAPS)
    assert resolved.form == "text"
    assert message(decodable(resolved, "descriptor"), 0, 1) == "whole.Whole.Inner"
    assert message(decodable(resolved, "registered"), 0, 0) == "whole.Whole.Inner"


def test_compiled_forms_are_requested_alone_where_the_setting_wants_them(answers: Answers) -> None:
    answers["/schemas/ids/1"] = (200, {"schemaType": "PROTOBUF", "schema": "no protobuf"})
    answers["/schemas/ids/1?format=serialized"] = (200, {"schemaType": "PROTOBUF", "schema": serialized(part_file())})
    resolved = resolve(registry(answers, format="serialized"), 1, CAPS)
    assert answers.asked == ["/schemas/ids/1"]
    assert resolved.form == "descriptor"
    assert message(decodable(resolved, "registered"), 0) == "parts.Part"


def test_what_protoc_says_against_both_forms_is_reported(answers: Answers) -> None:
    answers["/schemas/ids/1"] = (200, {"schemaType": "PROTOBUF", "schema": "message A { first no }"})
    torn = FileDescriptorProto(name="a.proto", message_type=[{"name": "A", "field": [{"name": "x", "number": 1}]}])
    torn.message_type[0].field[0].type_name = "Nowhere"
    answers["/schemas/ids/1?format=serialized"] = (200, {"schemaType": "PROTOBUF", "schema": serialized(torn)})
    with pytest.raises(SchemaInvalid, match=r"(?s)schema:1:.*in another form: .*Nowhere"):
        resolve(registry(answers), 1, CAPS)


@pytest.mark.parametrize("field", ["a", "items", "more_items", "a_bC", "_x", "x_1y", "A_b", "ab__c", "aB"])
def test_entries_are_named_as_protoc_names_them(field: str) -> None:
    kind = message_class(compile_text(PROTO3 + f"message M {{ map<string, int32> {field} = 1; }}"), "M")
    [entry] = kind.DESCRIPTOR.nested_types
    assert entry.name == entry_name(field)


# Files that only re-export


BASE = PROTO3 + "package base; message One { int32 x = 1; } message Two { string y = 1; }"


@pytest.mark.parametrize("deep", [False, True])
def test_a_file_that_only_imports_publicly_has_the_messages_of_what_it_imports(
    answers: Answers, tmp_path: Path, deep: bool
) -> None:
    base = {"name": "base.proto"} | answers.version("base", 1, BASE)
    last = base
    if deep:
        last = {"name": "mid.proto"} | answers.version(
            "mid", 1, PROTO3 + 'import public "base.proto";', references=[base]
        )
    answers.schema(1, PROTO3 + f'package top; import public "{last["name"]}";', references=[last])
    resolved = resolve(registry(answers), 1, CAPS)
    assert resolved.form == "text"
    lake = SmallLake(tmp_path, decodable(resolved, None), **BY_MESSAGE)
    lake.take(batch_of([frame(1, b"\x08\x05", (0,)), frame(1, b"\x0a\x01z", (1,)), frame(1, b"", (2,))]))
    assert [row["x"] for row in landed(lake, "silver_one_events")] == [5]
    assert [row["y"] for row in landed(lake, "silver_two_events")] == ["z"]
    assert [(offset, cause) for offset, cause, _ in quarantined(lake)] == [(2, "schema_index")]
    assert lake.audit().faults() == {}


@pytest.mark.parametrize("body", ["enum Kind { NONE = 0; }", ""])
def test_a_file_that_declares_a_type_or_imports_nothing_publicly_re_exports_nothing(
    answers: Answers, body: str
) -> None:
    base = {"name": "base.proto"} | answers.version("base", 1, BASE)
    public = "public " if body else ""
    answers.schema(1, PROTO3 + f'import {public}"base.proto"; {body}', references=[base])
    assert message(decodable(resolve(registry(answers), 1, CAPS), "registered"), 0) is None
