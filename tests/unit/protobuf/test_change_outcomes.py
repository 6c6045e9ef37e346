"""What a change says of the tables is what happens to them: each case is decoded as a worker does it."""

from __future__ import annotations

from typing import Any, get_args

import pyarrow as pa
import pytest
from google.protobuf import json_format

from scripts.change_cases import CASES, QUARANTINED, UNROUTED, Case
from scripts.pages import findings, versions
from spark_app.model.catalog import Catalog, Decodable
from spark_app.model.schema_changes import Kind
from spark_app.protobuf.changes.outcomes import Judgement, schema_changes_of
from spark_app.protobuf.columns.fit import fit, table_columns
from spark_app.protobuf.decode.decoder import decoder_for
from spark_app.protobuf.schemas.descriptors import digest
from spark_app.settings.models import Settings
from spark_app.tables.route import Routing, route
from tests.support.protos import PROTO3, catalog_of, changes_between, compile_text, message_class

ROUTED = Judgement(routing="game_name")
SENT = [case for case in CASES if case.sent]


def name(case: Case) -> str:
    return f"{case.kind} {case.policy or ''}: {case.shown[0]} -> {case.shown[1]}"


def compiled(case: Case) -> Catalog:
    decoded = [version.decoded for version in versions(case)]
    return catalog_of(*(Decodable(number, one, digest(one), "text") for number, one in enumerate(decoded, 1)))


def table_of(catalog: Catalog) -> pa.Schema:
    """The columns of a table that has rows of all versions of the event."""
    return table_columns([kind for kind in catalog.columns if kind.partition("#")[0] == "Event"], catalog.columns)


def landed(case: Case) -> list[dict[str, Any] | str]:
    """What becomes of the records of the new version."""
    catalog = compiled(case)
    new = catalog.decodable[len(catalog.decodable)]
    kind, decoder = message_class(compile_text(case.versions[-1]), "Event"), decoder_for(new, index_of(case))
    payloads = [json_format.ParseDict(value, kind()).SerializePartialToString() for value in case.sent]
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    assert not decoded.rejects
    columns = table_of(catalog)
    fitted, rows, rejects = fit(decoded.table, columns)
    if "game_name" in columns.names:
        routed = route(decoded.table, len(case.sent), Routing("game_name", {}, frozenset(), True), "Event")
        rejects += routed.rejects()
    found: dict[int, dict[str, Any] | str] = {row: cause.value for row, cause, _ in rejects}
    for row, value in zip(rows.tolist(), fitted.to_pylist(), strict=True):
        found.setdefault(row, {name: value.get(name) for name in columns.names})
    return [found[row] for row in range(len(case.sent))]


def index_of(case: Case) -> tuple[int, ...]:
    return (case.versions[-1].count("message ", 0, case.versions[-1].index("message Event")),)


@pytest.mark.parametrize("case", SENT, ids=name)
def test_records_of_a_changed_schema_become_the_rows_of_the_case(case: Case) -> None:
    for row, expected in zip(landed(case), case.rows, strict=True):
        if isinstance(expected, str) or isinstance(row, str):
            assert row == expected
        else:
            assert {column: row[column] for column in expected} == expected


@pytest.mark.parametrize("case", SENT, ids=name)
def test_the_outcome_says_what_becomes_of_them(case: Case) -> None:
    [change] = [change for change in findings(case) if change.kind == case.kind][:1]
    rows = landed(case)
    kept = [row for row in rows if not isinstance(row, str)]
    if "route_missing" in change.said:
        assert set(rows) == {UNROUTED}  # type: ignore[arg-type]
    elif "every new row" in change.said:
        assert all(row == QUARANTINED or not any(row.values()) for row in rows)  # type: ignore[union-attr]
    elif "cannot hold without loss" in change.said:
        assert 0 < len(kept) < len(rows)
    else:
        assert QUARANTINED not in rows
    if "stays NULL for them" in change.said:
        column = change.said.rpartition(" stays NULL")[0].rpartition(" ")[2]
        assert all(row[column] is None for row in kept if column in row)
    if "is NULL in new rows" in change.said or "is NULL for new rows" in change.said:
        assert all(None in row.values() for row in kept)
    assert (change.severity == "warning") or QUARANTINED not in rows


@pytest.mark.parametrize("case", [case for case in CASES if not case.sent], ids=name)
def test_a_message_that_comes_goes_or_moves_is_no_warning(case: Case) -> None:
    assert [(change.kind, change.severity) for change in findings(case)] == [(case.kind, "info")]


def test_every_kind_has_a_case() -> None:
    assert {case.kind for case in CASES} == set(get_args(Kind))


