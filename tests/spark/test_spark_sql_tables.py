"""Tables by SQL files: each equals its statement in a session of Spark that has nothing of the app, over the lake's own
tables as delta-rs reads them."""

from __future__ import annotations

import contextlib
import json
import random
import re
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_app.app import duckdb_shell, explain_text
from spark_app.followers.gold.sql_tables.follower import SqlFollower
from spark_app.followers.registry import FollowerContext, aggregators, sql_followers
from spark_app.followers.runner import FollowerRunner
from spark_app.lake import cursors, sql_tables
from spark_app.lake.delta.table_handles import Tables
from spark_app.model.errors import UsageError
from spark_app.recovery import requests
from spark_app.recovery.executor import RequestExecutor
from spark_app.recovery.requests import Request
from spark_app.units.driver.unit import UnitRunner
from tests.spark.test_spark_gold_tables import TEXT, events
from tests.support.answers import Answers
from tests.support.frames import batch_of
from tests.support.games import Game
from tests.tiers import ROOT

pytestmark = pytest.mark.spark

FILES = {
    "hourly.sql": """
        -- Bets of each hour; with a semicolon; in a comment
        CREATE OR REFRESH MATERIALIZED VIEW hourly_bets COMMENT 'Bets; per hour'
        TBLPROPERTIES ('pipelines.trigger.interval' = '2 seconds') AS
        SELECT _table AS game, date_trunc('hour', event_timestamp) AS hour, count(*) AS n, sum(bet) AS bets,
               max(bet) AS most, min(event_timestamp) AS first, count(country) AS places
        FROM silver_all WHERE bet IS NULL OR bet < 9 GROUP BY ALL;
        CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(bet + 1) AS bets FROM silver_uno_events;
        """,
    "boards.sql": """
        CREATE TEMPORARY VIEW players AS SELECT _table AS game, gamer_id, session_count FROM gold_all;
        CREATE MATERIALIZED VIEW board AS SELECT gamer_id, sum(session_count) AS n FROM players
        GROUP BY gamer_id ORDER BY n DESC, gamer_id LIMIT 2;
        CREATE MATERIALIZED VIEW means AS WITH bets AS (SELECT * FROM silver_all WHERE bet > 0)
        SELECT country, avg(bet) AS mean, struct(max(rate) AS rate) AS most, map('n', count(*)) AS counts FROM bets
        GROUP BY country;
        CREATE MATERIALIZED VIEW on_board AS SELECT b.gamer_id, h.game, h.n FROM board b JOIN high_bets_uno h
        ON b.gamer_id = h.gamer_id;
        """,
    "each.sql": """
        CREATE MATERIALIZED VIEW high_bets_{name} AS SELECT '{name}' AS game, gamer_id, bet * 2 AS n, event_timestamp
        FROM silver_{name}_events WHERE bet > 4""",
}
MODES = {
    "hourly_bets": "fold",
    "totals": "fold",
    "board": "recompute",
    "means": "recompute",
    "on_board": "recompute",
    "high_bets_uno": "append",
    "high_bets_chess": "append",
}
BY_DUCKDB = {
    "hourly_bets": "SELECT _table AS game, date_trunc('hour', event_timestamp) AS hour, count(*) AS n, sum(bet),"
    " max(bet), min(event_timestamp), count(country) FROM silver_all WHERE bet IS NULL OR bet < 9 GROUP BY ALL",
    "totals": "SELECT count(*) AS n, sum(bet + 1) AS bets FROM silver_uno_events",
    "board": "SELECT gamer_id, sum(session_count) AS n FROM gold_all GROUP BY 1 ORDER BY n DESC, gamer_id LIMIT 2",
    "high_bets_uno": "SELECT 'uno', gamer_id, bet * 2, event_timestamp FROM silver_uno_events WHERE bet > 4",
    "high_bets_chess": "SELECT 'chess', gamer_id, bet * 2, event_timestamp FROM silver_chess_events WHERE bet > 4",
}


