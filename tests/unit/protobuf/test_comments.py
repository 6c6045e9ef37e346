"""Leading comments of .proto files, as far as the paths of columns: what counts as one, and what may be in it."""

from dataclasses import replace

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from spark_app.model.columns import Path
from spark_app.protobuf.columns.fields import column_comments
from spark_app.protobuf.columns.types import arrow_schema
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.schemas.descriptors import LONGEST, clean, compile_schema, compile_sources, digest
from spark_app.protobuf.schemas.registry import ROOT, Registry, Sources
from spark_app.protobuf.schemas.resolution import resolve
from spark_app.settings.connections import RegistrySettings
from tests.support.answers import Answers
from tests.support.protos import CAPS, PROTO3

EVERY_KIND = """
// Detached from the file.

// The message,
// in two lines.
message Event {
  // Detached.

  // A field.
  string name = 1; // Trailing, ignored.
  string trailing = 2; // Only trailing.
  /* A block
   * with stars. */
  Suit suit = 3;
  // The oneof, which is no column.
  oneof choice {
    // A member.
    string left = 4;
    int64 right = 5;
  }
  // A map.
  map<string, Place> places = 6;
  // A list.
  repeated Place visited = 7;
  // A struct.
  Place home = 8;
  // Nested message.
  message Place {
    // The city.
    string city = 1;
    // Deeper.
    Inner inner = 2;
    message Inner {
      // Deepest.
      int64 x = 1;
    }
  }
  // An enum.
  enum Suit {
    // A value.
    CLUBS = 0;
  }
  // Itself: JSON text.
  Event parent = 9;
  // A column of the app has this name.
  string _topic = 10;
}
// A service.
service S {
  // A call.
  rpc Call(Event) returns (Event);
}
"""
JOINED = "👩\u200d🚀 \u0645\u06cc\u200c\u062e\u0648"  # two emojis as one, and letters that must not be joined
PLACE = {("city",): "The city.", ("inner",): "Deeper.", ("inner", "x"): "Deepest."}


def columns(text: str, references: dict[str, str] | None = None, name: str = "Event") -> dict[Path, str]:
    compiled = compile_schema(Sources(texts={ROOT: PROTO3 + text} | (references or {})), CAPS)
    _, messages = load_files(compiled.descriptor_set)
    [message] = [message for message in messages if message.name == name]
    found = column_comments(message, compiled.comments)
    kept = arrow_schema(message)
    assert [path for path in found if path and not exists(kept, path)] == []
    return found


def exists(columns: pa.Schema, path: Path) -> bool:
    kind = pa.struct(list(columns))
    for name in path:
        while not pa.types.is_struct(kind):
            kind = kind.item_type if pa.types.is_map(kind) else kind.value_type
        if kind.get_field_index(name) < 0:
            return False
        kind = kind.field(name).type
    return True


def test_leading_comments_of_every_kind_of_field() -> None:
    assert columns(EVERY_KIND) == {
        (): "The message, in two lines.",
        ("name",): "A field.",
        ("suit",): "A block with stars.",
        ("left",): "A member.",
        ("places",): "A map.",
        ("visited",): "A list.",
        ("home",): "A struct.",
        ("parent",): "Itself: JSON text.",
        ("_topic_10",): "A column of the app has this name.",
        **{(column, *path): text for column in ("places", "visited", "home") for path, text in PLACE.items()},
    }


def test_messages_of_imported_files_have_comments_too() -> None:
    common = PROTO3 + "package a.b; // x\n\n// Unused here.\nmessage Place {\n// The city.\nstring city = 1; }"
    unused = "\nmessage Other {\n// No column has it.\nstring x = 1; }"
    text = 'import "common.proto"; import "google/type/money.proto"; import "google/protobuf/timestamp.proto";\n'
    text += "message Event { a.b.Place home = 1; google.type.Money bet = 2; google.protobuf.Timestamp at = 3; }"
    found = columns(text, {"common.proto": common + unused})
    assert found.pop(("home", "city")) == "The city."
    assert found.pop(("bet", "currency_code")).startswith("The")
    assert {path[0] for path in found} == {"bet"}
    compiled = compile_schema(Sources(texts={ROOT: PROTO3 + text, "common.proto": common + unused}), CAPS)
    assert [name for name in compiled.comments if "Other" in name or "Timestamp" in name] == []


def test_message_types_of_one_file_keep_their_comments_apart() -> None:
    text = "// One.\nmessage Event {\n// Of one.\nstring x = 1; }\n// Two.\nmessage Two {\n// Of two.\nstring x = 1; }"
    assert columns(text) == {(): "One.", ("x",): "Of one."}
    assert columns(text, name="Two") == {(): "Two.", ("x",): "Of two."}


