"""Whole lakes whose schemas change: which columns the rows get by policy, in any order, read back by three readers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from google.protobuf import json_format

from spark_app.model.errors import UsageError
from spark_app.recovery.result_text import accept_line
from tests.support.answers import Answers
from tests.support.decisions import accept, drain, waiting
from tests.support.frames import batch_of, frame
from tests.support.games import HEAD, Game
from tests.support.protos import compile_text, message_class

V1, V2, V3 = (f"int32 {name} = 3;" for name in ("score", "points", "total"))
ORDERS = [(1, 2, 3), (3, 2, 1), (2, 3, 1), (3, 1, 2)]


@pytest.mark.parametrize("order", ORDERS)
def test_an_alias_is_one_column_in_any_order(answers: Answers, tmp_path: Path, order: tuple[int, ...]) -> None:
    game = Game(answers, tmp_path, V1, V2, V3, rename="alias")
    for version in order:
        game.send(version, {("score", "points", "total")[version - 1]: version})
    assert game.columns() == {"score"}
    assert game.rows("score") == [(version,) for version in order]
    game.check()


@pytest.mark.parametrize("order", ORDERS)
def test_a_rename_by_default_loses_nothing(answers: Answers, tmp_path: Path, order: tuple[int, ...]) -> None:
    game = Game(answers, tmp_path, V1, V2, V1)
    for version in order:
        game.send(version, {("score", "points", "score")[version - 1]: version})
    expected = [(None, 2) if version == 2 else (version, None) for version in order]
    assert game.rows("score", "points") == expected
    game.check()


@pytest.mark.parametrize("order", ORDERS)
def test_a_list_of_text_by_default_is_another_column(answers: Answers, tmp_path: Path, order: tuple[int, ...]) -> None:
    game = Game(answers, tmp_path, "string a = 3;", "repeated string a = 3;", "string a = 3; int32 b = 4;")
    for version in order:
        game.send(version, {"a": ["x", "y"] if version == 2 else "x"})
    assert game.quarantined() == []
    assert game.columns() == {"a", "a_2", "b"}
    assert [(a, a_2 or None) for a, a_2 in game.rows("a", "a_2")] == [
        (None, ["x", "y"]) if version == 2 else ("x", None) for version in order
    ]
    game.check()


@pytest.mark.parametrize(
    ("old", "new", "value", "column", "landed"),
    [
        ("string a = 3;", "bytes a = 3;", "/w==", "a_2", b"\xff"),
        ("int32 a = 3;", "sint32 a = 3;", -5, "a_2", -5),
        ("int32 a = 3;", "string a = 3;", "x", "a_2", "x"),
        ("int64 a = 3;", "double a = 3;", 0.5, "a_2", 0.5),
        ("map<string, int32> a = 3;", "map<string, string> a = 3;", {"k": "v"}, "a_2", [("k", "v")]),
        ("int32 a = 3;", "uint32 a = 3;", 1 << 31, "a", 1 << 31),
        ("int64 a = 3;", "int32 a = 3;", -5, "a", -5),
        ("int32 a = 3;", "int64 a = 3;", 1 << 40, "a", 1 << 40),
    ],
)
def test_changes_of_a_type_by_default(
    answers: Answers, tmp_path: Path, old: str, new: str, value: Any, column: str, landed: Any
) -> None:
    game = Game(answers, tmp_path, old, new)
    game.send(1, {})
    game.send(2, {"a": value})
    assert game.quarantined() == []
    row = game.silver.to_pyarrow_table().sort_by("_offset").to_pylist()[-1]
    assert row[column] == landed
    game.check()


def test_a_renamed_routing_field_keeps_its_table_as_an_alias(answers: Answers, tmp_path: Path) -> None:
    texts = [f"message Event {{ string {name} = 1; string gamer_id = 2; }}" for name in ("game_name", "game")]
    game = Game(answers, tmp_path, *texts, rename="alias")
    game.send(1, {"game_name": "uno"})
    game.send(2, {"game": "uno"})
    assert game.rows("game_name") == [("uno",), ("uno",)]
    assert game.quarantined() == []
    game.check()


def test_names_that_are_swapped_are_no_aliases(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, "int32 a = 3; int32 b = 4;", "int32 b = 3; int32 a = 4;", rename="alias")
    game.send(1, {"a": 1, "b": 2})
    game.send(2, {"a": 1, "b": 2})
    assert game.rows("a", "b") == [(1, 2), (1, 2)]
    game.check()


def test_a_decision_outlives_the_setting_and_a_restart(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, V1, V2, V3, rename="alias")
    game.lake.opened.resolver.resolve_new([11, 12])  # the app ends before the unit
    game.lake.reopen(schemas={"changes": {"rename": "new_column"}})
    game.send(1, {"score": 1})
    game.send(2, {"points": 2})
    game.send(3, {"total": 3})  # decided by the new setting
    assert game.rows("score", "total") == [(1, None), (2, None), (None, 3)]
    game.check()


def test_a_schema_of_an_earlier_release_stays_as_it_is(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, V1, V2, V3, rename="accept")
    for number, text in enumerate(game.subject.texts, 1):
        if number < 3:
            game.lake.learn(compile_text(text, schema_id=10 + number))
    game.lake.reopen(schemas={"changes": {"rename": "alias"}})
    game.send(1, {"score": 1})
    game.send(2, {"points": 2})
    game.send(3, {"total": 3})
    assert game.rows("score", "points") == [(1, None), (None, 2), (None, 3)]
    game.check()


def test_an_older_version_that_the_registry_no_longer_lists_goes_by_the_one_after_it(
    answers: Answers, tmp_path: Path
) -> None:
    game = Game(
        answers, tmp_path, "string a = 3; int32 score = 4;", "repeated string a = 3; int32 points = 4;", rename="alias"
    )
    answers["/subjects/t-value/versions"] = (200, [2])
    game.send(2, {"a": ["x"], "points": 2})
    game.send(1, {"a": "x", "score": 1})
    assert game.columns() == {"a", "a_2", "points"}
    assert game.rows("a_2", "points") == [(None, 2), ("x", 1)]
    game.check()


def test_fields_inside_structs_are_aliases_too(answers: Answers, tmp_path: Path) -> None:
    text = "message Point {{ int64 {} = 1; }} message Event {{ {} repeated Point at = 3; }}"
    game = Game(answers, tmp_path, *(text.format(name, HEAD) for name in "xz"), rename="alias")
    for version, name in ((1, "x"), (2, "z")):
        kind = message_class(compile_text(game.subject.texts[version - 1]), "Event")
        event = json_format.ParseDict({"game_name": "uno", "gamer_id": "g", "at": [{name: version}]}, kind())
        game.lake.take(batch_of([frame(10 + version, event.SerializeToString(), (1,))], first=version - 1))
    assert game.rows("at") == [([{"x": 1}],), ([{"x": 2}],)]
    game.check()


@pytest.mark.parametrize(
    ("policy", "columns", "rows"),
    [
        ("alias", ["score"], [(1,), (2,), (3,), (1,), (2,)]),
        ("new_column", ["score", "points"], [(1, None), (None, 2), (None, 3), (1, None), (None, 2)]),
        ("warn", ["score", "points"], [(1, None), (None, 2), (None, 3), (1, None), (None, 2)]),
        ("accept", ["score", "points"], [(1, None), (None, 2), (None, 3), (1, None), (None, 2)]),
    ],
)
def test_records_wait_for_a_decision_and_others_flow(
    answers: Answers, tmp_path: Path, policy: str, columns: list[str], rows: list[tuple[Any, ...]]
) -> None:
    game = Game(answers, tmp_path, V1, V2, rename="pause")
    game.send(1, {"score": 1})
    game.send(2, {"points": 2}, {"points": 3})
    game.send(1, {"score": 1})
    drain(game.lake)
    assert waiting(game.lake) == ["change:12", "change:12"]
    assert game.rows("score") == [(1,), (1,)]
    game.check()
    game.lake.reopen(schemas={"changes": {"rename": "accept"}})  # another setting does not decide
    drain(game.lake)
    assert waiting(game.lake) == ["change:12", "change:12"]
    assert accept(game.lake, 12, policy) == {
        "schema": 12,
        "policy": policy,
        "change": "field score was renamed to points",
        "state": "decodable",
    }
    game.lake.reopen()
    drain(game.lake)
    game.send(2, {"points": 2})
    assert waiting(game.lake) == []
    assert game.rows(*columns) == rows
    game.check()
    game.lake.opened.resolver.comparer.step(threading.Lock())
    assert game.lake.opened.resolver.ledger.warnings()["count"] == (policy not in ("accept", "alias"))


def test_records_that_wait_may_go_to_quarantine(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, V1, V2, rename="pause")
    game.send(1, {"score": 1})
    game.send(2, {"points": 2})
    assert accept(game.lake, 12, "quarantine")["state"] == "refused"
    drain(game.lake)
    assert (waiting(game.lake), game.quarantined()) == ([], ["schema_change"])
    game.check()


def test_records_of_a_quarantined_change_name_it(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, V1, V2, rename="quarantine")
    game.send(1, {"score": 1})
    game.send(2, {"points": 2})
    path = str(game.lake.lake.path("quarantine_events"))
    [row] = DeltaTable(path).to_pyarrow_table().select(["cause", "detail"]).to_pylist()
    assert row == {"cause": "schema_change", "detail": "field score was renamed to points"}
    game.check()
    assert accept(game.lake, 12, "alias")["state"] == "decodable"
    game.send(2, {"points": 3})
    assert game.rows("score") == [(1,), (3,)]
    game.check()


def test_nobody_decides_about_a_schema_that_is_decoded(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, V1, V2, V3, rename="pause")
    game.send(1, {"score": 1})
    game.send(2, {"points": 2})
    with pytest.raises(UsageError, match="schema 11 waits for no decision; schemas that do: 12"):
        accept(game.lake, 11, "alias")
    accept(game.lake, 12, "alias")
    with pytest.raises(UsageError, match="schema 12 waits for no decision; schemas that do: none"):
        accept(game.lake, 12, "warn")


def test_a_decision_waits_for_the_registry(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, V1, V2, rename="pause")
    game.send(1, {"score": 1})
    game.send(2, {"points": 2})
    answer, answers["/schemas/ids/12"] = answers["/schemas/ids/12"], (503, "")
    game.lake.reopen()
    assert accept(game.lake, 12, "alias")["state"] == "waiting"
    answers["/schemas/ids/12"] = answer
    game.lake.reopen(schemas={"changes": {"rename": "quarantine"}})
    drain(game.lake)
    assert game.rows("score") == [(1,), (2,)]
    game.check()


@pytest.mark.parametrize("state", ["decodable", "waiting", "refused"])
def test_the_command_says_what_becomes_of_the_records(state: str) -> None:
    said = accept_line({"schema": 12, "policy": "alias", "change": "field a is gone", "state": state})
    assert said.startswith("schema 12, field a is gone: alias; its ")