class Stand:
    """A lake with tables by SQL."""

    def __init__(
        self,
        spark: SparkSession,
        answers: Answers,
        root: Path,
        files: dict[str, str],
        reference: dict[str, Any] | None = None,
        **more: Any,
    ):
        self.folder = root / "sql"
        self.folder.mkdir(exist_ok=True)
        self.write(files)
        self.spark = spark
        self.tables = {"sql": [str(self.folder / "*.sql")], **more}
        self.game = Game(answers, root / "lake", TEXT, tables=self.tables, reference=reference or {})
        self.lake = self.game.lake.lake
        self.begin()

    def write(self, files: dict[str, str]) -> None:
        for old in self.folder.iterdir():
            old.unlink()
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def begin(self) -> None:
        """The app's next process."""
        opened, self.stop, self.refused = self.game.lake.opened, threading.Event(), dict[str, str]()
        self.failed: dict[str, str] = {}

        def done(follower: str, rows: dict[str, int], failed: dict[str, str]) -> None:
            self.failed = {table: why for table, why in self.failed.items() if table not in rows} | failed

        lock = threading.Lock()
        refuse = self.refused.__setitem__
        given = FollowerContext(self.spark, opened, lock, lambda *_: None, lambda: False, done, refuse, self.stop)
        self.sql: list[SqlFollower] = sql_followers(given)
        self.gold = aggregators(self.spark, opened, lock)
        self.runners = [FollowerRunner(one, opened.lake, opened.units.manifests) for one in (*self.gold, *self.sql)]

    def run(self, *fails: str) -> None:
        """`fails`: the tables that fail; one that is mended by its next run would hide it."""
        for runner in self.runners:
            runner.call()
        assert set(self.failed) == set(fails), self.failed

    def read(self, table: str) -> pa.Table:
        return DeltaTable(str(self.lake.path(table))).to_pyarrow_table()

    def version(self, table: str) -> int:
        return int(DeltaTable(str(self.lake.path(table))).version())

    def states(self) -> dict[str, Any]:
        return {table: one for follower in self.sql for table, one in follower.describe().items()}

    def check(self) -> None:
        """The audit, which runs each statement anew, and another engine."""
        verdict = self.game.lake.audit()
        assert (verdict.faults(), verdict.notes) == ({}, {})
        with duckdb.connect() as con:
            con.sql("SET TimeZone = 'UTC'")
            duckdb_shell.register(con, self.lake, self.game.lake.settings)
            for table, query in BY_DUCKDB.items():
                if table in self.lake.tables():
                    found = con.sql(f"SELECT * FROM {table}")
                    assert sorted(found.fetchall(), key=repr) == sorted(con.sql(query).fetchall(), key=repr), table


