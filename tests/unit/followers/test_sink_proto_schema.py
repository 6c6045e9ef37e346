"""The schema that a sink makes of a table: its text, its numbers, and rows that come back through it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.audit.expected import rows_of
from spark_app.followers.sinks.proto_rows import RowEncoder
from spark_app.followers.sinks.proto_schema import FieldNumbers, comments_of, schema_of
from spark_app.lake.lake import Lake
from spark_app.model.columns import paths_of
from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.decode import decoder_for
from tests.support.examples import examples
from tests.support.protos import compile_text

PLAYER = pa.struct([("name", pa.string()), ("born", pa.timestamp("us", "UTC"))])
COLUMNS = pa.schema(
    [
        ("game_name", pa.string()),
        ("bet", pa.decimal128(12, 2)),
        ("large", pa.decimal128(20, 0)),
        ("count", pa.int64()),
        ("small", pa.int32()),
        ("rate", pa.float64()),
        ("ratio", pa.float32()),
        ("good", pa.bool_()),
        ("picture", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("Player", PLAYER),
        ("friends", pa.list_(PLAYER)),
        ("scores", pa.map_(pa.string(), pa.int64())),
        ("tags", pa.list_(pa.string())),
        ("_offset", pa.int64()),
    ]
)
TEXT = """syntax = "proto3";

package protolake.silver_uno_events;

import "google/protobuf/timestamp.proto";

// Events of uno
message SilverUnoEvents {
  optional string game_name = 1;
  // in euros, // not cents
  optional string bet = 2;
  optional uint64 large = 3;
  optional int64 count = 4;
  optional int32 small = 5;
  optional double rate = 6;
  optional float ratio = 7;
  optional bool good = 8;
  optional bytes picture = 9;
  .google.protobuf.Timestamp at = 10;
  optional string day = 11;
  message PlayerValue {
    // as people call it
    optional string name = 13;
    .google.protobuf.Timestamp born = 14;
  }
  PlayerValue Player = 12;
  message Friends {
    optional string name = 17;
    .google.protobuf.Timestamp born = 18;
  }
  repeated Friends friends = 15;
  map<string, int64> scores = 19;
  repeated string tags = 22;
  optional int64 _offset = 24;
}
"""


def numbers_of(columns: pa.Schema) -> dict[str, int]:
    return {path: number for number, path in enumerate(paths_of(columns), 1)}


def test_the_text_has_the_columns_their_numbers_and_their_comments() -> None:
    comments = {(): "Events of uno", ("bet",): "in euros,\n// not cents", ("Player", "name"): "as people call it"}
    columns = COLUMNS.append(pa.field("_op", pa.string()))
    assert schema_of("silver_uno_events", columns, numbers_of(columns), comments) == TEXT
    compile_text(TEXT)


VALUES: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=9),
    pa.binary(): st.binary(max_size=200),
    pa.bool_(): st.booleans(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.decimal128(12, 2): st.decimals(-9_999_999_999, 9_999_999_999, places=2),
    pa.decimal128(20, 0): st.decimals(0, 2**64 - 1, places=0),
    pa.timestamp("us", "UTC"): st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    pa.date32(): st.dates(),
}


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type. No list has a NULL, and no list or map is one: Protobuf has none."""
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: or_null(field.type) for field in kind})
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        entries = st.dictionaries(VALUES[kind.key_type], VALUES[kind.item_type], max_size=3)
        return entries.map(lambda found: sorted(found.items()))
    return VALUES[kind]


def or_null(kind: pa.DataType) -> st.SearchStrategy[Any]:
    return values(kind) if pa.types.is_list(kind) or pa.types.is_map(kind) else st.none() | values(kind)


@given(st.lists(st.fixed_dictionaries({field.name: or_null(field.type) for field in COLUMNS}), min_size=1, max_size=20))
@examples()
def test_rows_come_back_through_the_projects_own_decoder(given_rows: list[dict[str, Any]]) -> None:
    columns = [pa.array([row[field.name] for row in given_rows], field.type) for field in COLUMNS]
    rows = pa.table(columns, schema=COLUMNS)
    decoder = decoder_for(compile_text(TEXT), (0,))
    assert decoder is not None
    written, fits, why = RowEncoder(decoder.message).encode(rows)
    assert fits.all(), why
    decoded = decoder.decode(written.cast(pa.binary()))
    assert decoded.rejects == []
    as_text = rows.cast(pa.schema([f.with_type(pa.string()) if f.name in ("bet", "day") else f for f in COLUMNS]))
    found = decoded.table.rename_columns([n.removesuffix("_24") for n in decoded.table.column_names])
    due = as_text.cast(found.select(as_text.column_names).schema)
    assert rows_of(found.select(due.column_names)) == rows_of(due)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("sum(x)", pa.int64(), "cannot have the name 'sum(x)'"),
        ("a", pa.list_(pa.list_(pa.int64())), "no type for list"),
        ("a", pa.map_(pa.float64(), pa.int64()), "no type for map"),
    ],
)
def test_what_protobuf_has_not_is_named(name: str, kind: pa.DataType, said: str) -> None:
    columns = pa.schema([("s", pa.struct([(name, kind)]))])
    with pytest.raises(ConfigurationError, match=r"^s\.") as raised:
        schema_of("t", columns, numbers_of(columns), {})
    assert said in str(raised.value)


def test_a_struct_within_one_of_its_name_has_another_name() -> None:
    columns = pa.schema([("t", pa.struct([("t", pa.struct([("x", pa.int64())]))]))])
    text = schema_of("t", columns, numbers_of(columns), {})
    compile_text(text)
    assert "TValue t = 1;" in text
    assert "TValueValue t = 2;" in text


def test_numbers_stay_and_leave_out_those_of_protobuf(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    lake.prepare()
    lake.storage.create_folders(lake.sink("crm"))
    ids = {"a": 7, "b": 18_999, "c": 19_000, "b.x": 3}
    lake.storage.replace(lake.field_ids, json.dumps(ids).encode())
    numbers = FieldNumbers(lake, lake.sink("crm"))
    first = numbers.assign(pa.schema([("a", pa.int64()), ("b", pa.struct([("x", pa.int64())])), ("new", pa.int64())]))
    assert first == {"a": 7, "b": 18_999, "b.x": 3, "new": 20_001}
    lake.storage.replace(lake.field_ids, json.dumps(ids | {"d": 19_001, "new": 19_002}).encode())
    second = FieldNumbers(lake, lake.sink("crm")).assign(
        pa.schema([(name, pa.int64()) for name in ("new", "d", "c", "a")])
    )
    assert second == {**first, "c": 20_000, "d": 20_003}
    assert len(set(second.values())) == len(second)


def test_comments_are_found_at_any_depth() -> None:
    field = {"name": "x", "type": "long", "nullable": True, "metadata": {"comment": "inner"}}
    inner = {"type": "struct", "fields": [field]}
    kinds = [
        inner,
        {"type": "array", "elementType": inner, "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True},
    ]
    fields = [{"name": f"f{n}", "type": k, "nullable": True, "metadata": {}} for n, k in enumerate(kinds)]
    assert comments_of(json.dumps({"type": "struct", "fields": fields})) == {(f"f{n}", "x"): "inner" for n in range(3)}
