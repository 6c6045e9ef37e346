"""Every form in which a registry gives a schema, in every mixture: the same messages come out."""

import base64
import functools
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.type import money_pb2

from spark_app.audit.expected import rows_of
from spark_app.model.catalog import Decodable
from spark_app.protobuf.decode import decoder_for
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.schemas import resolution
from spark_app.protobuf.schemas.descriptors import digest
from spark_app.protobuf.schemas.ledger import message_schemas
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import Registry, RegistryUnreachable
from spark_app.settings.connections import RegistrySettings
from tests.support.answers import Answers
from tests.support.protos import CAPS, PROTO3, compile_text

FORMS = ("text", "named", "nameless")
# Apicurio 3 answers with a descriptor's bytes as if they were text:
MANGLED = '\n\x01B\x12\x01b"\x0e\n\x01B\x12\t\n\x01n\x18\x01 \x01(\x05b\x06proto3'
SQUARE = [(FORMS[a], FORMS[b], FORMS[(a + b) % 3]) for a in range(3) for b in range(3)]  # each pair of forms meets
BASE = PROTO3 + "package base; message Base { int32 n = 1; enum Kind { NONE = 0; ONE = 1; } Kind kind = 2; }"
LEFT = PROTO3 + 'package left; import "d/base.proto"; message Left { base.Base base = 1; }'
RIGHT = PROTO3 + 'package right; import "d/base.proto"; message Right { base.Base base = 1; repeated string s = 2; }'
TOP = PROTO3 + (
    'package top; import "left.proto"; import "right.proto"; import "google/protobuf/timestamp.proto";'
    "message Top { left.Left l = 1; right.Right r = 2; google.protobuf.Timestamp t = 3; }"
)


def registry(answers: Answers, **settings: Any) -> Registry:
    return Registry(RegistrySettings(url=answers.url, **settings), CAPS)


def resolve(registry: Registry, key: int, caps: SchemaLimits) -> bytes:
    return resolution.resolve(registry, key, caps).descriptor_set


def as_form(form: str, name: str, text: str, references: dict[str, str] | None = None) -> str:
    """A schema as a registry gives it; protoc has compiled it, in the names its serializer knew."""
    if form == "text":
        return text
    _, messages = load_files(_compiled(text, tuple((references or {}).items())))
    file = FileDescriptorProto()
    messages[0].file.CopyToProto(file)
    file.name = name
    if form == "nameless":
        file.ClearField("name")
    return base64.b64encode(file.SerializeToString()).decode()


@functools.cache
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    return compile_text(text, dict(references)).descriptor_set


def rows(descriptor_set: bytes, *payloads: bytes) -> list[dict[str, Any]]:
    message_schemas(descriptor_set)
    decoder = decoder_for(Decodable(1, descriptor_set, digest(descriptor_set)), (0,))
    assert decoder is not None
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    assert not decoded.rejects
    return rows_of(decoded.table)


@pytest.mark.parametrize(("top", "side", "base"), SQUARE)
def test_forms_mix_in_a_diamond(answers: Answers, top: str, side: str, base: str) -> None:
    deep = {"d/base.proto": BASE}
    known = deep | {"left.proto": LEFT, "right.proto": RIGHT}
    of_base = answers.version("base", 1, as_form(base, "d/base.proto", BASE)) | {"name": "d/base.proto"}
    of_left = answers.version("left", 1, as_form(side, "l", LEFT, deep), references=[of_base]) | {"name": "left.proto"}
    of_right = answers.version("right", 3, RIGHT, references=[of_base]) | {"name": "right.proto"}
    answers.schema(1, as_form(top, "top.proto", TOP, known), references=[of_left, of_right])
    descriptor_set = resolve(registry(answers), 1, CAPS)
    assert answers.asked.count("/subjects/base/versions/1") == 1
    pool, _ = load_files(descriptor_set)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("top.Top"))()
    message.l.base.n, message.r.base.kind, message.t.seconds = 7, 1, 1
    message.r.s.append("x")
    (row,) = rows(descriptor_set, message.SerializeToString())
    assert row["l"]["base"] == {"n": 7, "kind": "NONE"}
    assert row["r"] == {"base": {"n": 0, "kind": "ONE"}, "s": ["x"]}
    assert row["t"].timestamp() == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depth", [2, 20])
