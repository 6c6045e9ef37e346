"""Settings name an alias by the column or by the name of its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_app.lake.files.state_files import read_durable
from spark_app.model.columns import Aliases
from spark_app.model.errors import ConfigurationError
from spark_app.recovery.backtest.backtester import backtest
from spark_app.tables.expectations.checks import check_columns
from spark_app.tables.sql.names import write_columns
from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.games import HEAD, Game
from tests.support.protos import compile_text, message_class

COLUMNS = pa.schema(
    [
        ("score", pa.int64()),
        ("real", pa.int64()),
        ("a", pa.struct([("x", pa.int64()), ("in", pa.struct([("y", pa.int64())]))])),
        ("l", pa.list_(pa.struct([("x", pa.int64())]))),
    ]
)
ALIASES: Aliases = {
    (): {"points": "score", "Other": "a", "real": "score"},
    ("a",): {"z": "x"},
    ("a", "in"): {'q"': "y"},
}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("score > 0", "score > 0"),
        ("points > 0", '"score" > 0'),
        ("POINTS > 0 OR 'points' = 'é' OR \"points\" < 0", "\"score\" > 0 OR 'points' = 'é' OR \"score\" < 0"),
        ("real > 0", "real > 0"),
        ('other.z + a.z + a.in."q""" > 0 -- points', '"a"."x" + "a"."x" + "a"."in"."y" > 0 -- points'),
        ("a.x > 0", "a.x > 0"),
        ("unknown.z > 0", "unknown.z > 0"),
        ("len(list_filter(l, lambda points: points.z > points)) > 0", None),
        ("len(list_filter(l, lambda o: o.z > points)) > 0", 'len(list_filter(l, lambda o: o.z > "score")) > 0'),
        ("points /* é */ > _offset", '"score" /* é */ > _offset'),
    ],
)
def test_names_become_those_of_columns(text: str, written: str | None) -> None:
    assert write_columns(text, COLUMNS, ALIASES) == (written or text)
    assert write_columns(text, COLUMNS, {}) == text


def test_a_check_that_would_become_too_long_stays_as_it_is() -> None:
    text = "points > 0" + " " * 3990
    assert write_columns(text, COLUMNS, ALIASES) == text


def test_a_check_is_compared_with_both_names() -> None:
    check_columns("r", "points > 0 AND a.z > 0", [COLUMNS], [COLUMNS], {COLUMNS: ALIASES})
    with pytest.raises(ConfigurationError, match="no column has the name point; did you mean points"):
        check_columns("r", "point > 0", [COLUMNS], [COLUMNS], {COLUMNS: ALIASES})
    with pytest.raises(ConfigurationError, match="no column has the name points"):
        check_columns("r", "points > 0", [COLUMNS], [COLUMNS])


NAMES = "score", "points"
SCORE, POINTS = (f"int32 {name} = 3;" for name in NAMES)


def definitions(game: Game) -> dict[str, Any]:
    return read_durable(game.lake.lake.storage, game.lake.lake.definitions) or {}


def checks(game: Game) -> list[str]:
    return [rule["check"] for one in definitions(game).values() for rule in one.get("rules", ())]


def rule(check: str, **more: Any) -> dict[str, Any]:
    return {"r": {"check": check, "action": "quarantine", **more}}


@pytest.mark.parametrize("name", ["score", "points", "Points"])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_an_expectation_names_an_alias_by_either_name(
    answers: Answers, tmp_path: Path, name: str, order: tuple[int, int]
) -> None:
    game = Game(answers, tmp_path, SCORE, POINTS, rename="alias")
    for version in order:
        game.send(version, {("score", "points")[version - 1]: version})
    game.lake.reopen(expectations=rule(f"{name} > 5"))
    game.lake.units.check_expectations()
    game.send(1, {"score": 9}, {"score": 1})
    game.send(2, {"points": 9}, {"points": 1})
    assert game.rows("score") == [(order[0],), (order[1],), (9,), (9,)]
    assert game.quarantined() == ["expect_failed"] * 2
    game.check()
    found = backtest(game.lake.settings).tables["silver_uno_events"].expectations["r"]
    assert (found.checked, found.failed) == (6, 4)


OTHER = "message Other { string game_name = 1; string gamer_id = 2; int32 points = 3; } "


def file_of(fields: str) -> str:
    """A file with another message, which has a column `points`."""
    return f"message Event {{ {HEAD}{fields} }} {OTHER}"


def test_an_expectation_is_bound_when_its_alias_comes(answers: Answers, tmp_path: Path) -> None:
    """Before, the column of another message has the name, which is NULL in the table."""
    game = Game(answers, tmp_path, file_of(SCORE), file_of(POINTS), rename="alias")
    game.lake.reopen(expectations=rule("points IS NULL OR points > 5"))
    game.send(1, {"score": 1})
    assert game.quarantined() == []
    game.send(2, {"points": 1})
    game.send(1, {"score": 1})
    assert game.rows("score") == [(1,)]
    assert game.quarantined() == ["expect_failed"] * 2
    assert checks(game) == ["points IS NULL OR points > 5", '"score" IS NULL OR "score" > 5']
    game.check()


