"""Gold over fields that the settings spell in another case, and over fields inside structs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from tests.support.answers import Answers
from tests.support.following import Gold, computer_of
from tests.support.games import Game

pytestmark = pytest.mark.spark

TEXT = (
    "message Event { string game_name = 1; string Gamer_ID = 2; int64 Event_Time = 3; int64 Amount = 4; Spot Spot = 5;"
    " Where where = 6; } message Where { Room Room = 1; string city = 2; } message Room { int64 Seats = 1; }"
    " message Spot { double x = 1; }"
)
UNO: dict[str, Any] = {"game_name": "uno"}
EVENTS = [
    UNO | {"Gamer_ID": "ann", "Event_Time": 5, "Amount": 7, "Spot": {"x": 1.5}, "where": {"city": "Bonn"}},
    UNO | {"Gamer_ID": "ann", "Event_Time": 9, "Amount": 1, "where": {"Room": {"Seats": 3}, "city": "Ulm"}},
    UNO | {"Gamer_ID": "bob", "Event_Time": 2, "Amount": 2, "where": {"Room": {"Seats": 4}}},
]


def gold(spark: SparkSession, game: Game) -> list[dict[str, Any]]:
    calculator = computer_of(spark, game.lake.opened)
    follower = Gold(calculator, game.lake.opened, threading.Lock())
    follower.run()
    assert follower.failed() == {}
    game.check()
    frame = pl.read_delta(str(game.lake.lake.path("gold_uno_player_agg")))
    return frame.sort(frame.columns[0]).to_dicts()


@pytest.mark.parametrize(
    ("key", "time", "amount"),
    [("Gamer_ID", "Event_Time", "Amount"), ("gamer_id", "event_time", "amount"), ("GAMER_ID", "EVENT_TIME", "AMOUNT")],
)
def test_case_does_not_count(
    spark: SparkSession, answers: Answers, tmp_path: Path, key: str, time: str, amount: str
) -> None:
    aggregates = {"last": {"function": "max"}, "sum": {"function": "sum", "field": amount}}
    game = Game(answers, tmp_path, TEXT, event={"key": key, "time": time}, gold={"aggregates": aggregates})
    game.send(1, *EVENTS)
    assert gold(spark, game) == [{key: "ann", "last": 9, "sum": 8}, {key: "bob", "last": 2, "sum": 2}]
    game.send(1, EVENTS[2])
    assert gold(spark, game)[1] == {key: "bob", "last": 2, "sum": 4}


def test_fields_inside_structs(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    aggregates = {
        "seats": {"function": "sum", "field": "where.room.seats"},
        "cities": {"function": "distinct", "field": "where.city"},
        "x": {"function": "median", "field": "spot.X"},
        "spots": {"function": "count", "field": "spot"},
        "none": {"function": "max", "field": "where.country"},
    }
    game = Game(
        answers, tmp_path, TEXT, event={"key": "gamer_id", "time": "event_time"}, gold={"aggregates": aggregates}
    )
    game.send(1, *EVENTS)
    assert gold(spark, game) == [
        {"gamer_id": "ann", "seats": 3, "cities": 2, "x": 1.5, "spots": 1, "none": None},
        {"gamer_id": "bob", "seats": 4, "cities": 1, "x": None, "spots": 0, "none": None},
    ]
    game.send(1, EVENTS[1])
    assert gold(spark, game)[0] == {"gamer_id": "ann", "seats": 6, "cities": 2, "x": 1.5, "spots": 1, "none": None}


def test_a_missing_field_is_named(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, TEXT, event={"key": "gamer"})
    calculator = computer_of(spark, game.lake.opened)
    follower = Gold(calculator, game.lake.opened, threading.Lock())
    game.send(1, *EVENTS)
    follower.run()
    found = follower.planner.lacking
    assert found.keys() == {f"event.{name} in silver_uno_events" for name in ("key = gamer", "time = event_timestamp")}
    said = "there is no such field, so there is no gold; did you mean Gamer_ID"
    assert found["event.key = gamer in silver_uno_events"].startswith(said)