def test_every_table_equals_its_statement(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    stand, draw = Stand(spark, answers, tmp_path, FILES), random.Random(7)
    stand.game.send(1, *events(draw, 40))
    stand.run()
    stand.check()
    stand.game.send(1, *events(draw, 40), *events(draw, 20, "chess"))  # another game follows
    stand.run()
    stand.check()
    assert stand.refused == {}
    assert {table: one["mode"] for table, one in stand.states().items()} == MODES
    first = {table: stand.version(table) for table in MODES}
    stand.run()
    assert {table: stand.version(table) for table in MODES} == first  # nothing is new
    stand.begin()  # the next process
    stand.game.send(1, *events(draw, 5, "chess"))
    stand.run()
    stand.check()
    assert stand.version("high_bets_uno") == first["high_bets_uno"]
    stand.game.send(1, {"game_name": "uno", "gamer_id": "a", "bet": 5})
    stand.run()
    stand.check()
    adds = DeltaTable(str(stand.lake.path("high_bets_uno"))).get_add_actions()["num_records"].to_pylist()
    assert min(adds) == 1  # new rows alone were written


def test_a_changed_statement_is_run_anew_and_one_that_is_gone_leaves_its_table(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    stand, draw = (
        Stand(spark, answers, tmp_path, {"a.sql": FILES["each.sql"], "b.sql": FILES["hourly.sql"]}),
        random.Random(1),
    )
    stand.game.send(1, *events(draw, 20))
    stand.run()
    before = {table: stand.version(table) for table in ("high_bets_uno", "totals")}
    stand.write(
        {"a.sql": FILES["each.sql"].replace("bet * 2 AS n", "bet * 3 AS n, rate").replace("bet > 4", "bet > 2")}
    )
    stand.begin()
    stand.game.send(1, *events(draw, 20))
    stand.run()
    after = stand.read("high_bets_uno")
    assert after.column_names == ["game", "gamer_id", "n", "rate", "event_timestamp"]
    assert min(after["n"].to_pylist()) == 9
    assert stand.version("high_bets_uno") == before["high_bets_uno"] + 1
    assert stand.version("totals") == before["totals"]
    assert [name for name in cursors.names(stand.lake) if name.startswith("sql.")] == ["sql.high_bets_NAME"]


def test_quarantine_is_counted(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    """By the statement of the dashboard."""
    stand = Stand(spark, answers, tmp_path, {"a.sql": (ROOT / "docs/examples/bi/quarantined.sql").read_text()})
    stand.game.send(1, *events(random.Random(3), 3))
    stand.run()
    assert "quarantined" not in stand.lake.tables()  # it waits for the first record in quarantine
    for count in (2, 5):
        stand.game.lake.take(batch_of([b"no frame"] * (3 if count > 2 else 2), first=stand.game.lake.ends[0]))
        stand.run()
        stand.check()
        assert stand.read("quarantined").select(["cause", "records"]).to_pylist() == [
            {"cause": "frame_magic", "records": count}
        ]


def test_a_reference_table_is_read_by_its_own_names(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    path = str(tmp_path / "places")
    write_deltalake(path, pa.table({"country": ["de", "fr"], "region": ["east", "west"]}))
    query = "SELECT p.country, p.region, count(*) n FROM silver_uno_events JOIN places p USING (country) GROUP BY 1, 2"
    setting = {"places": {"path": path, "key": "country", "columns": ["region"]}}
    files = {"a.sql": f"CREATE MATERIALIZED VIEW by_place AS {query}"}
    stand = Stand(spark, answers, tmp_path, files, setting)
    stand.game.send(1, *events(random.Random(13), 20))
    stand.run()
    found = {(row["country"], row["region"]) for row in stand.read("by_place").to_pylist()}
    assert found == {("de", "east"), ("fr", "west")}
    assert stand.states()["by_place"]["mode"] == "recompute"
    stand.check()


def test_a_statement_that_was_away_for_some_starts_lacks_nothing(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    stand, draw = Stand(spark, answers, tmp_path, FILES), random.Random(11)
    stand.game.send(1, *events(draw, 10))
    stand.run()
    stand.write({"each.sql": FILES["each.sql"]})
    stand.begin()
    stand.game.send(1, *events(draw, 10), *events(draw, 10, "chess"))
    stand.run()
    for runner in stand.runners:
        runner.flush()
    stand.write(FILES)
    stand.begin()
    stand.run()
    stand.check()
    assert stand.read("totals")["n"].to_pylist() == [20]


ODD = {
    "pairs": "SELECT gamer_id, gamer_id AS again, count(*) AS n FROM silver_uno_events GROUP BY gamer_id, country",
    "tried": "SELECT gamer_id, try_sum(bet) AS n FROM silver_uno_events GROUP BY gamer_id",
    "collated": "SELECT country COLLATE UTF8_LCASE AS c, count(*) AS n FROM silver_uno_events GROUP BY 1",
    "nested": "SELECT struct(bet AS variant, bet AS interval_s) AS void FROM silver_uno_events",
}


def test_what_looks_as_if_it_could_be_folded(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    files = {f"{name}.sql": f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in ODD.items()}
    stand, draw = Stand(spark, answers, tmp_path, files), random.Random(12)
    for _ in range(2):
        stand.game.send(1, *events(draw, 10), {"game_name": "uno", "gamer_id": "a", "country": "DE"})
        stand.run()
    modes = {table: one["mode"] for table, one in stand.states().items()}
    assert modes == {"pairs": "recompute", "tried": "recompute", "collated": "recompute", "nested": "append"}
    assert stand.game.lake.audit().faults() == {}


def ask(stand: Stand, table: str, yes: bool = True) -> dict[str, Any]:
    """Drop a table, as the command does."""
    opened, lock, request = stand.game.lake.opened, threading.Lock(), Request("drop", {"table": table}, not yes)
    requests.submit(stand.lake, request)
    service = RequestExecutor(stand.spark, opened, UnitRunner(stand.spark, opened), stand.gold, lock)
    while service.step():
        pass
    return requests.take_result(stand.lake, request) or {}


def test_a_table_is_explained_and_one_that_is_no_longer_declared_can_be_dropped(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    late = {"late.sql": "CREATE MATERIALIZED VIEW late AS SELECT * FROM silver_late_events"}
    stand, draw = Stand(spark, answers, tmp_path, FILES | late), random.Random(6)
    stand.game.send(1, *events(draw, 20))
    stand.run()
    settings = stand.game.lake.settings
    stand.lake.path(stand.lake.status).write_text(json.dumps({"sql": stand.states()}))
    no_run = "late: no run yet, every 60 s; it waits for silver_late_events, which is not there yet"
    assert no_run in explain_text.Explainer(settings).overview()
    assert explain_text.Explainer(settings).of("late") == [no_run]
    lines = explain_text.Explainer(settings).of("hourly_bets")
    assert lines[0].endswith("hourly.sql:3, every 2 s")
    assert "because  new rows are merged by count, max, min, sum" in lines[2]
    assert "rows of board change" in explain_text.Explainer(settings).of("on_board")[2]
    assert "rows of gold_all change" in explain_text.Explainer(settings).of("board")[2]
    assert "high_bets_uno: append, every 60 s" in explain_text.Explainer(settings).overview()
    with pytest.raises(UsageError, match="did you mean totals"):
        explain_text.Explainer(settings).of("total")
    assert "is kept up" in ask(stand, "totals")["error"]
    assert "has records" in ask(stand, "silver_uno_events")["error"]
    assert "has no table totls; did you mean totals?" in ask(stand, "totls")["error"]
    stand.write({"hourly.sql": FILES["hourly.sql"].replace("totals", "sums").replace("Bets; per hour", "By hour")})
    assert ask(stand, "totals", yes=False) == {"table": "totals", "rows": 1, "dropped": False}
    assert "totals" in stand.lake.tables()
    assert ask(stand, "totals") == {"table": "totals", "rows": 1, "dropped": True}
    assert "totals" not in {*stand.lake.tables(), *sql_tables.names(stand.lake)}
    stand.begin()
    stand.run()
    assert stand.read("sums")["n"].to_pylist() == [20]
    assert DeltaTable(str(stand.lake.path("hourly_bets"))).metadata().description == "By hour"


def test_expanded_statements_give_the_same_tables_without_the_app(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    stand, draw = Stand(spark, answers, tmp_path, FILES), random.Random(8)
    stand.game.send(1, *events(draw, 20), *events(draw, 20, "chess"))
    stand.run()
    explain_text.Explainer(stand.game.lake.settings).expand(tmp_path / "expanded")
    alone = spark.newSession()
    for table in stand.lake.tables():
        alone.createDataFrame(stand.read(table)).createOrReplaceTempView(table)
    for view in (tmp_path / "expanded" / "views.sql").read_text().split(";\n"):
        alone.sql(view) if view.strip() else None
    for table in MODES:
        text = (tmp_path / "expanded" / f"{table}.sql").read_text().rstrip().rstrip(";")
        assert text.startswith(f"CREATE MATERIALIZED VIEW {table}")
        found = alone.sql(text.partition(" AS\n")[2]).toArrow()
        assert found.num_rows == stand.read(table).num_rows


def test_new_columns_of_silver_and_a_rebuilt_table(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    every = "CREATE MATERIALIZED VIEW every AS SELECT * FROM silver_uno_events;"
    stand = Stand(spark, answers, tmp_path, FILES | {"every.sql": every})
    stand.game.subject.register(TEXT.replace("}", " optional string color = 7; }"))
    draw = random.Random(4)
    stand.game.send(1, *events(draw, 20))
    stand.run()
    stand.game.send(2, *({**event, "color": "red"} for event in events(draw, 10)))
    stand.run()
    stand.check()
    assert stand.read("every")["color"].to_pylist().count("red") == 10
    path = str(stand.lake.path("totals"))
    assert DeltaTable(path).version() == 1  # its columns are the same: it was folded


def test_a_statement_that_fails_stops_its_own_table(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    files = FILES | {
        "odd.sql": "\n\nCREATE MATERIALIZED VIEW odd AS SELECT gamer_id, bet / (bet - 9) AS x FROM silver_uno_events"
    }
    stand, draw = Stand(spark, answers, tmp_path, files), random.Random(2)
    stand.game.send(1, {"game_name": "uno", "gamer_id": "a", "bet": 5})
    stand.run()
    assert stand.read("odd").num_rows == 1
    stand.game.send(1, *events(draw, 20), {"game_name": "uno", "gamer_id": "a", "bet": 9})
    stand.run("odd")
    assert "DIVIDE_BY_ZERO" in stand.failed["odd"]
    assert stand.read("odd").num_rows == 1  # as it was
    verdict = stand.game.lake.audit()
    assert (verdict.faults(), set(verdict.notes.values())) == ({}, {1})


class Killed(BaseException):
    """The end of the app."""


@pytest.mark.parametrize("point", ["replace_rows", "commit_rows", "begin_by_rows", "store"])
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_around_each_write_loses_and_doubles_nothing(
    spark: SparkSession, answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, after: bool
) -> None:
    stand, draw = (
        Stand(spark, answers, tmp_path, {"a.sql": FILES["hourly.sql"], "b.sql": FILES["each.sql"]}),
        random.Random(3),
    )
    if point != "begin_by_rows":
        stand.game.send(1, *events(draw, 10))
        stand.run()
    owner: Any = sql_tables if point == "store" else Tables
    write, calls = getattr(owner, point), [0]

    def die(*given: Any, **more: Any) -> Any:
        """At the second such write."""
        calls[0] += 1
        if calls[0] < 2:
            return write(*given, **more)
        if after:
            write(*given, **more)
        raise Killed

    stand.game.send(1, *events(draw, 10))
    for runner in stand.runners[: len(stand.gold)]:
        runner.call()
    with monkeypatch.context() as during:
        during.setattr(owner, point, die)
        with contextlib.suppress(Killed):
            for runner in stand.runners[len(stand.gold) :]:
                runner.call()
    stand.begin()
    stand.game.send(1, *events(draw, 10))
    stand.run()
    stand.check()
    assert {"hourly_bets", "totals", "high_bets_uno"} <= set(stand.lake.tables())


def test_a_run_that_takes_too_long_is_ended_and_one_at_the_end_of_the_app_is_no_failure(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    slow = "CREATE MATERIALIZED VIEW slow AS SELECT sum(id) AS s FROM range(1000000000000) WHERE hash(id) % 7 = 3"
    stand = Stand(spark, answers, tmp_path, {"a.sql": slow, "b.sql": FILES["hourly.sql"]}, sql_timeout_s=1.0)
    stand.game.send(1, *events(random.Random(1), 10))
    stand.run("slow")
    assert stand.failed["slow"].endswith("a.sql:1: the run took longer than tables.sql_timeout_s = 1")
    assert stand.read("totals")["n"].to_pylist() == [10]
    stand.begin()
    [runner] = [one for one in stand.runners if one.name == "sql.slow"]
    timer = threading.Timer(0.5, stand.stop.set)
    timer.start()
    runner.call()
    timer.join()
    assert stand.failed == {}
    assert "slow" not in stand.lake.tables()


def test_a_reader_never_sees_an_empty_or_an_older_table(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    stand, draw = Stand(spark, answers, tmp_path, FILES), random.Random(9)
    stand.game.send(1, *events(draw, 30), *events(draw, 30, "chess"))
    stand.run()
    seen: dict[str, list[int]] = {"board": [], "totals": []}
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            for table, found in seen.items():
                found.append(sum(stand.read(table)["n"].to_pylist()))

    reader = threading.Thread(target=poll)
    reader.start()
    for _ in range(3):
        stand.game.send(1, *events(draw, 30), *events(draw, 30, "chess"))
        stand.run()
    done.set()
    reader.join()
    assert all(found == sorted(found) and found[0] and len(set(found)) > 1 for found in seen.values())


CASES = Path(__file__).parents[1] / "cases"
PAIRS = re.findall(r"^([A-Z].*)\n    => (.*)$", (CASES / "wrong_statements.txt").read_text(), re.MULTILINE)
WRONG = dict(PAIRS) | {"\0": "Syntax error"}


def test_wrong_files_are_refused_with_file_line_and_remedy_and_stop_nothing_else(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    """Each in a file and a lake's start of its own with a good one would take an hour: names that are in several are
    made different."""
    files, expected = {"totals.sql": FILES["hourly.sql"]}, {}
    for number, (text, why) in enumerate(WRONG.items()):
        own = text.replace(" VIEW w ", f" VIEW w{number} ").replace("FROM w", f"FROM w{number}")
        files[f"w{number:02}.sql"] = f"-- one\n\n{own};"
        expected[f"w{number:02}.sql"] = why.replace("w reads w", f"w{number} reads w{number}")
    stand = Stand(spark, answers, tmp_path, files)
    (stand.folder / "bytes.sql").write_bytes(b"\xff\xfe")
    stand.begin()
    stand.game.send(1, *events(random.Random(1), 5))
    write_deltalake(str(stand.lake.path("stranger")), pa.table({"x": [1]}))
    for runner in stand.runners:
        runner.call()
    said: dict[str, str] = {}
    for where, why in [*stand.refused.items(), *(why.split(": ", 1) for why in stand.failed.values())]:
        said[Path(where.partition(":")[0]).name] = f"{where}: {why}"
    waits = {
        follower.statement.file: (one["waits"] or "") for follower in stand.sql for one in follower.describe().values()
    }
    said |= {Path(file).name: f"{file}:3: {why}" for file, why in waits.items() if why}
    wrong = {name: (said.get(name), why) for name, why in expected.items() if why not in said.get(name, "")}
    assert wrong == {}
    assert all(":3: " in said[name] for name in expected)
    assert "bytes.sql" in said
    stand.check()
    assert stand.read("totals").num_rows == 1
    assert set(stand.lake.tables()) & {f"w{number}" for number in range(len(WRONG))} == set()
