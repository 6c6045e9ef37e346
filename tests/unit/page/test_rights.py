"""What is hidden from users: columns that are made of hidden fields, whatever their names are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_app.lake import sql_tables
from spark_app.page.lineage.rights import Hidden, UserRights
from spark_app.settings.models import Settings
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, UNO, event, key_file
from tests.support.protos import PROTO3, compile_text, message_class
from tests.support.served import write_table

GOLD = "gold_uno_player_agg"
USERS = {"users": {"ann": {"password_file": "/p", "tables": ["gold_*", "board"], "hide": ["ssn"]}}}
SERVE = {"serve": {"dsn_file": "/d"}}


def lake_of(root: Path, **sections: Any) -> SmallLake:
    hmac = {"hmac_key_file": key_file(root / "secrets")}
    silver = hmac | {"columns": {"short": "left(ssn, 3)", "hashed": "hmac(ssn)", "id": "gamer_id || '!'"}}
    gold = {"aggregates": {"n": {"function": "count"}, "worst": {"function": "max", "field": "latency_ms"}}}
    lake = SmallLake(root / "lake", EVENTS, **{"silver": silver, "gold": gold, **sections})
    lake.units.check_expectations()
    lake.take(batch_of([event("uno", "a", ssn="123-45", home={"city": "Köln", "street": "Dom"})]))
    return lake


def hidden(lake: SmallLake, table: str, *fields: str) -> set[str] | None:
    found = Hidden(lake.settings, fields).of(table)
    return None if found is None else set(found)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((), set[str]()),
        (("SSN",), {"ssn", "short", "hashed"}),
        (("street",), {"home"}),
        (("gamer_id",), {"gamer_id", "id"}),
        (("short",), {"short"}),
        (("home", "latency_ms"), {"home", "latency_ms"}),
    ],
)
def test_columns_of_silver_follow_their_fields(tmp_path: Path, fields: tuple[str, ...], expected: set[str]) -> None:
    assert hidden(lake_of(tmp_path), UNO, *fields) == expected


def test_a_field_of_a_struct_hides_what_is_made_of_it(tmp_path: Path) -> None:
    silver = {"columns": {"where": "lower(home.street)", "text": "home::VARCHAR"}}
    lake = lake_of(tmp_path, silver=silver)
    assert hidden(lake, UNO, "street") == {"home", "where", "text"}


def test_what_is_text_of_messages_is_hidden(tmp_path: Path) -> None:
    """A message in itself is JSON text, in which any of its fields may be."""
    made = compile_text(
        PROTO3
        + "message Event { string game_name = 1; string gamer_id = 2; Player player = 3; }\n"
        + "message Player { string email = 1; Player referrer = 2; string tier = 3; }",
        schema_id=9,
    )
    lake = SmallLake(tmp_path / "lake", made)
    kind = message_class(made, "Event")
    sent = kind(game_name="uno", gamer_id="a", player={"email": "x@y", "referrer": {"email": "z"}})
    lake.take(batch_of([frame(made.key, sent.SerializeToString())]))
    assert hidden(lake, UNO, "email") == {"player"}
    assert hidden(lake, UNO, "other") == {"player"}
    assert hidden(lake, UNO) == set()


def test_columns_of_another_time_stay_hidden(tmp_path: Path) -> None:
    """A column was made of the field once; today's settings make it of another one."""
    lake = lake_of(tmp_path)
    lake.reopen(silver={"columns": {"short": "left(device_id, 3)"}, "hmac_key_file": key_file(tmp_path / "secrets")})
    lake.take(batch_of([event("uno", "b")], first=1))
    assert "short" in (hidden(lake, UNO, "ssn") or ())
    assert "short" in (hidden(lake, UNO, "device_id") or ())


def test_gold_hides_what_it_computes_of_hidden_columns(tmp_path: Path) -> None:
    own = {
        "first": {"aggregates": {"first_ssn": {"function": "min", "field": "short"}, "n": {"function": "count"}}},
        "rich": {"where": "hashed <> ''", "aggregates": {"n": {"function": "count"}}},
        "by_ssn": {"key": ["ssn"], "aggregates": {"n": {"function": "count"}}},
    }
    lake = lake_of(tmp_path, gold={"tables": own})
    write_table(lake, GOLD, {"gamer_id": "a", "session_count": 1, "odd": 2})
    write_table(lake, "gold_uno_first", {"gamer_id": "a", "first_ssn": "123", "n": 1})
    write_table(lake, "gold_uno_rich", {"gamer_id": "a", "n": 1})
    write_table(lake, "gold_uno_by_ssn", {"ssn": "123-45", "n": 1})
    assert hidden(lake, GOLD, "ssn") == {"odd"}  # nobody knows what that is made of
    assert hidden(lake, GOLD) == set()
    assert hidden(lake, "gold_uno_first", "ssn") == {"first_ssn"}
    assert hidden(lake, "gold_uno_rich", "ssn") is None
    assert hidden(lake, "gold_uno_rich", "street") == set()
    assert hidden(lake, "gold_uno_by_ssn", "ssn") == {"ssn"}


