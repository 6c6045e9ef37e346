"""Schemas from outside: usable or refused with a reason, never a crash, never another schema than the registry's."""

import contextlib
import resource
from collections.abc import Iterator

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from spark_app.model.catalog import Decodable
from spark_app.protobuf.decode import decoder_for
from spark_app.protobuf.schemas.descriptors import CompileUnavailable, compile_sources, digest
from spark_app.protobuf.schemas.ledger import message_schemas
from spark_app.protobuf.schemas.limits import SchemaInvalid
from spark_app.protobuf.schemas.registry import ROOT, Sources
from tests.support.protos import CAPS, PROTO3, compile_text

GOOGLE = PROTO3 + "package google.protobuf; message M { %s t = 1; } message %s { %s }"


def use(descriptor_set: bytes, payload: bytes) -> int:
    """What the driver and a worker do with a schema; gives the number of rows written."""
    message_schemas(descriptor_set)
    decoder = decoder_for(Decodable(1, descriptor_set, digest(descriptor_set)), (0,))
    assert decoder is not None
    decoded = decoder.decode(pa.array([payload], pa.binary()))
    return len(decoded.rows) + len(decoded.rejects)


@pytest.mark.parametrize(
    ("name", "fields", "payload"),
    [
        ("StringValue", "string x = 1;", b"\x0a\x03\x0a\x01a"),
        ("StringValue", "repeated int32 value = 1;", b"\x0a\x03\x0a\x01\x05"),
        ("StringValue", "M value = 1;", b"\x0a\x02\x0a\x00"),
        ("Struct", "string x = 1;", b"\x0a\x03\x0a\x01a"),
    ],
)
def test_own_message_under_googles_name_does_not_crash(name: str, fields: str, payload: bytes) -> None:
    try:
        descriptor_set = compile_text(GOOGLE % (name, name, fields)).descriptor_set
    except SchemaInvalid:
        return
    assert use(descriptor_set, payload) == 1


def test_own_timestamp_under_googles_name_is_not_read_as_a_time() -> None:
    with pytest.raises(SchemaInvalid):
        compile_text(GOOGLE % ("Timestamp", "Timestamp", "string seconds = 1; int32 nanos = 2;"))


def test_singular_map_entry_does_not_crash() -> None:
    fields = [FieldDescriptorProto(name=n, number=i, type=9, label=1) for i, n in ((1, "key"), (2, "value"))]
    entry = DescriptorProto(name="E", field=fields)
    entry.options.map_entry = True
    field = FieldDescriptorProto(name="m", number=1, type=11, label=1, type_name=".M.E")
    file = FileDescriptorProto(
        name="x", syntax="proto3", message_type=[DescriptorProto(name="M", field=[field], nested_type=[entry])]
    )
    try:
        descriptor_set = compile_sources(Sources(compiled={ROOT: file}), CAPS)
    except SchemaInvalid:
        return
    assert use(descriptor_set, b"\x0a\x00") == 1


@pytest.mark.parametrize("name", ["nope.proto", "../../etc/passwd", "/etc/passwd", "a\0b", "protolake_value.proto"])
def test_import_that_is_nowhere_is_refused(name: str) -> None:
    with pytest.raises(SchemaInvalid):
        compile_sources(Sources(compiled={ROOT: FileDescriptorProto(name="x", dependency=[name])}), CAPS)


@pytest.mark.parametrize("name", [" ", '"', "\\", "\x7f", "a b"])
@pytest.mark.parametrize("what", ["message", "package"])
def test_a_name_that_no_text_could_have_is_refused_with_a_reason(what: str, name: str) -> None:
    file = FileDescriptorProto(name="x", syntax="proto3", message_type=[DescriptorProto(name="M")])
    if what == "message":
        file.message_type[0].name = name
    else:
        file.package = name
    with pytest.raises(SchemaInvalid, match=r"^protoc: \S.{10}") as refused:
        compile_sources(Sources(compiled={ROOT: file}), CAPS)
    assert "E0000" not in str(refused.value)


def test_import_with_an_endless_name_is_refused() -> None:
    with pytest.raises(SchemaInvalid):
        compile_sources(Sources(compiled={ROOT: FileDescriptorProto(name="x", dependency=["a" * 5000])}), CAPS)


def test_reference_cannot_replace_the_schema() -> None:
    text = PROTO3 + "message M { string mine = 1; }"
    with pytest.raises(SchemaInvalid):
        compile_text(text, {"protolake_value.proto": PROTO3 + "message M { string theirs = 1; }"})


def test_descriptor_without_a_required_field_is_refused() -> None:
    file = FileDescriptorProto(name="x", syntax="proto3")
    file.options.uninterpreted_option.add().name.add()
    with pytest.raises(SchemaInvalid, match="Unable to parse"):
        compile_sources(Sources(compiled={ROOT: file}), CAPS)


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond 8 bytes. Not a fixture: pytest itself writes while one is set up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_does_not_refuse_a_schema() -> None:
    with pytest.raises(CompileUnavailable, match="File too large"), full_disk():
        compile_text(PROTO3 + "message M { string x = 1; }")


def test_confluents_own_imports_are_known() -> None:
    text = 'import "confluent/meta.proto"; message M { string x = 1 [(confluent.field_meta).doc = "d"]; }'
    assert use(compile_text(PROTO3 + text).descriptor_set, b"\x0a\x01a") == 1
