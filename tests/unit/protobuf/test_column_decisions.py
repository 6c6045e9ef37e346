"""The columns that the fields of a schema version fill, by policy: chains of versions, in any order of arrival."""

from __future__ import annotations

import random

import pytest

from spark_app.lake.delta.merged_columns import find_clash
from spark_app.model.catalog import Decodable
from spark_app.model.schema_changes import DEFAULTS, NEW_NAME, NEW_TYPE, Kind, Policy
from spark_app.protobuf.changes.decisions import ColumnPolicies, decide_columns
from spark_app.protobuf.changes.declarations import with_names
from spark_app.protobuf.changes.differences import Version
from spark_app.protobuf.columns.types import arrow_schema
from spark_app.protobuf.schemas.descriptors import digest
from spark_app.protobuf.schemas.ledger import message_types
from tests.support.protos import PROTO3, compile_text, load_files

ALIAS: dict[Kind, Policy] = {**DEFAULTS, "rename": "alias"}


def chain(*versions: str, policies: dict[Kind, Policy] = ALIAS, fixed: frozenset[str] = frozenset()) -> list[Version]:
    """Each version decided after those before it. A text with "message" is the whole file, else the fields of Event."""
    decided: list[Version] = []
    for text in versions:
        own = compile_text(PROTO3 + (text if "message" in text else f"message Event {{ {text} }}")).descriptor_set
        if decided:
            known = [version.decoded for version in decided]
            names = decide_columns(own, decided[-1], known, ColumnPolicies(policies, fixed))
            decided.append(Version(own, with_names(own, names)))
        else:
            decided.append(Version(own, own))
    return decided


def columns(version: Version, message: str = "Event") -> list[str]:
    pool, _ = load_files(version.decoded)
    return arrow_schema(pool.FindMessageTypeByName(message)).names


def names(*versions: str, policies: dict[Kind, Policy] = ALIAS, fixed: frozenset[str] = frozenset()) -> list[list[str]]:
    return [columns(version) for version in chain(*versions, policies=policies, fixed=fixed)]


def test_an_alias_keeps_the_first_name() -> None:
    assert names("int32 score = 1;", "int32 points = 1;", "int32 total = 1;") == [["score"]] * 3


def test_a_rename_without_alias_fills_the_column_of_its_name() -> None:
    assert names("int32 score = 1;", "int32 points = 1;", policies=dict(DEFAULTS)) == [["score"], ["points"]]


@pytest.mark.parametrize("policies", [ALIAS, dict(DEFAULTS)])
def test_a_rename_and_back_is_the_first_column(policies: dict[Kind, Policy]) -> None:
    first, _, third = names("int32 score = 1;", "int32 points = 1;", "int32 score = 1;", policies=policies)
    assert first == third == ["score"]


def test_a_later_version_inherits_the_names_of_fields_that_stayed() -> None:
    assert names("int32 score = 1;", "int32 points = 1;", "int32 points = 1; string more = 2;")[2] == ["score", "more"]


def test_a_new_field_with_the_name_of_an_alias_gets_another_column() -> None:
    assert names("int32 score = 1;", "int32 points = 1;", "int32 points = 1; int32 score = 2;")[2] == [
        "score",
        "score_2",
    ]


@pytest.mark.parametrize(
    "new",
    [
        'reserved "score"; int32 points = 1;',
        "int32 points = 1; int32 score = 2;",
        "int32 points = 1; int32 Score = 2;",
        "int32 points = 1; oneof score { int32 a = 2; }",
        "int32 points = 1; enum Of { ZERO = 0; score = 1; }",
    ],
)
def test_a_name_that_is_there_or_reserved_is_no_alias(new: str) -> None:
    text = f"message Event {{ {new} }}"
    assert "points" in names("int32 score = 1;", text)[1]


def test_a_first_name_that_is_reserved_later_is_no_alias_of_the_next_name() -> None:
    assert names("int32 score = 1;", "int32 points = 1;", 'reserved "score"; int32 total = 1;')[2] == ["total"]


def test_fields_that_swap_their_names_keep_the_columns_of_the_names() -> None:
    assert names("string a = 1; string b = 2;", "string b = 1; string a = 2;")[1] == ["b", "a"]
    swap: dict[Kind, Policy] = {**ALIAS, "swap": "new_column"}
    assert names("string a = 1; string b = 2;", "string b = 1; string a = 2;", policies=swap)[1] == ["b_2", "a_2"]


def test_a_changed_type_fills_a_new_column_and_goes_back_to_the_first() -> None:
    found = names("string a = 1;", "repeated string a = 1;", "bytes a = 1;", "repeated string a = 1;", "string a = 1;")
    assert found == [["a"], ["a_2"], ["a_3"], ["a_2"], ["a"]]


def test_a_type_that_stays_stays_in_its_new_column() -> None:
    assert names("string a = 1;", "repeated string a = 1;", "repeated string a = 1; int32 b = 2;")[2] == ["a_2", "b"]


def test_a_change_that_is_only_warned_of_stays_in_the_column() -> None:
    assert names("string a = 1;", "int32 a = 1;", "uint32 a = 1;", "int64 a = 1;")[1:] == [["a_2"]] * 3
    narrow: dict[Kind, Policy] = {**ALIAS, "narrow": "new_column"}
    found = names("int64 a = 1;", "int32 a = 1;", "int64 a = 1;", policies=narrow)
    assert found == [["a"], ["a_2"], ["a_2"]]


def test_a_new_column_never_has_a_name_that_is_used() -> None:
    assert names("string a = 1; int32 a_2 = 2;", "bytes a = 1; int32 a_2 = 2;")[1] == ["a_3", "a_2"]
    assert names("string a = 1; int32 A_2 = 2;", "bytes a = 1; int32 A_2 = 2;")[1] == ["a_3", "A_2"]
    assert names("string a = 1; int32 a_2 = 2;", "string a = 1;", "bytes a = 1;")[2] == ["a_3"]