def test_references_reach_any_depth(answers: Answers, form: str, depth: int) -> None:
    texts = {"0.proto": PROTO3 + "message M0 { int32 x = 1; }"}
    for n in range(1, depth):
        texts[f"{n}.proto"] = PROTO3 + f'import "{n - 1}.proto"; message M{n} {{ M{n - 1} m = 1; }}'
    reference: list[dict[str, Any]] = []
    for n, (name, text) in enumerate(texts.items()):
        file = as_form(form, name, text, dict(list(texts.items())[:n])) if n % 2 else text
        reference = [answers.version(name, 1, file, references=reference) | {"name": name}]
    answers.schema(1, PROTO3 + f'import "{depth - 1}.proto"; message M {{ M{depth - 1} m = 1; }}', references=reference)
    _, messages = load_files(resolve(registry(answers), 1, CAPS))
    assert [m.full_name for m in messages] == ["M"]
    assert len(answers.asked) == depth + 1


@pytest.mark.parametrize("served", [False, True], ids=["not registered", "registered"])
@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("google/type/money.proto", "google.type.Money", money_pb2.Money(currency_code="EUR", units=3)),
        ("confluent/type/decimal.proto", "confluent.type.Decimal", decimal_pb2.Decimal(value=b"\x01", scale=2)),
        ("confluent/types/decimal.proto", "confluent.type.Decimal", decimal_pb2.Decimal(value=b"\x01", scale=2)),
        ("confluent/type/variant.proto", "confluent.type.Variant", variant_pb2.Variant(metadata=b"\x01", value=b"a")),
        ("confluent/meta.proto", "confluent.Meta", meta_pb2.Meta(doc="d")),
    ],
)
def test_well_known_imports(answers: Answers, name: str, kind: str, value: Any, served: bool) -> None:
    lie = answers.version("s", 1, PROTO3 + f"package {kind.rpartition('.')[0]}; message Lie {{}}") | {"name": name}
    text = PROTO3 + f'import "{name}"; message M {{ {kind} v = 1; }}'
    answers.schema(1, text, references=[lie] if served else [])
    (row,) = rows(resolve(registry(answers), 1, CAPS), b"\x0a" + bytes([value.ByteSize()]) + value.SerializeToString())
    for field, expected in value.ListFields():
        assert row["v"][field.name] == expected
    assert answers.asked == ["/schemas/ids/1"]


def test_confluents_options_are_kept(answers: Answers) -> None:
    answers.schema(
        1, PROTO3 + 'import "confluent/meta.proto"; message M { int32 x = 1 [(confluent.field_meta).doc="d"]; }'
    )
    pool, (message,) = load_files(resolve(registry(answers), 1, CAPS))
    options = meta_pb2.DESCRIPTOR.extensions_by_name["field_meta"]
    assert b"d" in message.fields_by_name["x"].GetOptions().SerializeToString()
    assert options.number == pool.FindExtensionByName("confluent.field_meta").number


def test_two_versions_of_one_name_live_side_by_side(answers: Answers) -> None:
    answers.schema(1, PROTO3 + "package p; message M { string x = 1; }")
    answers.schema(2, PROTO3 + "package p; message M { int32 x = 1; bool y = 2; }")
    first, second = (resolve(registry(answers), key, CAPS) for key in (1, 2))
    assert rows(first, b"\x0a\x01a") == [{"x": "a"}]
    assert rows(second, b"\x08\x05\x10\x01") == [{"x": 5, "y": True}]
    assert rows(first, b"\x0a\x01b") == [{"x": "b"}]


@pytest.mark.parametrize(
    ("head", "field"),
    [
        ('syntax = "proto2";', "optional int32 x = 1;"),
        ("", "required int32 x = 1;"),
        (PROTO3, "int32 x = 1;"),
        ('edition = "2023";', "int32 x = 1;"),
        ('edition = "2023"; option features.field_presence = IMPLICIT;', "int32 x = 1;"),
        (PROTO3 + 'option java_package = "a"; option optimize_for = SPEED;', "int32 x = 1 [deprecated = true];"),
    ],
)
@pytest.mark.parametrize("form", ["text", "nameless"])
def test_syntaxes(answers: Answers, head: str, field: str, form: str) -> None:
    text = f"{head} message M {{ {field} }}"
    answers.schema(1, as_form(form, "m.proto", text))
    assert rows(resolve(registry(answers), 1, CAPS), b"\x08\x05") == [{"x": 5}]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("word", ["public", "weak"])
