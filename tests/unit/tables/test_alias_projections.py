"""Projections and reference tables name an alias by the column or by the name of its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_app.lake.files.state_files import read_durable
from spark_app.model.errors import ConfigurationError
from tests.support.answers import Answers
from tests.support.games import HEAD, Game
from tests.support.references import section, write

NAMES = "score", "points"
VERSIONS = [f"int32 {name} = 3; string {mail} = 4;" for name, mail in zip(NAMES, ("mail", "email"), strict=True)]


def sent(answers: Answers, root: Path, silver: dict[str, Any], **sections: Any) -> Game:
    """A lake with a row of each version before the settings, and one after."""
    game = Game(answers, root, *VERSIONS, rename="alias")
    send(game)
    game.lake.reopen(silver=silver, **sections)
    game.lake.units.check_expectations()
    send(game)
    return game


def send(game: Game) -> None:
    game.send(1, {"score": 4, "mail": "ann@x"})
    game.send(2, {"points": 6, "email": "bob@x"})


@pytest.mark.parametrize("name", ["mail", "email", "EMAIL"])
def test_a_column_is_replaced_by_either_name(answers: Answers, tmp_path: Path, name: str) -> None:
    game = sent(answers, tmp_path, {"columns": {name: f"left({name}, 1)", "half": "points // 2"}})
    assert game.rows("mail", "half") == [("ann@x", None), ("bob@x", None), ("a", 2), ("b", 3)]
    assert game.columns() == {"score", "mail", "half"}
    game.check()


@pytest.mark.parametrize("name", ["mail", "email"])
def test_a_column_is_dropped_by_either_name(answers: Answers, tmp_path: Path, name: str) -> None:
    game = sent(answers, tmp_path, {"drop": [name]})
    assert game.rows("mail") == [("ann@x",), ("bob@x",), (None,), (None,)]
    game.check()


def test_the_settings_of_a_table_come_after_the_general_ones(answers: Answers, tmp_path: Path) -> None:
    own = {"uno": {"columns": {"email": "left(mail, 2)"}, "drop": ["points"]}}
    game = sent(answers, tmp_path, {"columns": {"email": "left(mail, 1)", "points": "points + 1"}, "tables": own})
    assert game.rows("mail", "score") == [("ann@x", 4), ("bob@x", 6), ("an", None), ("bo", None)]
    game.check()


@pytest.mark.parametrize("own", [True, False])
def test_settings_with_both_names_mean_two_columns(answers: Answers, tmp_path: Path, own: bool) -> None:
    """As those do that renamed the column before the field was renamed."""
    columns, drop = {"points": "score + 1", "email": "left(mail, 1)"}, ["score", "mail"]
    silver = {"columns": columns, "drop": [] if own else drop, "tables": {"uno": {"drop": drop}} if own else {}}
    game = Game(answers, tmp_path, *VERSIONS, rename="alias")
    game.lake.reopen(silver=silver)
    game.send(2, {"points": 6, "email": "bob@x"})
    send(game)
    assert game.rows("points", "email") == [(7, "b"), (5, "a"), (7, "b")]
    assert game.columns() == {"points", "email"}
    game.check()


def test_an_alias_is_hidden_from_its_first_row_on(answers: Answers, tmp_path: Path) -> None:
    """The settings were made for another message, which has the new name."""
    other = "message Other { string game_name = 1; string gamer_id = 2; string email = 3; }"
    game = Game(answers, tmp_path, *(f"message Event {{ {HEAD}{v} }} {other}" for v in VERSIONS), rename="alias")
    game.lake.reopen(silver={"columns": {"email": "left(email, 1)"}})
    send(game)
    send(game)
    assert game.rows("mail") == [("ann@x",), ("b",), ("a",), ("b",)]
    game.check()


def test_a_column_that_a_projection_made_stays_its_own(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game = Game(answers, tmp_path, *VERSIONS, rename="alias")
    game.lake.reopen(silver={"columns": {"points": "score + 1"}})
    game.send(1, {"score": 4})
    game.send(2, {"points": 6})
    assert game.rows("score", "points") == [(4, 5), (6, 7)]
    game.check()


def test_what_has_no_such_name_is_refused(answers: Answers, tmp_path: Path) -> None:
    game = sent(answers, tmp_path, {"columns": {"a": "email"}})
    game.lake.reopen(silver={"columns": {"a": "emails"}})
    with pytest.raises(ConfigurationError, match="no column has the name emails; did you mean email or mail"):
        game.lake.units.check_expectations()
    game.lake.reopen(silver={"columns": {"points": "'a text'"}})
    with pytest.raises(
        ConfigurationError, match=r"silver\.columns\.score: is of the type string, but the table uno has"
    ):
        game.lake.units.check_expectations()


def test_the_routing_column_stays_as_it_is(answers: Answers, tmp_path: Path) -> None:
    texts = (f"message Event {{ string {name} = 1; string gamer_id = 2; }}" for name in ("game_name", "game"))
    game = Game(answers, tmp_path, *texts, rename="alias")
    game.send(1, {"game_name": "uno"})
    game.send(2, {"game": "uno"})
    game.lake.reopen(silver={"drop": ["game"]})
    with pytest.raises(ConfigurationError, match="game_name names the table, and stays as it is"):
        game.lake.units.check_expectations()


@pytest.mark.parametrize("name", ["gamer_id", "gamer"])
def test_a_reference_table_is_joined_by_either_name(answers: Answers, tmp_path: Path, name: str) -> None:
    path = write(tmp_path, ("ann", "FR", 1))
    texts = (f"message Event {{ string game_name = 1; string {one} = 2; }}" for one in ("gamer_id", "gamer"))
    game = Game(answers, tmp_path / "lake", *texts, rename="alias")
    game.send(1, {"game_name": "uno", "gamer_id": "ann"})
    game.send(2, {"game_name": "uno", "gamer": "bob"})
    game.lake.reopen(reference=section(path, on=name))
    game.lake.units.check_expectations()
    game.send(1, {"game_name": "uno", "gamer_id": "bob"})
    game.send(2, {"game_name": "uno", "gamer": "ann"})
    assert game.rows("gamer_id", "country") == [("ann", None), ("bob", None), ("bob", None), ("ann", "FR")]
    stored = read_durable(game.lake.lake.storage, game.lake.lake.definitions)
    assert {one["on"] for entry in stored.values() for one in entry["references"].values()} == {"gamer_id"}
    game.check()
