"""Further gold tables: several keys or none, conditions, windows, functions that fold and others. All is compared with
SQL over silver by another engine, and by the audit."""

from __future__ import annotations

import datetime
import random
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_app.app import duckdb_shell, shell
from spark_app.followers.gold import tables as gold_tables
from spark_app.followers.gold.aggregate import Aggregator, TableFailures
from spark_app.followers.registry import aggregators
from spark_app.followers.runner import FollowerRunner
from spark_app.page.views.query import jobs as query_jobs
from tests.support.answers import Answers
from tests.support.games import Game

pytestmark = pytest.mark.spark

TEXT = (
    'import "google/protobuf/timestamp.proto"; message Event { string game_name = 1;'
    " string gamer_id = 2; google.protobuf.Timestamp event_timestamp = 3; optional int64 bet = 4;"
    " optional string country = 5; double rate = 6; }"
)
COUNT, BETS, RATE = {"function": "count"}, {"function": "sum", "field": "bet"}, {"function": "mean", "field": "rate"}
MEDIAN, MOST = {"function": "median", "field": "bet"}, {"function": "max", "field": "bet"}
HOUR, SLIDING = {"size": "1 hour", "late": "10 minutes"}, {"size": "1 h", "slide": "25 min"}
TABLES: dict[str, dict[str, Any]] = {
    "hourly": {"window": HOUR, "aggregates": {"n": COUNT, "bets": BETS}},
    "sliding": {"window": SLIDING, "key": [], "aggregates": {"n": COUNT, "mean": RATE}},
    "places": {"key": ["country", "Gamer_ID"], "where": "BET > 1", "aggregates": {"n": COUNT, "most": MOST}},
    "whole": {"key": [], "aggregates": {"n": COUNT, "bets": BETS, "first": {"function": "min"}}},
    "medians": {"key": "country", "where": "rate < 0.9", "aggregates": {"median": MEDIAN, "mean": RATE}},
    "sessions": {"window": {"gap": "20 minutes"}, "aggregates": {"n": COUNT, "bets": BETS}},
    "quantiles": {"key": ["country"], "aggregates": {"p90": {"function": "quantile", "field": "bet", "q": 0.9}}},
    "about": {
        "aggregates": {
            "n": COUNT,
            "p95": {"function": "quantile", "field": "rate", "q": 0.95, "approximate": True},
            "middle": MEDIAN | {"approximate": True},
            "places": {"function": "distinct", "field": "country", "approximate": True},
            "times": {"function": "distinct", "field": "event_timestamp", "approximate": True},
        },
        "window": {"size": "2 hours"},
    },
    "none": {"where": "bet > 100000", "aggregates": {"n": COUNT}},
    "none_mean": {"where": "bet > 100000", "aggregates": {"mean": RATE}},
}
WINDOWED = """
    SELECT {key} window_start, window_start + INTERVAL 1 HOUR AS window_end, {columns},
        max(event_timestamp) FILTER (event_timestamp <= _kafka_timestamp + INTERVAL 10 MINUTE) AS _watermark
    FROM (
        SELECT *, CASE WHEN event_timestamp IS NULL THEN NULL ELSE make_timestamptz(
            epoch_us(event_timestamp) // {slide} * {slide} - back * {slide}) END AS window_start
        FROM silver, range({backs}) AS b(back) WHERE event_timestamp IS NOT NULL OR back = 0)
    WHERE window_start IS NULL OR epoch_us(window_start) + 3600000000 > epoch_us(event_timestamp) GROUP BY ALL"""
EXPECTED = {
    "hourly": WINDOWED.format(key="gamer_id,", columns="count(*) n, sum(bet) bets", slide=3_600_000_000, backs=1),
    "sliding": WINDOWED.format(key="", columns="count(*) n, avg(rate) mean", slide=1_500_000_000, backs=3),
    "places": 'SELECT country, gamer_id AS "Gamer_ID", count(*) n, max(bet) most FROM silver WHERE bet > 1'
    " GROUP BY ALL",
    "whole": "SELECT count(*) n, sum(bet) bets, min(event_timestamp) first FROM silver",
    "medians": "SELECT country, median(bet) median, avg(rate) mean FROM silver WHERE rate < 0.9 GROUP BY ALL",
    "sessions": """
    SELECT gamer_id, min(event_timestamp) AS window_start, max(event_timestamp) + INTERVAL 20 MINUTE AS window_end,
        count(*) n, sum(bet) bets,
        max(event_timestamp) FILTER (event_timestamp <= _kafka_timestamp + INTERVAL 10 MINUTE) AS _watermark
    FROM (
        SELECT *, sum(CASE WHEN event_timestamp <= before + INTERVAL 20 MINUTE THEN 0 ELSE 1 END)
            OVER (PARTITION BY gamer_id ORDER BY event_timestamp ROWS UNBOUNDED PRECEDING) AS number
        FROM (SELECT *, lag(event_timestamp) OVER (PARTITION BY gamer_id ORDER BY event_timestamp) AS before
              FROM silver WHERE event_timestamp IS NOT NULL))
    GROUP BY gamer_id, number""",
    "quantiles": "SELECT country, quantile_cont(bet, 0.9) p90 FROM silver GROUP BY ALL",
    "none": "SELECT gamer_id, count(*) n FROM silver WHERE bet > 100000 GROUP BY ALL",
    "none_mean": "SELECT gamer_id, avg(rate) mean FROM silver WHERE bet > 100000 GROUP BY ALL",
}


