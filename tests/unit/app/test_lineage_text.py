"""`protolake lineage`: what the command prints of a lake, its tables and columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_app.app.cli import entry
from spark_app.app.lineage_text import overview_lines, table_lines
from spark_app.model.errors import ConfigurationError, ContractError, UsageError
from spark_app.page.lineage import lake_graph
from spark_app.page.lineage.lake_graph import LakeGraph
from spark_app.settings.models import Settings
from tests.support.cost import least_cpu
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import GROWN, MASKED, POKER, UNO, event, lake_of
from tests.support.references import section, write
from tests.unit.page.test_lineage import GOLD, field, graph_of, shown, sources


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """A lake with rows of two definitions, a reference table and gold."""
    monkeypatch.chdir(tmp_path)
    lake = lake_of(tmp_path / "lake", MASKED | {"tables": {}})
    lake.take(batch_of([event("uno", "ann"), event("poker", "ann"), b"no frame"]))
    write(tmp_path, ("ann", "FR", 1))
    reference = section("players", prefix="player_")
    lake.settings = Settings(**{**dict(lake.settings), "reference": reference})
    columns = {"gamer_id": "hmac(gamer_id)", "place": "player_country || home.city"}
    aggregates = {
        "session_count": {"function": "count"},
        "min_timestamp": {"function": "min", "field": "_kafka_timestamp"},
        "max_timestamp": {"function": "max", "field": "latency_ms"},
    }
    lake.reopen(silver={"columns": columns, "drop": ["ssn", "large"]}, gold={"aggregates": aggregates})
    lake.take(batch_of([event("uno", "ann"), event("uno", "bob", GROWN, country="x")], first=3))
    lake.fold("_kafka_timestamp")
    return lake


def test_joined_columns_and_older_rows(joined: SmallLake) -> None:
    graph = graph_of(joined, UNO)
    assert sources(graph, "player_tier") == [
        ("reference:players", "tier", "join", 0, ()),
        field("gamer_id", 2, 7, 8, kind="lookup"),
    ]
    assert graph.nodes["reference:players"].details == {"path": "players", "key": "player"}
    assert {edge.by.definitions for edge in graph.into(UNO, "device")} == {(1,)}
    assert (graph.nodes[UNO].details["definitions"], graph.nodes[UNO].details["older_definitions"]) == ([3], [1])
    assert graph.nodes[UNO].details["dropped"].keys() == {"large", "ssn"}
    assert [source[0] for source in sources(graph, "place")] == [
        *("message:Event", "reference:players", "message:Event")
    ]
    assert sources(graph, "country") == [field("country", 8, 8)]
    with pytest.raises(UsageError, match="has no column ssn; the projection of its rows drops it"):
        shown(joined, f"{UNO}.ssn")
    graph_of(joined, GOLD)
    graph_of(joined, "quarantine_events")
    graph_of(joined, "bronze_events")


def test_the_text_of_a_table(joined: SmallLake) -> None:
    own = LakeGraph(joined.settings)
    lines = table_lines(own.of(UNO), UNO)
    assert "\n".join(lines) == TEXT
    assert max(map(len, lines)) <= 100


TEXT = """\
silver_uno_events: silver, 3 rows
  comes from
    topic      t
    bronze     bronze_events
    message    Event
    reference  players: players, by its column player
  goes to
    gold  gold_uno_player_agg
  side outputs
    quarantine  quarantine_events
  schemas
    7  Event, 2 rows
    8  Event, 1 row
  columns, in rows of definition 3
    game_name         Event.game_name = 1
    gamer_id          hmac(gamer_id) from Event.gamer_id = 2
    latency_ms        Event.latency_ms = 3
    device_id         Event.device_id = 4
    large             NULL in new rows
    home              Event.home = 7
    device            NULL in new rows
    _topic            bronze_events.topic
    _topic_id         bronze_events.topic_id
    _partition        bronze_events.partition
    _offset           bronze_events.offset
    _kafka_timestamp  bronze_events.timestamp
    _schema_id        bronze_events.schema_id
    _landed_at        bronze_events.landed_at
    _definition       made by the app
    player_country    players.country, looked up by gamer_id
    player_tier       players.tier, looked up by gamer_id
    place             player_country || home.city from Event.home = 7, players.country
    country           Event.country = 8 in schema 8
    picture           Event.picture = 9 in schema 8
  dropped
    large  Event.large
    ssn    Event.ssn
  columns that older rows have otherwise, of definition 1
    large   Event.large = 6
    device  left(device_id, 4) || '***' from Event.device_id = 4"""


def test_the_text_of_the_lake(joined: SmallLake) -> None:
    own = LakeGraph(joined.settings)
    assert overview_lines(own.overview(), own.ledger) == [
        "topics            t",
        "bronze            bronze_events",
        "schemas           2 decodable",
        "message types     1",
        "silver            2 tables",
        "gold              2 tables",
        "side outputs      quarantine_events",
        "reference tables  players",
        "",
        "silver_poker_events  Event -> gold_poker_player_agg",
        "silver_uno_events    Event -> gold_uno_player_agg",
        "",
        "`lineage TABLE` shows the columns of a table",
    ]


def test_the_text_of_a_column(joined: SmallLake) -> None:
    assert shown(joined, f"{UNO}.GAMER_ID") == [
        f"{UNO}.gamer_id",
        "comes from",
        "hmac(gamer_id) from Event.gamer_id = 2",
        "goes to",
        f"{GOLD}.gamer_id a row for each value",
    ]
    assert shown(joined, f"{GOLD}.gamer_id") == [
        f"{GOLD}.gamer_id",
        "comes from",
        f"{UNO}.gamer_id, a row for each value",
        "hmac(gamer_id) from Event.gamer_id = 2",
    ]
    assert shown(joined, "bronze_events.topic") == [
        "bronze_events.topic",
        "comes from",
        "t.topic",
        "goes to",
        f"{POKER}._topic the same",
        f"{UNO}._topic the same",
        "quarantine_events.topic the same",
    ]


def hostile(lake: SmallLake) -> None:
    lake.opened.resolver.ledger.set_versions({8: 1}, "a\x1b[31m\u202e")
    lake.opened.resolver.ledger.save()


def test_names_from_outside_are_escaped(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {"columns": {"device": "left(device_id,\n4)"}})
    hostile(lake)
    lake.take(batch_of([event("uno", "a", GROWN)]))
    lake.settings = Settings(
        **{**dict(lake.settings), "kafka": lake.settings.kafka.model_copy(update={"topic": "\x07"})}
    )
    own = LakeGraph(lake.settings)
    lines = [*table_lines(own.of(UNO), UNO), *overview_lines(own.overview(), own.ledger)]
    assert all(line.isprintable() for line in lines)
    assert any("v1 of a\\x1b[31m\\u202e" in line for line in lines)
    assert any("left(device_id,\\n4)" in line for line in lines)


def test_a_thousand_tables(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, GROWN, tables={"max_tables": 2000})
    lake.take(batch_of([event(f"game_{number}", "a", GROWN) for number in range(1000)]))

    def overview() -> None:
        own = LakeGraph(lake.settings)
        lines = overview_lines(own.overview(), own.ledger)
        assert (len(lines), lines[-3]) == (32, "and 980 more silver tables")

    def one(table: str) -> None:
        assert len(table_lines(LakeGraph(lake.settings).of(table), table)) < 50

    assert least_cpu(overview) < 2
    assert least_cpu(lambda: one("bronze_events")) < 2
    assert least_cpu(lambda: one("silver_game_7_events")) < 2


def run(lake: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", str(lake))
    return int(entry.app(["lineage", *arguments], prog_name="protolake", standalone_mode=False) or 0)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lake = SmallLake(tmp_path, GROWN)
    lake.take(batch_of([event("uno", "a", GROWN)]))
    lake.lake.lease.acquire(1)  # as the app does
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run(tmp_path, monkeypatch=monkeypatch) == 0
    assert f"{UNO}  Event" in capsys.readouterr().out.splitlines()
    assert run(tmp_path, UNO, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{UNO}: silver, 1 row"
    assert run(tmp_path, f"{UNO}.gamer_id", "--json", monkeypatch=monkeypatch) == 0
    assert json.loads(capsys.readouterr().out) == {
        "nodes": [
            {
                "node": UNO,
                "kind": "silver",
                "exists": True,
                "messages": ["Event"],
                "rows": 1,
                "topics": ["t"],
                "schemas": [{"schema": 8, "version": None, "subjects": {}, "rows": 1}],
                "definitions": [0],
                "older_definitions": [],
                "dropped": {},
            },
            {"node": "message:Event", "kind": "message", "schemas": [{"schema": 8, "version": None, "subjects": {}}]},
        ],
        "edges": [
            {
                "from": {"node": "message:Event", "column": "gamer_id"},
                "to": {"node": UNO, "column": "gamer_id"},
                "by": {"kind": "field", "number": 2, "message": "Event", "schemas": [8]},
            }
        ],
    }
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_damaged_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = SmallLake(tmp_path, GROWN)
    lake.take(batch_of([event("uno", "a", GROWN)]))
    (tmp_path / UNO / "_delta_log" / f"{0:020}.json").write_text("{")
    monkeypatch.setattr(lake_graph, "RETRY_S", 0)
    with pytest.raises(ContractError, match="cannot be opened"):
        run(tmp_path, UNO, monkeypatch=monkeypatch)
    assert run(tmp_path, monkeypatch=monkeypatch) == 0


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="no lake at"):
        run(tmp_path / "none", monkeypatch=monkeypatch)
    lake = SmallLake(tmp_path, GROWN)
    assert run(tmp_path, monkeypatch=monkeypatch) == 0
    lake.take(batch_of([event("uno", "a", GROWN)]))
    with pytest.raises(UsageError, match="has no table silver_unno_events; did you mean silver_uno"):
        run(tmp_path, "silver_unno_events", monkeypatch=monkeypatch)
    with pytest.raises(UsageError, match=r"has no table \\x1b; there are bronze_events, silver_uno_events"):
        run(tmp_path, "\x1b", monkeypatch=monkeypatch)
    for name in ("app", GOLD, "topic:t", "message:Event", "quarantine_events", ".x"):
        with pytest.raises(UsageError, match="has no table"):
            run(tmp_path, name, monkeypatch=monkeypatch)
    with pytest.raises(UsageError, match=f"{UNO} has no column gamer; did you mean gamer_id"):
        run(tmp_path, f"{UNO}.gamer", monkeypatch=monkeypatch)
