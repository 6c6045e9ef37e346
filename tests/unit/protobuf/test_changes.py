"""Each kind of difference between two versions of a schema is found where it is, and nothing else."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from spark_app.protobuf.changes.differences import Change, Column
from tests.support.cost import least_cpu
from tests.support.protos import PROTO3, changes_between, compile_text

PROTO2 = 'syntax = "proto2";\n'


def changes(old: str, new: str, head: str = PROTO3) -> list[Change]:
    return changes_between(*(compile_text(f"{head}{text}").descriptor_set for text in (old, new)))


def kinds(old: str, new: str, head: str = PROTO3) -> list[tuple[str, str]]:
    return [(change.kind, change.path) for change in changes(old, new, head)]


def event(*fields: str) -> str:
    return f"message Event {{ {' '.join(f'{field};' for field in fields)} }}"


FIELDS = [  # a field of both versions, what its change is
    ("string a = 1", "string a = 1", []),
    ("string a = 1", "string b = 1", ["rename"]),
    ("int32 a = 1", "int64 b = 1", ["rename"]),
    ("string a = 1", "int64 b = 1", ["reuse"]),
    ("string a = 1", "repeated string a = 1", ["repeated"]),
    ("repeated string a = 1", "string a = 1", ["singular"]),
    ("repeated string a = 1", "repeated bytes a = 1", ["bytes"]),
    ("int64 a = 1", "int32 a = 1", ["narrow"]),
    ("uint32 a = 1", "uint64 a = 1", ["widen"]),
    ("int64 a = 1", "uint64 a = 1", ["sign"]),
    ("uint64 a = 1", "int32 a = 1", ["sign", "narrow"]),
    ("fixed64 a = 1", "sfixed64 a = 1", ["sign"]),
    ("int64 a = 1", "repeated uint64 a = 1", ["repeated", "sign"]),
    ("int64 a = 1", "bool a = 1", ["bool"]),
    ("int32 a = 1", "Color a = 1", ["enum"]),
    ("Color a = 1", "bool a = 1", ["bool"]),
    ("string a = 1", "bytes a = 1", ["bytes"]),
    ("bytes a = 1", "string a = 1", ["bytes"]),
    ("int32 a = 1", "sint32 a = 1", ["incompatible"]),
    ("sint64 a = 1", "sint32 a = 1", ["narrow"]),
    ("int32 a = 1", "fixed32 a = 1", ["incompatible"]),
    ("fixed32 a = 1", "float a = 1", ["incompatible"]),
    ("int32 a = 1", "string a = 1", ["incompatible"]),
    ("int64 a = 1", "double a = 1", ["incompatible"]),
    ("double a = 1", "float a = 1", ["incompatible"]),
    ("Point a = 1", "bytes a = 1", ["incompatible"]),
    ("Point a = 1", "Place a = 1", ["message"]),
    ("map<string, int32> a = 1", "map<string, int32> a = 1", []),
    ("map<string, int32> a = 1", "string a = 1", ["incompatible"]),
    ("string a = 1", "optional string a = 1", ["presence"]),
    ("string a = 1", "oneof x { string a = 1; }", ["oneof", "presence"]),
    ("optional string a = 1", "string a = 1", ["no_presence"]),
    ("oneof x { string a = 1; }", "oneof y { string a = 1; }", ["oneof"]),
    ("string a = 1", "string z = 9", ["removed", "added"]),
    ("string a = 1", "string a = 9", ["renumber"]),
    ("string a = 1; string b = 2", "string a = 2", ["removed", "renumber"]),
    ("string a = 1; string b = 2", "string b = 1; string a = 2", ["swap", "swap"]),
    ("string a = 1; int64 b = 2", "int64 b = 1; string a = 2", ["swap", "swap"]),
    ("string a = 1; string b = 2; string c = 3", "string b = 1; string c = 2; string a = 3", ["swap"] * 3),
    ("string a = 1", 'reserved "a"; string b = 1', ["reuse"]),
    ("string a = 1", "string b = 1; int64 a = 2", ["reuse", "renumber"]),
]
MORE = (
    "enum Color { RED = 0; BLUE = 1; } message Point { int64 x = 1; } message Place { int64 x = 1; string name = 2; }"
)


@pytest.mark.parametrize(("old", "new", "expected"), FIELDS)
def test_a_change_of_a_field(old: str, new: str, expected: list[str]) -> None:
    assert [kind for kind, path in kinds(event(old) + MORE, event(new) + MORE) if path != "a.name"] == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("required string a = 1", "optional string a = 1", ["required"]),
        ("optional int32 a = 1 [default = 4]", "optional int32 a = 1 [default = 5]", ["default"]),
        ("optional string a = 1", "optional string b = 1", ["rename"]),
        ("optional group A = 1 { optional int32 x = 1; }", "optional string a = 1", ["incompatible"]),
    ],
)
def test_a_change_of_a_field_of_proto2(old: str, new: str, expected: list[str]) -> None:
    ends = [text if text.endswith("}") else f"{text};" for text in (old, new)]
    found = changes(*(f"message Event {{ {text} }}" for text in ends), head=PROTO2)
    assert [c.kind for c in found if c.message == "Event"] == expected


def test_a_change_says_what_was_declared_and_what_is() -> None:
    [change] = changes(event("map<string, int32> scores = 4"), event("repeated string scores = 4"))
    assert (change.kind, change.message, change.was, change.path) == ("incompatible", "Event", "Event", "scores")
    assert (change.old, change.new) == ("map<string, int32> scores = 4", "repeated string scores = 4")
    assert change.before == Column(("scores",), *[pa.map_(pa.string(), pa.int64())] * 2)
    assert change.after == Column(("scores",), *[pa.list_(pa.string())] * 2)
    [change] = changes(event("int32 a = 1"), event("reserved 1"))
    assert (change.kind, change.old, change.new, change.after) == ("removed", "int32 a = 1", "reserved 1", None)
    [change] = changes(event("int32 a = 1"), event('reserved "a"'))
    assert change.new == 'reserved "a"'
    [change] = changes(event("int32 a = 1"), event("int32 a = 1", "optional int64 b = 2"))
    assert (change.kind, change.old, change.new, change.before) == ("added", "", "optional int64 b = 2", None)


def test_columns_have_the_names_that_tables_have() -> None:
    found = changes(event("string a = 1"), event("string a = 1", "string A = 3", "string _offset = 4"))
    columns = [(c.path, c.after) for c in found]
    assert columns == [
        ("A", Column(("A_3",), *[pa.string()] * 2)),
        ("_offset", Column(("_offset_4",), *[pa.string()] * 2)),
    ]


def test_paths_lead_through_messages_lists_and_maps() -> None:
    def text(kind: str, value: str) -> str:
        inner = f"message City {{ {kind} zip = 3; }} enum Level {{ LOW = 0; {value} = 1; }}"
        return event("Home home = 1", "repeated Home homes = 2", "map<string, Home> by_name = 7") + (
            f"message Home {{ City city = 5; map<int32, Level> levels = 6; }} {inner}"
        )

    found = changes(text("string", "HIGH"), text("bytes", "TOP"))
    assert [(c.kind, c.message, c.path) for c in found] == [
        (kind, "Event", f"{way}.{rest}")
        for way in ("home", "homes", "by_name.value")
        for kind, rest in (("bytes", "city.zip"), ("enum_rename", "levels.value"))
    ]


def test_a_message_that_others_contain_is_compared_by_itself_if_it_was_not_always_inside() -> None:
    old = "message Event { string a = 1; }"
    new = "message Batch { repeated Event events = 1; } message Event { string b = 1; }"
    assert [(c.kind, c.message, c.path) for c in changes(old, new)] == [
        ("message_added", "Batch", ""),
        ("rename", "Event", "b"),
    ]


def test_parts_of_a_map() -> None:
    assert kinds(event("map<string, int32> m = 1"), event("map<string, int64> m = 1")) == [("widen", "m.value")]
    assert kinds(event("map<int32, string> m = 1"), event("map<uint32, bytes> m = 1")) == [
        ("sign", "m.key"),
        ("bytes", "m.value"),
    ]


def test_values_of_an_enum() -> None:
    def text(*values: str) -> str:
        return event("Color c = 1") + f"enum Color {{ {' '.join(f'{value};' for value in values)} }}"

    found = changes(text("RED = 0", "BLUE = 1", "OLD = 2"), text("ROUGE = 0", "BLUE = 1", "NEW = 3"))
    assert [(c.kind, c.path, c.old, c.new) for c in found] == [
        ("enum_rename", "c", "RED = 0", "ROUGE = 0"),
        ("enum_removed", "c", "OLD = 2", ""),
        ("enum_added", "c", "", "NEW = 3"),
    ]


def test_messages_that_come_go_and_move() -> None:
    found = changes(
        event("int32 a = 1") + "message Gone { int32 x = 1; } message Was { string y = 1; }",
        event("int32 a = 1") + "message Box { message Is { string y = 1; } } message New { int64 z = 1; }",
    )
    assert [(c.kind, c.message, c.was, c.old, c.new) for c in found] == [
        ("message_added", "Box", "", "", "Box"),
        ("message_added", "New", "", "", "New"),
        ("moved", "Box.Is", "Was", "Was", "Box.Is"),
        ("message_removed", "Gone", "Gone", "Gone", ""),
    ]


def test_a_message_in_another_package_is_compared_with_the_one_of_its_name() -> None:
    old, new = (
        f"package shop.v{number}; message Event {{ {kind} a = 1; }}" for number, kind in ((1, "string"), (2, "bytes"))
    )
    assert [(c.kind, c.message, c.was, c.path) for c in changes(old, new)] == [
        ("moved", "shop.v2.Event", "shop.v1.Event", ""),
        ("bytes", "shop.v2.Event", "shop.v1.Event", "a"),
    ]


def test_a_message_that_got_its_first_field_or_contains_itself_is_no_longer_the_same_type() -> None:
    old, new = (f"message Event {{ Point p = 1; }} message Point {{ {text} }}" for text in ("", "int64 x = 1;"))
    assert kinds(old, new) == [("shape", "p")]
    helpers = "message A { B q = 1; } message B { B q = 1; int64 x = 2; }"
    old, new = (f"message Event {{ {kind} p = 1; }} {helpers}" for kind in "AB")
    assert ("shape", "p.q") in kinds(old, new)


def test_messages_of_imported_files() -> None:
    text = f'{PROTO3}import "home.proto"; message Event {{ Home home = 1; }}'
    old, new = (
        compile_text(text, {"home.proto": f"{PROTO3}message Home {{ {kind} city = 1; }}"}).descriptor_set
        for kind in ("string", "repeated string")
    )
    assert [(c.kind, c.path) for c in changes_between(old, new)] == [("repeated", "home.city")]


def test_recursive_messages_end() -> None:
    old, new = (f"message Event {{ Event next = 1; {kind} id = 2; }}" for kind in ("int64", "uint64"))
    assert kinds(old, new) == [("sign", "id")]
    old, new = (
        f"message Event {{ A a = 1; }} message A {{ B b = 1; }} message B {{ A a = 1; {kind} x = 2; }}"
        for kind in ("int32", "int64")
    )
    assert kinds(old, new) == [("widen", "a.b.x")]


def test_messages_that_contain_each_other_are_compared() -> None:
    old, new = (f"message A {{ B b = 1; }} message B {{ A a = 1; {kind} x = 2; }}" for kind in ("int32", "int64"))
    assert kinds(old, new) == [("widen", "b.x")]


def test_the_same_schema_has_no_changes_and_order_does_not_count() -> None:
    fields = [f"string f{number} = {number}" for number in range(1, 40)]
    mixed = random.Random(4).sample(fields, len(fields))
    assert changes(event(*fields), event(*mixed)) == []


def test_a_wide_schema_is_compared_soon() -> None:
    old = event(*(f"int32 f{number} = {number}" for number in range(1, 1_900)))
    new = event(*(f"int64 g{number} = {number}" for number in range(1, 1_900)))
    sets = [compile_text(f"{PROTO3}{text}").descriptor_set for text in (old, new)]
    assert [c.kind for c in changes_between(*sets)] == ["rename"] * 1_899
    assert least_cpu(lambda: changes_between(*sets)) < 5