@pytest.fixture(autouse=True)
def _no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that fails is recomputed at once, which would hide it."""

    def fail(self: TableFailures, name: str, table: str, error: Exception) -> None:
        raise AssertionError(f"{table}: {error}") from error

    monkeypatch.setattr(TableFailures, "add", fail)


class Stand:
    """The gold of one game's lake."""

    def __init__(self, spark: SparkSession, answers: Answers, root: Path, tables: dict[str, Any]):
        self.spark = spark
        self.game = Game(answers, root, TEXT, gold={"tables": tables})
        self.begin()

    def begin(self) -> None:
        opened = self.game.lake.opened
        self.gold: list[Aggregator] = aggregators(self.spark, opened, threading.Lock())
        self.runners = [FollowerRunner(one, opened.lake, opened.units.manifests) for one in self.gold]

    def run(self) -> None:
        for runner in self.runners:
            runner.call()
        assert [one.failed() for one in self.gold] == [{}] * len(self.gold)

    def check(self, names: Any = tuple(EXPECTED), table: str = "uno") -> None:
        verdict = self.game.lake.audit()
        assert (verdict.faults(), verdict.notes) == ({}, {})
        path = self.game.lake.lake.path
        silver = DeltaTable(str(path(f"silver_{table}_events"))).to_pyarrow_table()
        for name in names:
            with duckdb.connect() as con:
                con.sql("SET TimeZone = 'UTC'")
                con.register("silver", silver)
                due = con.sql(EXPECTED[name])
                gold = DeltaTable(str(path(f"gold_{table}_{name}"))).to_pyarrow_table()
                assert set(gold.column_names) == set(due.columns)
                con.register("gold", gold)
                columns = ", ".join(
                    f'round("{column}", 6)' if kind == "DOUBLE" else f'"{column}"'
                    for column, kind in zip(due.columns, map(str, due.types), strict=True)
                )
                found = con.sql(f"SELECT {columns} FROM gold").fetchall()
                assert sorted(found, key=repr) == sorted(con.sql(f"SELECT {columns} FROM due").fetchall(), key=repr), (
                    name
                )


def events(draw: random.Random, count: int, game: str = "uno") -> list[dict[str, Any]]:
    """Some late, some ahead of Kafka's clock, some without a time, a bet or a country."""
    now = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)  # of the records
    found = []
    for _ in range(count):
        event: dict[str, Any] = {"game_name": game, "gamer_id": draw.choice("abc"), "rate": draw.random()}
        if draw.random() < 0.9:
            late = draw.choice([-7300, -3000, -100, -1, 100, 5000]) * draw.random()
            late = late if draw.random() < 0.5 else late // 600 * 600  # at bounds of windows, sessions and lateness
            at = now + datetime.timedelta(seconds=late)
            event["event_timestamp"] = at.isoformat().replace("+00:00", "Z")
        event |= {"bet": draw.randint(0, 9)} if draw.random() < 0.8 else {}
        event |= {"country": draw.choice(["de", "fr"])} if draw.random() < 0.8 else {}
        found.append(event)
    return found


