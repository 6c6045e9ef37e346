"""A real PostgreSQL follows a lake: rows, columns, comments, keys, and tables that come and go."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.followers.sinks import served, state
from spark_app.followers.sinks.process import SinkProcess
from spark_app.lake import sql_tables
from spark_app.page.lineage.rights import UserRights
from tests.support.event_lakes import take
from tests.support.lakes import SmallLake
from tests.support.postgres import Database, PostgresServer
from tests.support.projections import EVENTS, GROWN, UNO, renew
from tests.support.served import write_table
from tests.tiers import ROOT

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
GOLD, BOARD, LOG = "gold_uno_player_agg", "board", "suspects"
GOLD_OF_USERS = {"gold": {"aggregates": {"n": {"function": "count"}, "top": {"function": "max", "field": "ssn"}}}}
FORMS = ROOT / "tests/cases/denied_statements.sql"
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


@pytest.fixture
def database(server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> Database:
    found = Database(server, re.sub(r"\W+", "_", request.node.name).lower()[:60], tmp_path)
    for (name,) in found.run("SELECT rolname FROM pg_roles WHERE rolname IN ('ann', 'ben', 'carl')"):
        found.run(f"DROP OWNED BY {name} CASCADE")  # roles are of the whole server, and these of another lake
        found.run(f"DROP ROLE {name}")
    return found


class Served:
    """A lake that a schema of the server follows. Its tables are written as the app leaves them."""

    def __init__(self, root: Path, database: Database, users: dict[str, Any] | None = None, **serve: Any):
        self.database = database
        given = {"dsn_file": str(database.dsn), "schema_name": database.schema, **serve}
        self.lake = SmallLake(root / "lake", EVENTS, GROWN, serve=given, users=users or {}, **GOLD_OF_USERS)
        take(self.lake)

    def write(self, table: str, *rows: dict[str, Any], **options: Any) -> None:
        write_table(self.lake, table, *rows, **options)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        settings = self.lake.settings
        processes = [SinkProcess(name, settings, rights=UserRights(settings)) for name in settings.all_sinks]
        for one in processes:
            one.start()
        try:
            yield
        finally:
            for one in processes:
                one.stop()
            assert all(one.join(60) for one in processes)

    def reason(self, name: str = "serve") -> str:
        return str(state.read(self.lake.lake, name).get("reason", ""))

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, (state.read_all(self.lake.lake), self.tables())
            time.sleep(0.05)

    def rows(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.database.rows(table, columns) if table in self.tables() else []

    def day(self, table: str) -> str:
        """The partition of today."""
        return f"{table}_{datetime.now(UTC):%Y%m%d}"

    def tables(self) -> list[str]:
        found = "SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'p')"
        names = self.database.run(found.replace("{schema}", self.database.schema) + " AND NOT relispartition")
        return sorted(name for (name,) in names if not name.startswith("protolake_"))


def player(name: str | None, count: int, **more: Any) -> dict[str, Any]:
    return {"gamer_id": name, "n": count, "seen": NOW, **more}


def test_tables_have_rows_types_comments_and_indexes(database: Database, tmp_path: Path) -> None:
    lake = Served(tmp_path, database)
    large = pa.schema([("gamer_id", pa.string()), ("large", pa.decimal128(20, 0)), ("tags", pa.list_(pa.string()))])
    lake.write(GOLD, player("a", 1, own=[1]), player(None, 2, own=[]), description="Players of uno")
    handle = DeltaTable(str(lake.lake.lake.path(GOLD)))
    handle.alter.set_column_metadata("n", {"comment": "How many; it's 100 %"})
    lake.write(BOARD, {"gamer_id": "a", "large": 1 << 63, "tags": ["x"]}, key=("gamer_id",), schema=large)
    lake.write(LOG, {"n": 1}, {"n": 1})
    lake.write("gold_poker_player_agg", schema=large)
    with lake.running():
        lake.until(lambda: len(lake.tables()) == 4 and len(lake.rows(LOG)) == 2 and not lake.reason())
        assert sorted(lake.rows(GOLD), key=repr) == [("a", 1, NOW, [1]), (None, 2, NOW, [])]
        assert lake.rows(BOARD) == [("a", 1 << 63, ["x"])]
        assert database.types(BOARD) == {"gamer_id": "text", "large": "numeric(20,0)", "tags": "jsonb"}
        about = f"SELECT obj_description('{database.schema}.{GOLD}'::regclass), "
        about += f"col_description('{database.schema}.{GOLD}'::regclass, 2)"
        assert database.run(about) == [("Players of uno", "How many; it's 100 %")]
        indexes = f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{database.schema}' AND tablename = '{GOLD}'"
        found = " ".join(one for (one,) in database.run(indexes))
        assert "UNIQUE" in found
        assert "(gamer_id) NULLS NOT DISTINCT" in found
        assert "(seen)" in found
        # What changes later follows, row by row or as a whole, and a table that is empty then is, too.
        lake.write(GOLD, player("a", 3, own=[1]), player("b", 4, own=[2]))
        lake.write(LOG, {"n": 2}, {"n": 2}, {"n": 3})
        lake.write(BOARD, schema=large, key=("gamer_id",))
        lake.until(lambda: [one[:2] for one in lake.rows(GOLD)] == [("a", 3), ("b", 4)])
        lake.until(lambda: lake.rows(LOG) == [(2,), (2,), (3,)] and lake.rows(BOARD) == [])


def test_columns_keys_and_tables_come_change_and_go(database: Database, tmp_path: Path) -> None:
    lake = Served(tmp_path, database)
    lake.write(GOLD, player("a", 1), player("b", 2))
    lake.write(BOARD, {"a": 1, "b": "x", "n": 1}, {"a": 2, "b": "x", "n": 2}, key=("a",))
    with lake.running():
        lake.until(lambda: len(lake.rows(GOLD)) == len(lake.rows(BOARD)) == 2)
        lake.write(GOLD, {"gamer_id": "a", "n": 1.5, "level": "x"}, {"gamer_id": "b", "n": 2.0, "level": "y"})
        # By `b` the rows of before are no longer different, and one of another key has gone.
        lake.write(BOARD, {"a": 1, "b": "y", "n": 7}, {"a": 1, "b": "z", "n": 8}, key=("b",))
        lake.until(lambda: lake.rows(GOLD, "gamer_id, n") == [("a", 1.5), ("b", 2.0)])
        lake.until(lambda: "seen" not in database.types(GOLD))
        assert lake.rows(GOLD, "gamer_id, n, level") == [("a", 1.5, "x"), ("b", 2.0, "y")]
        lake.until(lambda: lake.rows(BOARD) == [(1, "y", 7), (1, "z", 8)])
        lake.write(BOARD, {"a": 1, "b": "y", "n": 7}, {"a": 1, "b": "y", "n": 7})
        lake.until(lambda: lake.rows(BOARD) == [(1, "y", 7), (1, "y", 7)])
        lake.lake.lake.storage.delete(sql_tables.key_of(lake.lake.lake, BOARD))
        lake.until(lambda: lake.tables() == [GOLD])
        lake.write(BOARD, {"other": "x"})
        lake.until(lambda: lake.rows(BOARD) == [("x",)])


def test_a_comment_alone_follows(database: Database, tmp_path: Path) -> None:
    lake = Served(tmp_path, database)
    lake.write(GOLD, player("a", 1))
    with lake.running():
        lake.until(lambda: lake.rows(GOLD))
        DeltaTable(str(lake.lake.lake.path(GOLD))).alter.set_table_description("New")
        about = f"SELECT obj_description('{database.schema}.{GOLD}'::regclass)"
        lake.until(lambda: database.run(about) == [("New",)])


def test_values_stay_right_when_names_and_types_change(database: Database, tmp_path: Path) -> None:
    lake = Served(tmp_path, database)
    lake.write(GOLD, {"gamer_id": "a", "n": 1.5}, {"gamer_id": "b", "n": 2.5})
    lake.write(BOARD, {"gamer_id": "a", "x": 1, "y": 2}, key=("gamer_id",))
    with lake.running():
        lake.until(lambda: len(lake.rows(GOLD)) == 2 and lake.rows(BOARD))
        lake.write(GOLD, {"gamer_id": "a", "n": 7}, {"gamer_id": "b", "n": 8})  # 1.5 is no bigint
        lake.write(BOARD, {"gamer_id": "a", "y": 1, "z": 2}, key=("gamer_id",))  # the same values by other names
        lake.until(lambda: lake.rows(GOLD, "gamer_id, n") == [("a", 7), ("b", 8)])
        assert database.types(GOLD)["n"] == "bigint"
        lake.until(lambda: list(database.types(BOARD)) == ["gamer_id", "y", "z"])
        lake.until(lambda: lake.rows(BOARD) == [("a", 1, 2)])


def test_a_table_that_is_dropped_on_a_quiet_lake_comes_back(database: Database, tmp_path: Path) -> None:
    """Its rows and its unit are those of before."""
    lake = Served(tmp_path, database, silver_days=7)
    lake.write(GOLD, player("a", 1), player("b", 2))
    lake.write(LOG, {"n": 1})
    for _ in range(2):
        with lake.running():
            lake.until(lambda: len(lake.rows(GOLD)) == 2 and lake.rows(LOG) == [(1,)] and lake.rows(UNO))
            assert len(lake.rows(UNO)) == 1
        database.run(f"DROP TABLE {{schema}}.{GOLD}, {{schema}}.{UNO}, {{schema}}.{LOG}")
    database.run("DROP SCHEMA {schema} CASCADE")
    database.run("CREATE SCHEMA {schema}")
    with lake.running():
        lake.until(lambda: len(lake.rows(GOLD)) == 2 and lake.rows(LOG) == [(1,)] and len(lake.rows(UNO)) == 1)


@pytest.mark.parametrize("what", ["schema", "table"])
def test_what_the_server_has_lost_is_sent_anew(database: Database, tmp_path: Path, what: str) -> None:
    lake = Served(tmp_path, database, silver_days=7)
    lake.write(GOLD, player("a", 1), player("b", 2))
    lake.write(LOG, {"n": 1})
    with lake.running():
        lake.until(lambda: len(lake.rows(GOLD)) == 2 and lake.rows(LOG) and lake.rows(UNO))
        if what == "schema":
            database.run("DROP SCHEMA {schema} CASCADE")
            database.run("CREATE SCHEMA {schema}")
        else:
            database.run(f"DROP TABLE {{schema}}.{GOLD}, {{schema}}.{UNO}")
        lake.write(GOLD, player("a", 1), player("b", 2), player("c", 3))
        take(lake.lake)
        lake.until(lambda: len(lake.rows(GOLD)) == 3 and lake.rows(LOG) == [(1,)])
        lake.until(lambda: lake.rows(UNO, "_offset") == [(0,), (2,)])


def test_tables_of_others_are_not_touched(database: Database, tmp_path: Path) -> None:
    database.run(f"CREATE TABLE {{schema}}.{LOG} AS SELECT 'mine' AS own")
    database.run("CREATE TABLE {schema}.customers AS SELECT 1 AS n")
    database.run(f"CREATE TABLE {{schema}}.{BOARD} AS SELECT 'mine' AS own")
    lake = Served(tmp_path, database)
    lake.write(BOARD, {"n": 2})  # planned before the others
    lake.write(GOLD, player("a", 1))
    lake.write(LOG, {"n": 1})
    with lake.running():
        lake.until(lambda: lake.rows(GOLD) and "suspects exists, and is not the lake's" in lake.reason())
        assert lake.rows(LOG) == lake.rows(BOARD) == [("mine",)]
        database.run(f"DROP TABLE {{schema}}.{BOARD}")
        lake.until(lambda: lake.rows(BOARD) == [(2,)])
        database.run(f"DROP TABLE {{schema}}.{LOG}")
        lake.until(lambda: lake.rows(LOG) == [(1,)] and not lake.reason())
        # A view of people on a column that goes, or on a table: that is said, and repeated until they remove it.
        database.run(f"CREATE VIEW {{schema}}.mine AS SELECT seen FROM {{schema}}.{GOLD}")
        lake.write(GOLD, {"gamer_id": "a", "n": 2})
        lake.until(lambda: "other objects depend on it" in lake.reason())
        lake.until(lambda: lake.rows(GOLD, "gamer_id, n") == [("a", 2)])
        database.run("DROP VIEW {schema}.mine")
        lake.until(lambda: list(database.types(GOLD)) == ["gamer_id", "n"] and not lake.reason())
    assert database.rows("customers") == [(1,)]


def test_a_schema_has_one_lake(database: Database, tmp_path: Path) -> None:
    first, second = Served(tmp_path / "1", database), Served(tmp_path / "2", database)
    first.write(GOLD, player("a", 1))
    second.write(GOLD, player("z", 9))
    with first.running():
        first.until(lambda: first.rows(GOLD))
    with second.running():
        second.until(lambda: "has the tables of another lake" in second.reason())
    assert [one[0] for one in first.rows(GOLD)] == ["a"]


def test_recent_silver_is_kept_by_days(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Served(tmp_path, database, silver_days=2)
    today = datetime.now(UTC).date()
    with lake.running():
        lake.until(lambda: lake.rows(UNO, "_offset") == [(0,)])
        take(lake.lake, decodable=GROWN)
        lake.until(lambda: lake.rows(UNO, "_offset") == [(0,), (2,)])
        assert "country" in database.types(UNO)
        assert lake.rows(UNO, "(_landed_at AT TIME ZONE 'UTC')::date")[0] == (today,)
        partition = lake.day(UNO)
        assert len(database.rows(partition)) == 2
        # Renewed rows replace those of before.
        renew(lake.lake, "uno")
        take(lake.lake)
        landed = pa.compute.max(DeltaTable(str(lake.lake.lake.path(UNO))).to_pyarrow_table()["_landed_at"]).as_py()
        lake.until(lambda: lake.rows(UNO, "_offset") == [(0,), (2,), (4,)])
        lake.until(lambda: max(lake.rows(UNO, "_landed_at")) == (landed,))

        class Later(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + timedelta(3)

        monkeypatch.setattr("spark_app.followers.sinks.postgres.datetime.datetime", Later)
        lake.until(lambda: lake.rows(UNO) == [])
    assert database.run(f"SELECT to_regclass('{database.schema}.{partition}')") == [(None,)]


def test_what_is_not_served_any_more_goes(database: Database, tmp_path: Path) -> None:
    lake = Served(tmp_path, database, silver_days=7)
    lake.write(GOLD, player("a", 1))
    with lake.running():
        lake.until(lambda: lake.tables() == [GOLD, UNO] and not lake.reason())
    lake.lake.reopen(serve={"silver_days": 0})
    with lake.running():
        lake.until(lambda: lake.tables() == [GOLD])


def user(folder: Path, name: str, *tables: str, hide: tuple[str, ...] = ()) -> dict[str, Any]:
    (folder / name).write_text(f"pass of {name}\n")
    return {name: {"password_file": str(folder / name), "tables": list(tables), "hide": list(hide)}}


def test_users_read_what_is_theirs_and_nothing_else(database: Database, tmp_path: Path) -> None:
    ann, ben = user(tmp_path, "ann", "gold_*", "silver_*", BOARD, hide=("ssn",)), user(tmp_path, "ben", "gold_uno_*")
    lake = Served(tmp_path, database, users=ann | ben, silver_days=7)
    lake.write(GOLD, {"gamer_id": "a", "n": 1, "top": "123"})
    lake.write(BOARD, {"gamer_id": "a"}, query="SELECT gamer_id FROM silver_uno_events", sources=(UNO,))
    lake.write(LOG, {"gamer_id": "a"}, query="SELECT ssn AS gamer_id FROM silver_uno_events", sources=(UNO,))
    with lake.running():
        lake.until(lambda: lake.rows(GOLD) and lake.rows(BOARD) and lake.rows(LOG) and lake.rows(UNO))
        lake.until(lambda: not lake.reason() and not lake.reason("serve_silver"))
        assert seen(database, "ann", f"SELECT gamer_id, n FROM {GOLD}") == [("a", 1)]
        assert seen(database, "ann", f"SELECT gamer_id FROM {UNO}") == [("g0",)]
        assert seen(database, "ann", f"SELECT * FROM {BOARD}") == [("a",)]
        assert seen(database, "ben", f"SELECT * FROM {GOLD}") == [("a", 1, "123")]
        denied = [("ann", f"SELECT {what} FROM {GOLD}") for what in ("*", "top", "max(top)", "g", "to_jsonb(g)")]
        denied += [("ann", f"SELECT ssn FROM {UNO}"), ("ann", f"TABLE {LOG}")]
        denied += [
            ("ann", f"COPY {GOLD} TO STDOUT"),
            ("ann", f"UPDATE {GOLD} SET n = 2"),
            ("ann", f"DROP TABLE {GOLD}"),
        ]
        denied += [("ben", f"TABLE {name}") for name in (UNO, BOARD, LOG, "protolake_calls", "protolake_tables")]
        denied += [("ben", f"CREATE TABLE {database.schema}.x (n int)"), ("ben", f"SELECT * FROM {lake.day(UNO)}")]
        for who, statement in denied:
            with pytest.raises(psycopg.Error, match=r"permission denied|must be owner"):
                seen(database, who, statement.replace(f"FROM {GOLD}", f"FROM {GOLD} g", 1))
        # A statement that comes to use a hidden field takes its table away before its rows are there.
        lake.write(
            BOARD, {"gamer_id": "123"}, query="SELECT left(ssn, 3) AS gamer_id FROM silver_uno_events", sources=(UNO,)
        )
        lake.until(lambda: lake.rows(BOARD) == [("123",)])
        with pytest.raises(psycopg.Error, match="permission denied"):
            seen(database, "ann", f"TABLE {BOARD}")
        # A new column is theirs who see all, and with a bump those of the others, too.
        take(lake.lake, decodable=GROWN)
        lake.until(lambda: "country" in database.types(UNO))
        lake.until(lambda: len(seen(database, "ann", f"SELECT country, _offset FROM {UNO}")) == 2)
    # Rights that become fewer do not wait for what cannot be changed.
    database.run(f"CREATE VIEW {{schema}}.mine AS SELECT n FROM {{schema}}.{GOLD}")
    lake.write(GOLD, {"gamer_id": "a", "top": "123"})
    lake.lake.reopen(users=user(tmp_path, "ann", "gold_*", hide=("ssn", "gamer_id")) | ben)
    with lake.running():
        lake.until(lambda: "other objects depend on it" in lake.reason())
        with pytest.raises(psycopg.Error, match="permission denied"):
            seen(database, "ann", f"SELECT gamer_id FROM {GOLD}")
    database.run("DROP VIEW {schema}.mine")
    lake.write(GOLD, {"gamer_id": "a", "n": 1, "top": "123"})
    lake.lake.reopen(users=user(tmp_path, "ann", "gold_*"))
    with lake.running():
        of_ann = f"SELECT has_table_privilege('ann', '{database.schema}.{GOLD}', 'SELECT')"
        lake.until(lambda: database.run(of_ann) == [(True,)])
        assert seen(database, "ann", f"TABLE {GOLD}") == [("a", 1, "123")]
        with pytest.raises(psycopg.Error, match=r"not permitted to log in|authentication failed"):
            seen(database, "ben", "SELECT 1")


def test_no_statement_shows_what_is_hidden(database: Database, tmp_path: Path) -> None:
    users = user(tmp_path, "ann", "gold_*", "silver_*", BOARD, hide=("ssn",))
    lake = Served(tmp_path, database, users=users, silver_days=7)
    lake.write(GOLD, {"gamer_id": "a", "n": 1, "top": "123"})
    lake.write(BOARD, {"top": "a"}, query="SELECT max(ssn) AS top FROM silver_uno_events", sources=(UNO,))
    lake.write(LOG, {"top": "a"})
    with lake.running():
        lake.until(lambda: all(map(lake.rows, (GOLD, BOARD, LOG, UNO))) and not lake.reason("serve_silver"))
        lake.until(lambda: not lake.reason())
        targets = [(GOLD, "top"), (UNO, "ssn"), (lake.day(UNO), "ssn"), (BOARD, "top"), (LOG, "top")]
        targets += [("protolake_calls", "key"), ("protolake_tables", "name"), ("protolake_lake", "server")]
        database.run("ANALYZE")
        tried = 0
        for table, column in targets:
            for form in FORMS.read_text().splitlines():
                tried += 1
                with pytest.raises(psycopg.Error, match=r"permission denied|must be (owner|able to)|not permitted"):
                    seen(database, "ann", form.format(t=table, c=column))
            statistics = f"SELECT * FROM pg_stats WHERE tablename = '{table}' AND attname = '{column}'"
            assert seen(database, "ann", statistics) == []
        assert tried >= 300
        assert seen(database, "ann", f"SELECT n FROM {GOLD}") == [(1,)]


def seen(database: Database, name: str, statement: str) -> list[tuple[Any, ...]]:
    with database.server.connect(name, f"pass of {name}") as connection:
        if statement.startswith("COPY"):
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                return list(copy.rows())
        done = connection.execute(statement)
        return done.fetchall() if done.description is not None else []


def test_roles_of_others_are_not_touched(database: Database, tmp_path: Path) -> None:
    database.run("CREATE ROLE carl LOGIN SUPERUSER PASSWORD 'his own'")
    users = user(tmp_path, "carl", "*") | {"dora": {"password_file": str(tmp_path / "none"), "tables": ["*"]}}
    lake = Served(tmp_path, database, users=users)
    lake.write(GOLD, {"gamer_id": "a", "n": 1, "top": "123"})
    with lake.running():
        lake.until(lambda: lake.rows(GOLD) and "users.carl: the server has a role carl" in lake.reason())
        assert "users.dora.password_file: cannot read" in lake.reason()
    with database.server.connect("carl", "his own"):
        pass


def test_the_queries_of_the_dashboard_run(database: Database, tmp_path: Path) -> None:
    """Over tables as the demo makes them; `tests/spark/test_spark_sql_tables.py` has their statements."""
    lake, hour = Served(tmp_path, database), datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    board = {"gamer_id": "a", "events": 3, "games": 1, "last_seen": hour}
    hours = {"game": "uno", "gamer_id": "a", "hour": hour, "events": 3, "first": hour, "last": hour}
    unified = {"game": "uno", "gamer_id": "a", "session_count": 3, "min_timestamp": hour, "max_timestamp": hour}
    lake.write("leader_board", board)
    lake.write("player_hours", hours)
    lake.write("unified_gold", unified)
    lake.write("suspects", {"gamer_id": "a", "game": "uno", "hour": hour, "events": 4000})
    lake.write("quarantined", {"cause": "frame_magic", "hour": hour, "records": 2})
    due = {
        "Leader board": [("a", 3, 1, hour)],
        "Sessions per hour": [(hour, "uno", 3)],
        "Players of each game": [("uno", 1)],
        "Suspects": [("a", "uno", hour, 4000)],
        "Quarantine": [(hour, "frame_magic", 2)],
    }
    panels = json.loads((ROOT / "docs/examples/bi/grafana.json").read_text())["panels"]
    queries = {panel["title"]: target["rawSql"] for panel in panels for target in panel["targets"]}
    with lake.running():
        lake.until(lambda: len(lake.tables()) == 5 and all(map(lake.rows, lake.tables())))
        for title, query in queries.items():
            found = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN now() - interval '1 day' AND now()", query)
            path = f"SET search_path = {database.schema}"
            with database.server.connect() as connection:
                connection.execute(path)
                assert connection.execute(found).fetchall() == due.pop(title), title
    assert due == {}


def test_shapes_compare_with_what_the_server_prints(database: Database, tmp_path: Path) -> None:
    """So a table that is right is not altered for ever."""
    kinds = [pa.decimal128(7, 3), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.int8(), pa.float32()]
    kinds += [pa.bool_(), pa.binary(), pa.list_(pa.int64()), pa.uint64(), pa.time64("us"), pa.string()]
    columns = ", ".join(f"c{n} {served.type_of(kind)}" for n, kind in enumerate(kinds))
    database.run(f"CREATE TABLE {{schema}}.t ({columns})")
    assert list(database.types("t").values()) == list(map(served.printed, kinds))