def test_a_new_field_never_fills_a_column_of_another_type() -> None:
    assert names("string a = 1; int32 b = 2;", "int32 b = 2;", "int32 b = 2; int64 a = 3;")[2] == ["b", "a_2"]
    assert names("int32 a = 1; int32 b = 2;", "int32 b = 2;", "int32 b = 2; int64 a = 3;")[2] == ["b", "a"]
    assert names("int32 a = 1; int32 b = 2;", "int32 b = 2;", "int32 b = 2; int32 A = 3;")[2] == ["b", "A_2"]


def test_names_that_are_json_names_of_other_fields_are_possible() -> None:
    assert names("int32 fooBar = 1;", "int32 b = 1;", "int32 b = 1; int32 foo_bar = 2;")[2] == ["fooBar", "foo_bar"]


def test_a_name_that_differs_only_by_case_gets_a_number() -> None:
    assert names("int32 score = 1;", "int32 Score = 1;", policies=dict(DEFAULTS))[1] == ["Score_2"]
    assert names("int32 score = 1;", "int32 Score = 1;")[1] == ["score"]


def test_a_column_with_a_number_keeps_it_when_the_other_field_goes() -> None:
    assert names("string a = 1; string A = 9;", "string A = 9;", "string A = 9; string a = 2;") == [
        ["a", "A_9"],
        ["A_9"],
        ["a", "A_9"],
    ]


def test_a_name_of_the_app_keeps_its_number_as_an_alias() -> None:
    assert names("int32 _offset = 7;", "int32 place = 7;") == [["_offset_7"], ["_offset_7"]]


def test_columns_that_the_settings_name_go_on() -> None:
    fixed = frozenset({"gamer_id"})
    assert names("int64 gamer_id = 1;", "string gamer_id = 1;", fixed=fixed)[1] == ["gamer_id"]
    default = dict(DEFAULTS)
    versions = "string gamer_id = 1;", "string player = 1;", "string person = 1;"
    assert names(*versions, policies=default, fixed=fixed) == [["gamer_id"]] * 3
    assert names(*versions, policies=default, fixed=frozenset({"player"})) == [["gamer_id"], ["player"], ["player"]]
    reused = "string gamer_id = 1;", "string gamer_id = 2; string player = 1;"
    assert names(*reused, policies=default, fixed=fixed)[1] == ["player", "gamer_id"]


INNER = "message Point { %s } message Event { Point at = 1; map<string, Point> all = 2; repeated Point list = 3; }"


def test_fields_inside_structs_lists_and_maps_are_decided_once() -> None:
    versions = chain(INNER % "int64 x = 1;", INNER % "int64 z = 1;", INNER % "string z = 1;")
    assert [columns(version, "Point") for version in versions] == [["x"], ["x"], ["z"]]
    kinds = arrow_schema(load_files(versions[1].decoded)[0].FindMessageTypeByName("Event"))
    assert str(kinds.field("all").type).count("x: int64") == 1


def test_a_struct_and_a_field_inside_are_renamed_at_once() -> None:
    text = "message Point {{ int64 {} = 1; }} message Event {{ Point {} = 1; }}"
    second = chain(text.format("x", "at"), text.format("z", "place"))[1]
    assert (columns(second), columns(second, "Point")) == (["at"], ["x"])


def test_a_map_whose_values_change_fills_a_new_column() -> None:
    assert names("map<string, int32> a = 1;", "map<string, string> a = 1;")[1] == ["a_2"]


def test_a_message_that_moved_keeps_the_columns_of_its_fields() -> None:
    old = "message Event { Point at = 1; } message Point { int64 x = 1; }"
    new = "message Event { Point at = 1; message Point { int64 z = 1; } }"
    assert columns(chain(old, new)[1], "Event.Point") == ["x"]


def test_versions_without_a_difference_are_decoded_as_they_are_registered() -> None:
    _, second = chain("int32 a = 1;", "int32 a = 1; int32 b = 2;")
    assert second.decoded == second.registered


APART: dict[Kind, Policy] = dict.fromkeys(NEW_NAME | NEW_TYPE, "new_column")
TYPES = (
    "string",
    "bytes",
    "int32",
    "sint64",
    "uint64",
    "bool",
    "repeated string",
    "map<string, int32>",
    "Point",
    "Suit",
)
POINTS = ("message Point { int64 x = 1; }", "message Point { string y = 1; }", "message Point {}")


def file_of(fields: dict[int, tuple[str, str]], point: str) -> str:
    named: dict[str, str] = {}
    for number, (name, kind) in fields.items():
        named.setdefault(name, f"{kind} {name} = {number};")
    return f"enum Suit {{ CLUBS = 0; }} {point} message Event {{ {' '.join(named.values())} }}"


def any_file(chance: random.Random) -> str:
    numbers = chance.sample(range(1, 6), chance.randint(1, 5))
    return file_of({n: (chance.choice("aAbc"), chance.choice(TYPES)) for n in numbers}, chance.choice(POINTS))


@pytest.mark.parametrize("rename", ["alias", "new_column"])
@pytest.mark.parametrize("seed", range(6))
def test_no_version_contradicts_another_one(rename: Policy, seed: int) -> None:
    chance = random.Random(seed)
    versions = [any_file(chance) for _ in range(4)]
    decided = chain(*versions, policies={**APART, "rename": rename})
    columns, others = message_types(
        Decodable(number, version.decoded, digest(version.decoded)) for number, version in enumerate(decided)
    )
    assert others == {}
    assert find_clash(columns["Event"]) is None