@pytest.mark.parametrize("small_bytes", [gold_tables.SMALL_BYTES, 0])
def test_every_kind_equals_sql_over_silver(
    spark: SparkSession, answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    """In memory, and by Delta's MERGE."""
    monkeypatch.setattr(gold_tables, "SMALL_BYTES", small_bytes)
    stand, draw = Stand(spark, answers, tmp_path, TABLES), random.Random(7)
    for count in (40, 1, 25):
        stand.game.send(1, *events(draw, count))
        stand.run()
        stand.check()
    stand.begin()  # the next process
    stand.game.send(1, *events(draw, 10), *events(draw, 10, "chess"))
    stand.run()
    stand.check()
    stand.check(table="chess")


def test_a_changed_table_is_computed_anew_and_one_that_is_gone_stays(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    stand, draw = (
        Stand(spark, answers, tmp_path, {name: TABLES[name] for name in ("hourly", "places")}),
        random.Random(1),
    )
    stand.game.send(1, *events(draw, 20))
    stand.run()
    lake = stand.game.lake.lake
    before = [DeltaTable(str(lake.path(f"gold_uno_{name}"))).version() for name in ("hourly", "places")]
    changed = TABLES["places"] | {"where": "bet > 5"}
    stand.game.lake.reopen(gold={"tables": {"places": changed}})
    stand.begin()
    stand.run()
    after = [DeltaTable(str(lake.path(f"gold_uno_{name}"))).version() for name in ("hourly", "places")]
    assert after == [before[0], before[1] + 1]
    found = DeltaTable(str(lake.path("gold_uno_places"))).to_pyarrow_table()
    assert min(found["most"].to_pylist()) > 5
    stand.game.check()
    assert [key for key in lake.storage.list(lake.followers) if "hourly" in key] == []
    stand.game.send(1, *events(draw, 20))
    stand.game.lake.reopen(gold={"tables": TABLES})
    stand.begin()
    stand.run()
    stand.check()


def test_views_unite_tables_and_show_final_windows(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    stand, draw = Stand(spark, answers, tmp_path, TABLES), random.Random(5)
    stand.game.send(1, *events(draw, 30), *events(draw, 20, "chess"))
    stand.run()
    lake, settings = stand.game.lake.lake, stand.game.lake.settings
    shell.register(spark, lake, settings)
    with duckdb.connect() as con:
        con.sql("SET TimeZone = 'UTC'")
        duckdb_shell.register(con, lake, settings)
        for sql, count in {
            "SELECT _table, gamer_id, bet FROM silver_all WHERE bet > 3": None,
            "SELECT _table, count(*) FROM silver_all GROUP BY _table": 2,
            "SELECT _table, gamer_id, session_count FROM gold_all": 6,
            "SELECT _table, n, bets FROM gold_all_whole": 2,
            "SELECT gamer_id, n FROM final_gold_uno_hourly": None,
        }.items():
            found = sorted(map(tuple, spark.sql(sql).collect()), key=repr)
            assert found == sorted(con.sql(sql).fetchall(), key=repr)
            assert len(found) == count if count else found
            page = query_jobs.one_query(lake, settings, sql)
            assert len(page["rows"]) == len(found)
        newest = con.sql("SELECT max(_watermark) FROM gold_uno_hourly").fetchall()
        assert con.sql("SELECT max(window_end) + INTERVAL 10 MINUTE FROM final_gold_uno_hourly").fetchall() <= newest
    assert stand.game.lake.settings.views(["silver_all", "silver_uno_events"]).sources == {}


def test_the_audit_finds_a_wrong_value_of_each_kind(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    stand = Stand(spark, answers, tmp_path, TABLES)
    stand.game.send(1, *events(random.Random(3), 30))
    stand.run()
    for name, change in {
        "hourly": "* REPLACE (n + 1 AS n)",
        "sliding": "* REPLACE (window_end + INTERVAL 1 MINUTE AS window_end)",
        "sessions": "* REPLACE (_watermark + INTERVAL 1 SECOND AS _watermark)",
        "places": "* REPLACE (most + 1 AS most)",
        "quantiles": "* REPLACE (p90 + 0.01 AS p90)",
        "about": "* REPLACE (1.5 AS p95)",
    }.items():
        path = str(stand.game.lake.lake.path(f"gold_uno_{name}"))
        rows = DeltaTable(path).to_pyarrow_table()
        with duckdb.connect() as con:
            con.register("rows", rows)
            changed = con.sql(f"SELECT {change} FROM rows").to_arrow_table()
        write_deltalake(path, changed.cast(rows.schema), mode="overwrite")
    found = stand.game.lake.audit().counts
    assert {table for kind, table in found if kind == "gold"} == {
        f"gold_uno_{name}" for name in ("hourly", "sliding", "sessions", "places", "quantiles", "about")
    }


@pytest.mark.parametrize(
    ("table", "setting", "why"),
    [
        (
            {"key": "gamer"},
            "gold.tables.odd.key = gamer",
            "there is no such field, so there is no gold; did you mean gamer_id",
        ),
        ({"where": "bett > 1"}, "gold.tables.odd.where", "no column has the name bett; did you mean bet"),
        ({"where": "bet + 1"}, "gold.tables.odd.where", "is of the type BIGINT, and has to be BOOLEAN"),
        ({"where": "country > 1 AND bet"}, "gold.tables.odd.where", ""),
    ],
)
def test_what_does_not_fit_a_table_is_named(
    spark: SparkSession, answers: Answers, tmp_path: Path, table: dict[str, Any], setting: str, why: str
) -> None:
    stand = Stand(spark, answers, tmp_path, {"odd": {"aggregates": {"n": COUNT}} | table})
    stand.game.send(1, *events(random.Random(2), 5))
    stand.run()
    found = stand.gold[1].planner.lacking[f"{setting} in silver_uno_events"]
    assert found.startswith(why)
    assert not stand.game.lake.lake.has_table("gold_uno_odd")
    stand.game.check()


def test_windows_need_a_timestamp(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    stand = Stand(spark, answers, tmp_path, {"hourly": TABLES["hourly"]})
    stand.game.lake.reopen(
        event={"time": "bet"}, gold={"tables": {"hourly": {"window": HOUR, "aggregates": {"n": COUNT}}}}
    )
    stand.begin()
    stand.game.send(1, *events(random.Random(2), 5))
    stand.run()
    found = stand.gold[1].planner.lacking
    assert found == {
        "event.time = bet in silver_uno_events": "is int64, and windows need a timestamp, so there is no gold"
    }
    stand.game.check()