def test_proto2_groups_and_extensions() -> None:
    text = """syntax = "proto2";
// The message.
message Event {
  // A group.
  optional group Part = 1 {
    // Inside.
    optional string x = 1;
  }
  extensions 100 to 200;
}
extend Event {
  // No column.
  optional string extra = 100;
}
"""
    compiled = compile_schema(Sources(texts={ROOT: text}), CAPS)
    _, [message] = load_files(compiled.descriptor_set)
    found = column_comments(message, compiled.comments)
    assert found == {(): "The message.", ("part", "x"): "Inside."}  # for protoc a group's comment is its message's


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ('// It\'s "quoted" \\ and `ticked` %s {x} $1', 'It\'s "quoted" \\ and `ticked` %s {x} $1'),
        ("// ends */ a block /* begins", "ends */ a block /* begins"),
        ("// one\n// two\r\n//\n//   three\tfour", "one two three four"),
        ("// \x1b[31mred\x07 \u202eright to left\u202c\u200b", "[31mred right to left"),
        (f"// Größe, 大小, 🎲 𠀀 {JOINED}", f"Größe, 大小, 🎲 𠀀 {JOINED}"),
        ("// 123", "123"),
        ("// '; DROP TABLE silver; --", "'; DROP TABLE silver; --"),
        ("//", None),
        ("// \x01\x02", None),
    ],
)
def test_text_of_a_comment(comment: str, found: str | None) -> None:
    assert columns(f"{comment}\nmessage Event {{}}").get(()) == found


@pytest.mark.parametrize("letter", ["x", "🎲"])
def test_a_comment_of_a_megabyte_is_cut(letter: str) -> None:
    text = f"// {letter * (1_000_000 // len(letter.encode()))}\nmessage Event {{ int32 x = 1; }}"
    assert columns(text)[()] == letter * (LONGEST - 1) + "…"


def test_a_nul_is_no_part_of_a_comment() -> None:
    """protoc refuses the text; so it is shown here without it."""
    assert clean("a\0b\x7f\x85c\ud800") == "ab c"


def test_comments_do_not_change_the_descriptors() -> None:
    plain = 'import "google/type/money.proto"; message Event { google.type.Money x = 1; }'
    noted = plain.replace("message", "\n// A comment.\nmessage").replace("{ ", "{\n// Another.\n")
    first, second = (compile_sources(Sources(texts={ROOT: PROTO3 + text}), CAPS) for text in (plain, noted))
    assert digest(first) == digest(second)
    assert not any(file.HasField("source_code_info") for file in FileDescriptorSet.FromString(first).file)


def test_a_schema_that_keeps_the_limits_only_without_comments_is_compiled_without() -> None:
    """Source info is several times as large as the descriptors."""
    text = PROTO3 + "".join(f"// C{n}\nmessage M{n} {{ int32 x = 1; }}\n" for n in range(100))
    assert len(compile_schema(Sources(texts={ROOT: text}), CAPS).comments) == 100
    compiled = compile_schema(Sources(texts={ROOT: text}), replace(CAPS, max_text_bytes=1000))
    assert compiled.comments == {}
    assert compiled.descriptor_set == compile_sources(Sources(texts={ROOT: text}), CAPS)


def test_compiled_schemas_have_no_comments() -> None:
    """Even if there is source info in them: nobody has checked it, and these bytes are no text."""
    text = "// A comment.\nmessage Event { int32 x = 1; }"
    files = FileDescriptorSet.FromString(compile_sources(Sources(texts={ROOT: PROTO3 + text}), CAPS))
    file = files.file[-1]
    file.source_code_info.location.add(path=[4, 0], span=[0, 0, 1], leading_comments="abc")
    hostile = FileDescriptorProto.FromString(file.SerializeToString().replace(b"abc", b"\xff\xfe\xfd"))
    for given in (file, hostile):
        assert compile_schema(Sources(compiled={ROOT: given}), CAPS).comments == {}


def test_comments_come_with_the_schema_from_the_registry(answers: Answers) -> None:
    reference = answers.version("place", 3, PROTO3 + "message Place {\n// The city.\nstring city = 1; }")
    text = 'import "place.proto";\n// One event.\nmessage Event { Place home = 1; }'
    answers.schema(7, PROTO3 + text, references=[reference | {"name": "place.proto"}])
    found = resolve(Registry(RegistrySettings(url=answers.url), CAPS), 7, CAPS)
    assert found.comments == {"Event": "One event.", "Place.city": "The city."}
