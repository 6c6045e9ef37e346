"""Named cases of schema changes: two versions of a schema, a policy, records of the new version, and the rows that
they become.

`scripts/pages` makes a table of them; tests decode the records and compare the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_app.model.schema_changes import DEFAULTS, Kind, Policy

PROTO2, PROTO3 = "proto2", "proto3"
QUARANTINED, UNROUTED = "decode_type", "route_missing"  # where the records go that do not land
DECIMAL = 'import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
META = '[(confluent.field_meta) = {params: [{key: "precision", value: "%d"}, {key: "scale", value: "%d"}]}]'
POINT, COLOR = "message Point { int64 x = 1; }", "enum Color { RED = 0; BLUE = 1; }"


@dataclass(frozen=True)
class Case:
    """
    Attributes:
        old, new: the fields of the message `Event` in the two versions.
        sent: records of the new version, as JSON.
        rows: what becomes of each of them: some columns of the row, or the cause for
            which it does not land. The field `game_name` names the table.
        types: the other messages and enums of the two versions.
        earlier: the fields of the version before the old one.
        policy: of the kind, instead of its default.
        others: the policy of all other kinds that have one by default, instead of these.
    """

    kind: Kind
    old: str
    new: str
    sent: Sequence[dict[str, Any]] = ()
    rows: Sequence[dict[str, Any] | str] = ()
    types: tuple[str, str] = ("", "")
    earlier: str = ""
    syntax: str = PROTO3
    policy: Policy | None = None
    others: Policy | None = None

    @property
    def policies(self) -> dict[Kind, Policy]:
        others = dict.fromkeys(DEFAULTS, self.others) if self.others else DEFAULTS
        return {**others, **({self.kind: self.policy} if self.policy else {})}

    @property
    def versions(self) -> list[str]:
        """The .proto files, oldest first."""
        earlier = [(self.types[0], self.earlier)] if self.earlier else []
        return [
            f'syntax = "{self.syntax}";\n{types}\nmessage Event {{ {fields} }}\n'
            for types, fields in (*earlier, (self.types[0], self.old), (self.types[1], self.new))
        ]

    @property
    def shown(self) -> tuple[str, str]:
        """What differs, of both versions."""
        return (self.old, self.new) if self.old != self.new else self.types


CASES = [
    Case("added", "string a = 1;", "string a = 1; int64 b = 2;", [{"a": "x", "b": 1}], [{"a": "x", "b": 1}]),
    Case(
        "readded",
        "string a = 1;",
        "string a = 1; string b = 3;",
        [{"a": "x", "b": "y"}],
        [{"a": "x", "b": "y"}],
        earlier="string a = 1; string b = 2;",
    ),
    Case("removed", "string a = 1; int64 b = 2;", "string a = 1;", [{"a": "x"}], [{"a": "x", "b": None}]),
    Case("rename", "int32 score = 1;", "int32 points = 1;", [{"points": 5}], [{"score": None, "points": 5}]),
    Case("rename", "int32 score = 1;", "int32 points = 1;", [{"points": 5}], [{"score": 5}], policy="alias"),
    Case("rename", "string game_name = 1;", "string game = 1;", [{"game": "uno"}], [{"game_name": "uno"}]),
    Case("rename", "string game_name = 1;", "string game = 1;", [{"game": "uno"}], [UNROUTED], policy="warn"),
    Case(
        "rename",
        "string game_name = 1;",
        "string game = 1;",
        [{"game": "uno"}],
        [{"game_name": "uno"}],
        policy="alias",
    ),
    Case(
        "rename",
        "map<string, Point> a = 1;",
        "map<string, Point> a = 1;",
        [{"a": {"k": {"z": 5}}}],
        [{"a": [("k", {"x": None, "z": 5})]}],
        types=(POINT, "message Point { int64 z = 1; }"),
    ),
    Case(
        "rename",
        "map<string, Point> a = 1;",
        "map<string, Point> a = 1;",
        [{"a": {"k": {"z": 5}}}],
        [{"a": [("k", {"x": 5})]}],
        types=(POINT, "message Point { int64 z = 1; }"),
        policy="alias",
    ),
    Case(
        "rename",
        "int32 score = 1;",
        "int32 Score = 1;",
        [{"Score": 5}, {}],
        [{"score": None, "Score_2": 5}, {"score": None, "Score_2": 0}],
    ),
    Case(
        "rename",
        "int32 score = 1;",
        "int32 Score = 1;",
        [{"Score": 5}, {}],
        [{"score": 5}, {"score": 0}],
        policy="alias",
    ),
    Case(
        "rename",
        "int32 score = 1;",
        "int32 Score = 1;",
        [{"Score": 5}, {}],
        [QUARANTINED, QUARANTINED],
        policy="warn",
    ),
    Case("column", "string a = 1; string A = 9;", "string A = 9;", [{"A": "x"}], [QUARANTINED], others="warn"),
    Case(
        "swap",
        "string a = 1; string b = 2;",
        "string b = 1; string a = 2;",
        [{"b": "1", "a": "2"}],
        [{"a": "2", "b": "1"}],
    ),
    Case(
        "swap",
        "string a = 1; string b = 2;",
        "string b = 1; string a = 2;",
        [{"b": "1", "a": "2"}],
        [{"a": None, "b": None, "b_2": "1", "a_2": "2"}],
        policy="new_column",
    ),
    Case("renumber", "string a = 1;", "string a = 9;", [{"a": "x"}], [{"a": "x"}]),
    Case("renumber", "string a = 1;", "string a = 9;", [{"a": "x"}], [{"a": None, "a_2": "x"}], policy="new_column"),
    Case("reuse", "string a = 1;", "int64 b = 1;", [{"b": 5}], [{"a": None, "b": 5}]),
    Case("reuse", "string a = 1;", 'reserved "a"; string b = 1;', [{"b": "x"}], [{"a": None, "b": "x"}]),
    Case(
        "repeated",
        "string a = 1;",
        "repeated string a = 1;",
        [{"a": ["x"]}, {}],
        [{"a": None, "a_2": ["x"]}, {"a": None, "a_2": []}],
    ),
    Case(
        "repeated",
        "string a = 1;",
        "repeated string a = 1;",
        [{"a": ["x"]}, {}],
        [QUARANTINED, QUARANTINED],
        policy="warn",
    ),
    Case(
        "singular",
        "repeated string a = 1;",
        "string a = 1;",
        [{"a": "x"}, {}],
        [{"a": None, "a_2": "x"}, {"a": None, "a_2": ""}],
    ),
    Case(
        "singular",
        "repeated string a = 1;",
        "string a = 1;",
        [{"a": "x"}, {}],
        [QUARANTINED, QUARANTINED],
        policy="warn",
    ),
    Case("narrow", "int64 a = 1;", "int32 a = 1;", [{"a": -5}], [{"a": -5}]),
    Case("narrow", "int64 a = 1;", "int32 a = 1;", [{"a": -5}], [{"a": None, "a_2": -5}], policy="new_column"),
    Case("widen", "int32 a = 1;", "int64 a = 1;", [{"a": 1 << 40}], [{"a": 1 << 40}]),
    Case("sign", "int32 a = 1;", "uint32 a = 1;", [{"a": 1 << 31}], [{"a": 1 << 31}]),
    Case("sign", "int64 a = 1;", "uint64 a = 1;", [{"a": 5}, {"a": 1 << 63}], [{"a": 5}, QUARANTINED]),
    Case(
        "sign",
        "Point a = 1;",
        "Point a = 1;",
        [{"a": {"x": 5}}, {"a": {"x": 1 << 63}}],
        [{"a": {"x": 5}}, QUARANTINED],
        types=(POINT, "message Point { uint64 x = 1; }"),
    ),
    Case("sign", "uint64 a = 1;", "int64 a = 1;", [{"a": -5}], [{"a": -5}]),
    Case("bool", "int64 a = 1;", "bool a = 1;", [{"a": True}], [{"a": 1}]),
    Case("bool", "bool a = 1;", "int64 a = 1;", [{"a": 1}, {"a": 2}], [{"a": True}, QUARANTINED]),
    Case("enum", "Color a = 1;", "int32 a = 1;", [{"a": 1}], [{"a": "1"}], types=(COLOR, COLOR)),
    Case("enum", "int32 a = 1;", "Color a = 1;", [{"a": "BLUE"}, {}], [QUARANTINED, QUARANTINED], types=(COLOR, COLOR)),
    Case(
        "enum",
        "int32 a = 1;",
        "Color a = 1;",
        [{"a": "BLUE"}, {}],
        [{"a": None, "a_2": "BLUE"}, {"a": None, "a_2": "RED"}],
        types=(COLOR, COLOR),
        policy="new_column",
    ),
    Case(
        "bytes",
        "string a = 1;",
        "bytes a = 1;",
        [{"a": "YWI="}, {"a": "/w=="}],
        [{"a": None, "a_2": b"ab"}, {"a": None, "a_2": b"\xff"}],
    ),
    Case(
        "bytes",
        "string a = 1;",
        "bytes a = 1;",
        [{"a": "YWI="}, {"a": "/w=="}],
        [{"a": "ab"}, QUARANTINED],
        policy="warn",
    ),
    Case("bytes", "bytes a = 1;", "string a = 1;", [{"a": "ab"}], [{"a": None, "a_2": "ab"}]),
    Case("bytes", "bytes a = 1;", "string a = 1;", [{"a": "ab"}], [{"a": b"ab"}], policy="warn"),
    Case(
        "bytes",
        "repeated string a = 1;",
        "repeated bytes a = 1;",
        [{"a": ["YWI="]}, {"a": ["YWI=", "/w=="]}, {}],
        [{"a": ["ab"]}, QUARANTINED, {"a": []}],
        policy="warn",
    ),
    Case(
        "decimal",
        f"confluent.type.Decimal a = 1 {META % (4, 2)};",
        f"confluent.type.Decimal a = 1 {META % (6, 4)};",
        [{"a": {"value": "AQ==", "precision": 4, "scale": 2}}, {"a": {"value": "AQ==", "precision": 6, "scale": 4}}],
        [{"a": Decimal("0.01")}, QUARANTINED],
        types=(DECIMAL, DECIMAL),
    ),
    Case(
        "message",
        "Point a = 1;",
        "Place a = 1;",
        [{"a": {"x": 1, "name": "n"}}],
        [{"a": {"x": 1, "name": "n"}}],
        types=(POINT, "message Place { int64 x = 1; string name = 2; }"),
    ),
    Case(
        "shape",
        "Point a = 1;",
        "Point a = 1;",
        [{"a": {"x": 1}}, {}],
        [QUARANTINED, {"a": None}],
        types=("message Point {}", POINT),
    ),
    Case(
        "shape",
        "Point a = 1;",
        "Point a = 1;",
        [{"a": {"x": 1}}, {}],
        [{"a": None, "a_2": {"x": 1}}, {"a": None, "a_2": None}],
        types=("message Point {}", POINT),
        policy="new_column",
    ),
    Case("incompatible", "int32 a = 1;", "sint32 a = 1;", [{"a": -5}], [{"a": None, "a_2": -5}]),
    Case("incompatible", "int32 a = 1;", "sint32 a = 1;", [{"a": -5}], [{"a": -5}], policy="warn"),
    Case(
        "incompatible",
        "int32 a = 1;",
        "string a = 1;",
        [{"a": "5"}, {}],
        [{"a": None, "a_2": "5"}, {"a": None, "a_2": ""}],
    ),
    Case(
        "incompatible",
        "int32 a = 1;",
        "string a = 1;",
        [{"a": "5"}, {}],
        [QUARANTINED, QUARANTINED],
        policy="warn",
    ),
    Case(
        "incompatible",
        "map<string, Point> a = 1;",
        "map<string, Point> a = 1;",
        [{"a": {"k": {"x": "5"}}}, {}],
        [{"a": [("k", {"x": None, "x_2": "5"})]}, {"a": []}],
        types=(POINT, "message Point { string x = 1; }"),
    ),
    Case(
        "incompatible",
        "map<string, Point> a = 1;",
        "map<string, Point> a = 1;",
        [{"a": {"k": {"x": "5"}}}, {}],
        [QUARANTINED, {"a": []}],
        types=(POINT, "message Point { string x = 1; }"),
        policy="warn",
    ),
    Case("incompatible", "int64 a = 1;", "double a = 1;", [{"a": 5}, {"a": 0.5}], [{"a_2": 5.0}, {"a_2": 0.5}]),
    Case(
        "incompatible",
        "int64 a = 1;",
        "double a = 1;",
        [{"a": 5}, {"a": 0.5}],
        [{"a": 5}, QUARANTINED],
        policy="warn",
    ),
    Case("presence", "string a = 1;", "optional string a = 1;", [{}], [{"a": None}]),
    Case("no_presence", "optional string a = 1;", "string a = 1;", [{}], [{"a": ""}]),
    Case(
        "oneof", "oneof x { string a = 1; }", "oneof y { string a = 1; }", [{"a": "x"}, {}], [{"a": "x"}, {"a": None}]
    ),
    Case(
        "default",
        "optional int32 a = 1 [default = 4];",
        "optional int32 a = 1 [default = 5];",
        [{"a": 1}, {}],
        [{"a": 1}, {"a": None}],
        syntax=PROTO2,
    ),
    Case("required", "required int32 a = 1;", "optional int32 a = 1;", [{}], [{"a": None}], syntax=PROTO2),
    Case(
        "enum_added",
        "Color a = 1;",
        "Color a = 1;",
        [{"a": "GREEN"}],
        [{"a": "GREEN"}],
        types=(COLOR, "enum Color { RED = 0; BLUE = 1; GREEN = 2; }"),
    ),
    Case(
        "enum_removed",
        "Color a = 1;",
        "Color a = 1;",
        [{"a": 1}],
        [{"a": "1"}],
        types=(COLOR, "enum Color { RED = 0; }"),
    ),
    Case(
        "enum_rename",
        "Color a = 1;",
        "Color a = 1;",
        [{"a": "AZURE"}],
        [{"a": "AZURE"}],
        types=(COLOR, "enum Color { RED = 0; AZURE = 1; }"),
    ),
    Case("message_added", "int32 a = 1;", "int32 a = 1;", types=("", POINT)),
    Case("message_removed", "int32 a = 1;", "int32 a = 1;", types=(POINT, "")),
    Case("moved", "int32 a = 1;", "int32 a = 1;", types=(POINT, "message Point2D { int64 x = 1; }")),
]