def test_the_column_of_another_message_of_the_table_comes_first(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game = Game(answers, tmp_path, file_of(SCORE), file_of(POINTS), rename="alias")
    game.lake.reopen(
        expectations=rule("coalesce(points, 6) > 5"),
        silver={"columns": {"more": "points + 1"}},
        gold={"aggregates": {"most": {"function": "max", "field": "points"}}},
    )
    game.send(2, {"points": 1})
    send_other(game, 9)
    game.send(2, {"points": 1})
    send_other(game, 1)
    assert game.rows("score", "points", "more") == [(None, 9, 10), (1, None, None)]
    assert game.quarantined() == ["expect_failed"] * 2
    assert capsys.readouterr().err.count("not_column=score") == 2  # of the rule, and of the projection
    game.lake.units.check_expectations()
    game.check()


def send_other(game: Game, points: int) -> None:
    kind = message_class(compile_text(game.subject.texts[1]), "Other")
    value = kind(game_name="uno", gamer_id="g", points=points).SerializeToString()
    game.lake.take(batch_of([frame(12, value, (1,))], first=game.lake.ends.get(0, 0)))


def test_a_column_that_comes_later_has_the_name_to_itself(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = SCORE, POINTS, "int32 total = 3;", "int32 total = 3; int32 points = 4;"
    game = Game(answers, tmp_path, *versions, rename="alias")
    game.send(2, {"points": 9})
    game.lake.reopen(expectations=rule("coalesce(points, 6) > 5"))
    game.send(2, {"points": 9}, {"points": 1})
    assert "not_column" not in capsys.readouterr().err
    game.send(4, {"total": 1, "points": 9}, {"total": 9, "points": 1})
    game.send(2, {"points": 1})
    assert game.rows("score", "points") == [(9, None), (9, None), (1, 9), (1, None)]
    assert game.quarantined() == ["expect_failed"] * 2
    assert checks(game) == ["coalesce(points, 6) > 5", 'coalesce("score", 6) > 5']
    assert capsys.readouterr().err.count("not_column=score") == 1
    game.check()


def test_a_field_of_a_struct_has_both_names(answers: Answers, tmp_path: Path) -> None:
    text = "message Event {{ {} Point {} = 3; }} message Point {{ int64 {} = 1; }}"
    game = Game(answers, tmp_path, *(text.format(HEAD, *names) for names in ("ax", "bz")), rename="alias")
    game.lake.reopen(expectations=rule("b.z > 5"))
    game.send(2, {"b": {"z": 9}}, {"b": {"z": 1}})
    game.send(1, {"a": {"x": 9}}, {"a": {"x": 1}})
    assert game.rows("a") == [({"x": 9},), ({"x": 9},)]
    assert checks(game) == ["b.z > 5", '"a"."x" > 5']
    game.lake.reopen(expectations=rule("a.z > 5 AND b.x > 0"))
    game.lake.units.check_expectations()
    game.check()


def test_the_rules_of_a_proto_come_after_those_of_the_settings(answers: Answers, tmp_path: Path) -> None:
    head = 'import "buf/validate/validate.proto"; '
    texts = (f"{head}message Event {{ {HEAD}int32 {n} = 3 [(buf.validate.field).int32.lt = 8]; }}" for n in NAMES)
    game = Game(answers, tmp_path, *texts, rename="alias")
    game.lake.reopen(schemas={"proto_rules": "quarantine"}, expectations=rule("points > 5"))
    game.send(2, {"points": 9}, {"points": 7}, {"points": 1})
    game.send(1, {"score": 9}, {"score": 7}, {"score": 1})
    assert game.rows("score") == [(7,), (7,)]
    game.check()


def test_a_lake_without_aliases_has_no_other_definitions(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, SCORE, POINTS)
    game.send(1, {"score": 1})
    game.send(2, {"points": 9})
    game.lake.reopen(expectations=rule("coalesce(points, 9) > 5"))
    game.send(1, {"score": 1})
    assert checks(game) == ["coalesce(points, 9) > 5"]
    assert game.lake.opened.resolver.ledger.catalog().aliases == {}
    game.check()


def test_a_renamed_field_beside_a_map(answers: Answers, tmp_path: Path) -> None:
    """The entry of a map is a message in the descriptors, and no message type."""
    by, point = "map<string, Point> by = 9;", "message Point {{ int64 {} = 1; }} message Event {{ {} {} }}"
    game = Game(answers, tmp_path, *(point.format(name, HEAD, by) for name in "xz"), rename="alias")
    for version, name in ((1, "x"), (2, "z")):
        kind = message_class(compile_text(game.subject.texts[version - 1]), "Event")
        event = kind(game_name="uno", gamer_id="g")
        setattr(event.by["k"], name, version)
        game.lake.take(batch_of([frame(10 + version, event.SerializeToString(), (1,))], first=version - 1))
    rows = game.silver.to_pyarrow_table().sort_by("_offset")
    assert rows["by"].to_pylist() == [[("k", {"x": 1})], [("k", {"x": 2})]]
    game.check()