def said(old: str, new: str) -> list[str]:
    versions = [compile_text(PROTO3 + text, schema_id=number) for number, text in enumerate((old, new), 1)]
    changes = changes_between(*(version.descriptor_set for version in versions))
    return [change.said for change in schema_changes_of(changes, catalog_of(*versions).columns, ROUTED)]


def test_a_rename_is_reported_in_plain_words() -> None:
    assert said("message Event { int32 score = 1; }", "message Event { int32 points = 1; }") == [
        "field score was renamed to points: new rows fill the column points, and score stays NULL for them"
    ]
    inner = "message Event { Home home = 1; } message Home { string %s = 2; }"
    assert said(inner % "city", inner % "town") == [
        "field home.city was renamed to home.town: "
        "new rows fill the column home.town, and home.city stays NULL for them"
    ]


def test_a_number_whose_name_moved_on_leaves_the_column_of_that_name_alone() -> None:
    assert said("message Event { string a = 1; }", "message Event { string b = 1; string a = 2; }") == [
        "number 1 was field a and is field b now: new rows fill the column b",
        "field a had number 1 and has 2 now: new rows go on in the column a, which older rows filled from number 1",
    ]


def test_warnings_come_first() -> None:
    first, second = said("message Event { int64 z = 9; }", "message Event { int64 a = 1; int32 z = 9; }")
    assert (first.partition(":")[0], second.partition(":")[0]) == (
        "field z was int64 and is int32 now",
        "field a is new",
    )


@pytest.mark.parametrize(
    ("new", "lands"),
    [
        ("string game = 1;", False),
        ("bytes game_name = 1;", False),
        ("repeated string game_name = 1;", False),
        ("string other = 2;", False),
        ("string game_name = 2;", True),
        ("optional string game_name = 1;", True),
    ],
)
def test_a_field_that_names_tables_has_to_stay(new: str, lands: bool) -> None:
    [text, *_] = said("message Event { string game_name = 1; }", f"message Event {{ {new} }}")
    assert ("every new row goes to quarantine as route_missing" not in text) == lands


def test_a_field_that_names_tables_may_have_another_number() -> None:
    old = "message Event { string game_name = 1; string a = 2; }"
    assert not any(
        "route_missing" in text for text in said(old, "message Event { string a = 1; string game_name = 2; }")
    )
    assert any("route_missing" in text for text in said(old, "message Event { string a = 1; int64 game_name = 2; }"))


def test_a_lake_whose_tables_no_field_names_may_lose_it() -> None:
    assert Judgement.of(Settings()).routing == "game_name"
    assert Judgement.of(Settings(event={"route_by": "message"})).routing == ""  # type: ignore[arg-type]
    assert Judgement.of(Settings(wrapper={"payload": "payload"})).routing == ""  # type: ignore[arg-type]


def test_a_policy_decides_what_is_a_warning() -> None:
    old, new = (
        compile_text(f"{PROTO3}message Event {{ {fields} }}", schema_id=number)
        for number, fields in enumerate(("int64 a = 1; string b = 2;", "int32 a = 1; int64 c = 3;"), 1)
    )
    changes = changes_between(old.descriptor_set, new.descriptor_set)
    judgement = Judgement({"removed": "accept", "added": "warn"})
    found = schema_changes_of(changes, catalog_of(old, new).columns, judgement)
    assert {change.kind: change.severity for change in found} == {
        "narrow": "warning",
        "removed": "info",
        "added": "warning",
    }


def test_a_table_column_that_an_older_version_has_made_decides() -> None:
    """The version before has text, but the column is of the version before that: numbers."""
    texts = [f"{PROTO3}message Event {{ {kind} a = 1; }}" for kind in ("int64", "string", "int64")]
    versions = [compile_text(text, schema_id=number) for number, text in enumerate(texts, 1)]
    [change] = schema_changes_of(
        changes_between(versions[1].descriptor_set, versions[2].descriptor_set), catalog_of(*versions).columns, ROUTED
    )
    assert (change.severity, change.said) == (
        "info",
        "field a was string and is int64 now: new rows go on in the column a",
    )


def test_names_of_any_length_are_cut() -> None:
    old, new = (f"message Event {{ int32 {letter * 5000} = 1; }}" for letter in "ab")
    [text] = said(old, new)
    assert len(text) < 600


@pytest.mark.parametrize("new", ["string player_id = 2;", ""])
def test_a_field_that_gold_groups_by_has_to_stay(new: str) -> None:
    old, changed = (compile_text(f"{PROTO3}message Event {{ string a = 1; {one} }}") for one in ("string id = 2;", new))
    changes = changes_between(old.descriptor_set, changed.descriptor_set)
    for key, said in (("id", True), ("a", False)):
        [change] = schema_changes_of(changes, catalog_of(old, changed).columns, Judgement(key=key))
        assert change.said.endswith("; gold counts them in the row whose id is NULL") == said