def test_kinds_of_import(answers: Answers, word: str, form: str) -> None:
    a = PROTO3 + "package a; message A { int32 x = 1; }"
    b = f'syntax = "proto2"; import {word} "a.proto"; message B {{ optional a.A a = 1; }}'
    top = 'syntax = "proto2"; import "b.proto"; message M { optional B b = 1; }'
    of_a = answers.version("a", 1, a) | {"name": "a.proto"}
    of_b = answers.version("b", 1, as_form(form, "b.proto", b, {"a.proto": a}), references=[of_a]) | {"name": "b.proto"}
    answers.schema(1, as_form(form, "m", top, {"b.proto": b, "a.proto": a}), references=[of_b])
    assert rows(resolve(registry(answers), 1, CAPS), b"\x0a\x04\x0a\x02\x08\x05") == [{"b": {"a": {"x": 5}}}]


def test_public_import_can_be_used(answers: Answers) -> None:
    a = answers.version("a", 1, PROTO3 + "message A { int32 x = 1; }") | {"name": "a.proto"}
    b = answers.version("b", 1, PROTO3 + 'import public "a.proto";', references=[a]) | {"name": "b.proto"}
    answers.schema(1, PROTO3 + 'import "b.proto"; message M { A a = 1; }', references=[b])
    assert rows(resolve(registry(answers), 1, CAPS), b"\x0a\x02\x08\x05") == [{"a": {"x": 5}}]


def test_reference_that_nobody_imports_does_no_harm(answers: Answers) -> None:
    broken = answers.version("a", 1, "message {") | {"name": "a.proto"}
    answers.schema(1, PROTO3 + "message M { int32 x = 1; }", references=[broken])
    assert rows(resolve(registry(answers), 1, CAPS), b"\x08\x05") == [{"x": 5}]


@pytest.mark.parametrize("key", [1, "89791762-2336-4186-9674-299b90a802e2"])
def test_format_is_requested_everywhere(answers: Answers, key: int | str) -> None:
    deep = {"d/base.proto": BASE}
    path = f"/schemas/ids/{key}" if isinstance(key, int) else f"/schemas/guids/{key}"
    reference = {"subject": "base", "version": 1, "name": "d/base.proto"}
    body = {"schemaType": "PROTOBUF", "schema": as_form("named", "x", LEFT, deep), "references": [reference]}
    answers[f"{path}?format=serialized"] = (200, body)
    body = {"schemaType": "PROTOBUF", "schema": as_form("nameless", "", BASE)}
    answers["/subjects/base/versions/1?deleted=true&format=serialized"] = (200, body)
    sources = registry(answers, format="serialized").fetch(key)
    assert sources.compiled.keys() == {"", "d/base.proto"}


def test_text_that_protoc_refuses_is_requested_compiled(answers: Answers) -> None:
    good = as_form("nameless", "", PROTO3 + "message M { int32 x = 1; }")
    answers.schema(1, "message M { badly printed }")
    answers["/schemas/ids/1?format=serialized"] = (200, {"schemaType": "PROTOBUF", "schema": good})
    assert rows(resolve(registry(answers), 1, CAPS), b"\x08\x05") == [{"x": 5}]
    assert len(answers.asked) == 2


def test_compiled_form_that_is_none_is_requested_as_text(answers: Answers) -> None:
    answers["/schemas/ids/1?format=serialized"] = (200, {"schemaType": "PROTOBUF", "schema": MANGLED})
    answers.schema(1, PROTO3 + "message M { int32 x = 1; }")
    assert rows(resolve(registry(answers, format="serialized"), 1, CAPS), b"\x08\x05") == [{"x": 5}]


@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        ((200, {"schemaType": "PROTOBUF", "schema": "message M { badly printed }"}), SchemaInvalid),
        ((422, {"error_code": 422, "message": "no such format"}), SchemaInvalid),
        ((500, {"error_code": 500, "message": "unable to resolve option confluent.field_meta"}), SchemaInvalid),
        ((200, {"schemaType": "PROTOBUF", "schema": MANGLED}), SchemaInvalid),
        ((503, {"error_code": 503, "message": "starting"}), RegistryUnreachable),
    ],
    ids=["text again", "no such format", "cannot", "mangled", "no answer"],
)
def test_no_compiled_form_either(answers: Answers, second: Any, outcome: type[Exception]) -> None:
    answers.schema(1, "message M { badly printed }")
    answers["/schemas/ids/1?format=serialized"] = second
    with pytest.raises(outcome, match=r"schema:1:13: Expected|starting"):
        resolve(registry(answers), 1, CAPS)
    assert answers.asked.count("/schemas/ids/1") <= 3


def test_settings_name_the_format() -> None:
    assert RegistrySettings().format == "text"
    with pytest.raises(ValueError, match="format"):
        RegistrySettings.model_validate({"format": "avro"})
