"""Schemas that change by policy, in real Spark jobs: replay, rebuild and gold of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import json_format

from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from tests.spark.parts import Parts
from tests.spark.test_spark_rebuild import answer, ask, counts
from tests.spark.test_spark_replay import landed, replay
from tests.support.answers import Answers
from tests.support.decisions import patience
from tests.support.frames import frame
from tests.support.protos import compile_text, message_class
from tests.support.subjects import Subject

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
HEAD = "string game_name = 1; string gamer_id = 2; "
VERSIONS = [HEAD + f"int64 {name} = 3;" for name in ("score", "points")]
SILVER, GOLD = "silver_uno_events", "gold_uno_player_agg"
BEST = {"best": {"function": "max", "field": "score"}}


class Game:
    """A lake whose game has sent a record of each version, by a policy for the renamed field."""

    def __init__(self, new_parts: NewParts, answers: Answers, policy: str):
        self._new_parts = new_parts
        self._url = answers.url
        self.subject = Subject(answers, *VERSIONS, name="t-value")
        self.parts = self.reopen(policy)
        self.parts.schemas.load_subject_versions()
        self.send(1, 5)
        self.send(2, 7)

    def reopen(self, policy: str) -> Parts:
        sections: dict[str, Any] = {
            "kafka": {"topic": "t"},
            "schemas": {"changes": {"rename": policy}},
            "gold": {"aggregates": BEST},
        }
        self.parts = self._new_parts(self._url, **sections)
        return self.parts

    def send(self, version: int, value: int) -> None:
        kind = message_class(compile_text(self.subject.texts[version - 1]), "Event")
        name = ("score", "points")[version - 1]
        event = json_format.ParseDict({"game_name": "uno", "gamer_id": "g", name: value}, kind())
        self.parts.take([frame(10 + version, event.SerializeToString())])

    def accept(self, policy: str) -> dict[str, Any]:
        """As the command asks for it."""
        request = Request("accept", {"schema": "12", "policy": policy})
        requests.submit(self.parts.lake, request)
        with patience():
            return answer(self.parts, request)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.parts.read(SILVER).sort("_offset").select(columns).rows()

    def best(self) -> list[int]:
        self.parts.gold.run()
        found: list[int] = self.parts.read(GOLD)["best"].to_list()
        return found


def test_an_alias_is_rebuilt_as_it_was_whatever_the_settings_say_later(new_parts: NewParts, answers: Answers) -> None:
    game = Game(new_parts, answers, "alias")
    assert game.rows("score") == [(5,), (7,)]
    assert game.best() == [7]
    parts = game.reopen("warn")
    result = ask(parts)
    assert counts(result)[SILVER] == {"expected": 2, "present": 2}
    assert result["gold"][GOLD]["differing"] == 0
    game.send(2, 9)
    assert game.rows("score") == [(5,), (7,), (9,)]
    assert game.best() == [9]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("policy", "columns", "rows"),
    [("alias", ("score",), [(5,), (7,)]), ("new_column", ("score", "points"), [(5, None), (None, 7)])],
)
def test_records_in_quarantine_are_replayed_once_a_person_has_decided(
    new_parts: NewParts, answers: Answers, policy: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    game = Game(new_parts, answers, "quarantine")
    assert landed(game.parts) == {SILVER: [0], "resolved": [], "open": [1]}
    assert replay(game.parts, causes=["schema_change"])["resolved"] == {}  # nobody has decided
    assert game.accept(policy)["state"] == "decodable"
    assert replay(game.parts, causes=["schema_change"])["resolved"] == {SILVER: 1}
    assert landed(game.parts) == {SILVER: [0, 1], "resolved": [1], "open": []}
    assert game.rows(*columns) == rows
    assert replay(game.parts, causes=["schema_change"])["resolved"] == {}
    assert game.best() == [7 if policy == "alias" else 5]
    assert counts(ask(game.parts))[SILVER] == {"expected": 2, "present": 2}


@pytest.mark.nightly
def test_rows_that_a_decision_let_in_are_rebuilt(new_parts: NewParts, answers: Answers) -> None:
    game = Game(new_parts, answers, "pause")
    assert game.rows("score") == [(5,)]
    assert counts(ask(game.parts))[SILVER] == {"expected": 1, "present": 1}
    assert game.accept("alias")["state"] == "decodable"
    while game.parts.deferred.step(None) is not None:
        pass
    assert game.rows("score") == [(5,), (7,)]
    assert counts(ask(game.parts))[SILVER] == {"expected": 2, "present": 2}
    game.parts.lake.path(SILVER).rename(game.parts.lake.path("lost"))
    assert counts(ask(game.reopen("new_column")))[SILVER]["expected"] == 2
    assert game.rows("score") == [(5,), (7,)]