@pytest.mark.parametrize(
    ("query", "is_seen"),
    [
        ("SELECT gamer_id, count(*) AS n FROM silver_uno_events GROUP BY ALL", True),
        ("SELECT gamer_id, count( * ) AS n FROM silver_uno_events GROUP BY ALL", True),
        ("SELECT gamer_id, max(short) AS n FROM silver_uno_events GROUP BY ALL", False),
        ("SELECT gamer_id FROM silver_uno_events WHERE `SSN` LIKE '1%'", False),
        ("SELECT * FROM silver_uno_events", False),
        ("SELECT struct(e.*) AS n FROM silver_uno_events e", False),
        ("SELECT a.gamer_id FROM silver_uno_events a NATURAL JOIN silver_uno_events b", False),
        ("TABLE silver_uno_events", False),
        ("FROM silver_uno_events |> WHERE latency_ms > 1", False),
        ("FROM silver_uno_events", False),
        ("SELECT c FROM silver_uno_events AS e(a, b, c)", False),
        ("SELECT c FROM silver_uno_events e (a, b, c)", False),
        ("SELECT c FROM (SELECT gamer_id FROM silver_uno_events) AS e(c)", False),
        ("SELECT a.gamer_id FROM silver_uno_events a JOIN silver_uno_events b USING (gamer_id)", True),
        ("SELECT a.gamer_id FROM silver_uno_events a JOIN silver_uno_events b ON (a.gamer_id = b.gamer_id)", True),
        (
            "SELECT CAST(sum(latency_ms) AS DECIMAL(10, 2)), count(*) FILTER (WHERE gamer_id IN ('a')) FROM silver_all",
            True,
        ),
        ("SELECT gamer_id, rank() OVER (PARTITION BY gamer_id ORDER BY latency_ms) AS n FROM silver_uno_events", True),
    ],
)
def test_a_table_by_sql_is_seen_if_it_mentions_nothing_hidden(tmp_path: Path, query: str, is_seen: bool) -> None:
    lake = lake_of(tmp_path)
    write_table(lake, "board", {"gamer_id": "a", "n": "1"}, query=query, sources=(UNO,))
    write_table(lake, "top", {"n": "1"}, query="SELECT n FROM board", sources=("board",))
    assert hidden(lake, "board", "ssn") == (set() if is_seen else None)
    assert hidden(lake, "top", "ssn") == (set() if is_seen else None)


def test_a_table_whose_statement_changes_is_hidden_meanwhile(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    write_table(lake, "board", {"gamer_id": "a"}, query="SELECT gamer_id FROM silver_uno_events", sources=(UNO,))
    board = sql_tables.read(lake.lake, "board")
    assert board is not None
    assert hidden(lake, "board", "ssn") == set()
    sql_tables.store(lake.lake, replace(board, is_changing=True))
    assert hidden(lake, "board", "ssn") is None
    assert hidden(lake, "board") == set()


def test_tables_with_bytes_are_hidden_from_who_may_not_see_all(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    for table in ("bronze_events", "quarantine_events", "pipeline_events", "sink_rejects", "unknown"):
        assert hidden(lake, table, "ssn") is None
        assert hidden(lake, table) == set()


def test_users_see_their_tables(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, **USERS, **SERVE)
    write_table(lake, GOLD, {"gamer_id": "a", "n": 1, "worst": 2})
    rights = UserRights(lake.settings)
    assert rights.of(GOLD, ["gamer_id", "n", "worst"]) == {"ann": ("gamer_id", "n", "worst")}
    assert rights.of(UNO, ["gamer_id", "ssn"]) == {"ann": ()}


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("pg_ann", {}, "users.pg_ann"),
        ("public", {}, "users.public"),
        ("Ann", {}, "users.Ann"),
        ("ann", {"tables": []}, "users.ann.tables"),
        ("ann", {"tables": ["x; DROP"]}, "is no pattern"),
        ("ann", {"hide": ["home.street"]}, "is no name of a field"),
        ("ann", {"password": "x"}, "users.ann.password"),
        ("ann", {"password_file": ""}, "needs password_file for PostgreSQL, token_file"),
        ("ann", {"tables": ["gold_*"], "may": ["replay"]}, "who does not see everything"),
        ("ann", {"hide": ["ssn"], "may": ["query", "decide"]}, "who does not see everything"),
        ("ann", {"may": ["erase"]}, "users.ann.may"),
    ],
)
def test_users_that_cannot_be_are_refused(name: str, values: dict[str, Any], why: str) -> None:
    given: Any = {name: {"password_file": "/p", "tables": ["*"], **values}}
    with pytest.raises(ValueError, match=why):
        Settings(users=given, serve={"dsn_file": "/d"})  # type: ignore[arg-type]


def test_users_need_a_server() -> None:
    with pytest.raises(ValueError, match=r"set serve\.dsn_file"):
        Settings(users={"ann": {"password_file": "/p", "tables": ["*"]}})  # type: ignore[dict-item]
