"""Gold by the old and the new names of aliases: what Spark and the workers compute, and what the audit finds."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_app.followers.gold.aggregates import with_source
from spark_app.followers.gold.compute import _alike
from tests.support.answers import Answers
from tests.support.following import Gold, computer_of
from tests.support.games import Game

pytestmark = pytest.mark.spark

TEXT = "message Event {{ string game_name = 1; string {} = 2; double {} = 3; int64 {} = 4; }}"
NAMES = [
    ("gamer_id", "score", "bet"),
    ("gamer", "points", "stake"),
    ("player", "total", "cost"),
]
FIELDS = {"mean": ("mean", "points"), "sum": ("sum", "score"), "median": ("median", "stake"), "last": ("max", "bet")}
INCREMENTAL = {"sum": ("sum", "stake"), "same": ("sum", "bet"), "count": ("count", "points")}


def lake_of(answers: Answers, root: Path, fields: dict[str, Any], key: str) -> Game:
    aggregates = {name: {"function": function, "field": field} for name, (function, field) in fields.items()}
    settings = {"event": {"key": key, "time": "points"}, "gold": {"aggregates": aggregates}}
    return Game(answers, root, *(TEXT.format(*names) for names in NAMES), rename="alias", **settings)


def send(game: Game, version: int, gamer: str, score: float, bet: int) -> None:
    key, value, stake = NAMES[version - 1]
    game.send(version, {"game_name": "uno", key: gamer, value: score, stake: bet})


def gold(game: Game) -> list[dict[str, Any]]:
    frame = pl.read_delta(str(game.lake.lake.path("gold_uno_player_agg")))
    return frame.sort(frame.columns[0]).to_dicts()


def fold(spark: SparkSession, game: Game) -> None:
    calculator = computer_of(spark, game.lake.opened)
    Gold(calculator, game.lake.opened, threading.Lock()).run()
    game.check()


def test_gold_is_the_same_by_either_name(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    game = lake_of(answers, tmp_path, FIELDS, "gamer")
    send(game, 1, "ann", 1.5, 1)
    send(game, 2, "ann", 2.5, 4)
    send(game, 2, "bob", 7.0, 5)
    fold(spark, game)
    ann = {"gamer": "ann", "mean": 2.0, "sum": 4.0, "median": 2.5, "last": 4}
    assert gold(game) == [ann, {"gamer": "bob", "mean": 7.0, "sum": 7.0, "median": 5.0, "last": 5}]
    send(game, 3, "bob", 8.0, 7)
    fold(spark, game)
    assert gold(game) == [ann, {"gamer": "bob", "mean": 7.5, "sum": 15.0, "median": 6.0, "last": 7}]
    game.lake.reopen(event={"key": "player"})
    fold(spark, game)
    assert [row["player"] for row in gold(game)] == ["ann", "bob"]


def test_new_rows_of_a_new_version_are_merged(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    game = lake_of(answers, tmp_path, INCREMENTAL, "gamer_id")
    send(game, 1, "ann", 1.5, 1)
    send(game, 2, "ann", 1.5, 2)
    fold(spark, game)
    send(game, 3, "ann", 1.5, 4)
    fold(spark, game)
    assert gold(game) == [{"gamer_id": "ann", "sum": 7, "same": 7, "count": 3}]


def test_tables_that_read_other_columns_are_computed_apart() -> None:
    columns = pa.schema([("k", pa.string()), ("score", pa.int64()), ("points", pa.int64())])
    one = pa.schema([columns.field("k"), with_source(columns.field("score"), ("score",), "points")])
    other = pa.schema([columns.field("k"), columns.field("points")])
    assert one == other
    assert [names for _, names in _alike("abc", {"a": one, "b": other, "c": one})] == [["a", "c"], ["b"]]
