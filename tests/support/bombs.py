"""Schemas that are small to send and dear to compile or to use: (text or compiled file) by name."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from spark_app.protobuf.schemas.registry import ROOT, Sources
from tests.support.protos import PROTO3

CAP = 1 << 20  # bytes of a schema; a bomb is as large as it may be
Bomb = Callable[[], Sources]


def text(body: str, head: str = PROTO3, **references: str) -> Sources:
    whole = head + body
    return Sources(len(whole), {ROOT: whole} | {f"{name}.proto": ref for name, ref in references.items()})


def compiled(file: FileDescriptorProto) -> Sources:
    return Sources(file.ByteSize(), {}, {ROOT: file})


def numbered(pattern: str, head: str = "", tail: str = "", most: int = CAP) -> str:
    """`pattern` with rising numbers, as often as the cap allows."""
    parts: list[str] = []
    size = len(PROTO3) + len(head) + len(tail) + 10
    while True:
        part = pattern.replace("#", str(len(parts) + 20_000))  # some smaller ones may not be used for fields
        size += len(part)
        if size > CAP or len(parts) >= most:
            return head + "".join(parts) + tail
        parts.append(part)


def levels(depth: int, fields: int) -> str:
    """Each level has several fields of the next: fields ** depth columns."""
    bodies = [
        f"message L{n} {{ " + "".join(f"L{n + 1} f{i} = {i + 1}; " for i in range(fields)) + "}" for n in range(depth)
    ]
    return "".join(bodies) + f"message L{depth} {{ int32 x = 1; }}"


def mixed_messages() -> str:
    """Messages of 2,000 columns each, as many as fit."""
    wide = "message W { " + "".join(f"int32 f{i} = {i + 1}; " for i in range(1999)) + "}"
    return numbered("message M#{W w=1;}", wide)


def never_used() -> str:
    """The exponential message hides inside another, of which nobody makes a field."""
    return "message M { int32 x = 1; " + levels(9, 10) + "}"


def many_imports() -> Sources:
    names = [f"r{i}" for i in range(99)]
    head = "".join(f'import "{name}.proto";' for name in names)
    body = numbered("message M#{}")[: CAP // 100].rpartition("message")[0]
    return text(head + "message M {}", **{n: PROTO3 + f"package {n};" + body for n in names})


def reserved_compiled() -> Sources:
    message = DescriptorProto(name="M")
    for i in range(90_000):
        message.reserved_range.add(start=i + 1, end=i + 2)
    return compiled(FileDescriptorProto(name="x", syntax="proto3", message_type=[message]))


def wide_compiled() -> Sources:
    fields = [FieldDescriptorProto(name=f"f{i}", number=i + 1, type=5, label=1) for i in range(65_536)]
    return compiled(
        FileDescriptorProto(name="x", syntax="proto3", message_type=[DescriptorProto(name="M", field=fields)])
    )


def deep_compiled() -> Sources:
    message = DescriptorProto(name="M")
    for _ in range(44):
        message = DescriptorProto(name="M", nested_type=[message])
    return compiled(FileDescriptorProto(name="x", syntax="proto3", message_type=[message]))


def long_names() -> str:
    """Each error, and each type, is written with the name of the package: far more comes out than goes in."""
    package = "p" * (CAP // 4)
    return f"package {package};" + numbered("A f#=#;", "message A{} message M{" + " " * len(package), "}")


def long_errors() -> str:
    name = "N" * (CAP // 4)
    return f"message {name} {{" + numbered("enum E{}", " " * len(name), "}")


FIELDS = 65_000  # protoc refuses more in one message
BOMBS: dict[str, Bomb] = {
    "messages": lambda: text(numbered("message M#{}")),
    "reserved numbers": lambda: text(numbered("#,", "message M { reserved ", "1000000; }")),
    "reserved numbers, compiled": reserved_compiled,
    "extension ranges": lambda: text(numbered("extensions #;", "message M{", "}"), 'syntax = "proto2";'),
    "nesting": lambda: text("message M{" * 20_000 + "}" * 20_000),
    "nesting, compiled": deep_compiled,
    "fields": lambda: text(numbered("int32 f#=#;", "message M{", "}", FIELDS)),
    "too many fields": lambda: text(numbered("X f#=#;", "message M{", "}")),
    "too many fields, compiled": wide_compiled,
    "fields with features": lambda: text(
        numbered("int32 f#=#[features.field_presence=EXPLICIT];", "message M{", "}"), 'edition = "2023";'
    ),
    "exponential columns": lambda: text(levels(9, 10)),
    "exponential columns, never used": lambda: text(never_used()),
    "wide messages": lambda: text(mixed_messages()),
    "enum": lambda: text(numbered("E#=#;", "message M{} enum E { E0=0;", "}")),
    "enum aliases": lambda: text(numbered("E#=0;", "message M{} enum E { option allow_alias=true; E0=0;", "}")),
    "oneof": lambda: text(numbered("int32 f#=#;", "message M{oneof o{", "}}", FIELDS)),
    "maps": lambda: text(numbered("map<int32,int32> m#=#;", "message M{", "}")),
    "services": lambda: text(numbered("rpc R#(M)returns(M);", "message M{} service S{", "}")),
    "option strings": lambda: text(
        numbered(
            "option (o)='" + "x" * 1000 + "';",
            'import "google/protobuf/descriptor.proto";'
            "extend google.protobuf.FileOptions { repeated string o = 50000; } message M{} ",
        )
    ),
    "nested option": lambda: text(
        'import "google/protobuf/descriptor.proto"; message M { M m = 1; }'
        "extend google.protobuf.FileOptions { M o = 50000; } option (o) = {" + "m {" * 60_000 + "}" * 60_001 + ";"
    ),
    "string literal": lambda: text('message M { optional string s = 1 [default="' + "\\000" * 260_000 + '"]; }', ""),
    "imports": many_imports,
    "import of itself": lambda: text('import "protolake_value.proto"; message M {}'),
    "import statements": lambda: text(numbered('import "a#.proto";', "message M{}")),
    "braces": lambda: text("{" * 1_000_000),
    "long package": lambda: text(long_names()),
    "long errors": lambda: text(long_errors()),
}
