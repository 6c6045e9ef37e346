"""`protolake lineage`: where tables and columns come from and go to, compared with the tables that are there."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from spark_app.app.lineage_text import column_lines, table_lines
from spark_app.lake.lake import Lake
from spark_app.page.lineage.graph import Endpoint, Graph
from spark_app.page.lineage.lake_graph import LakeGraph
from spark_app.settings.models import Settings
from tests.support import golden_lake
from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.projections import GROWN, POKER, UNO, event, lake_of
from tests.support.protos import PROTO3, compile_text, message_class
from tests.unit.protobuf.test_policies_lake import Game

GOLD = "gold_uno_player_agg"
Source = tuple[str, str, str, int, tuple[int | str, ...]]


def graph_of(lake: SmallLake, table: str) -> Graph:
    """The graph of a table. Each column of the real tables in it has a source, and no other column is named."""
    graph = LakeGraph(lake.settings).of(table)
    for name in {table, "bronze_events"} if table != "bronze_events" else {table}:
        assert named(graph, name) == real(lake, name)
    assert not [edge for edge in graph.edges if edge.by.kind == "unknown"]
    ends = [end for edge in graph.edges for end in (edge.origin, edge.target)]
    assert {end.node for end in ends} <= graph.nodes.keys()
    for name in {end.node for end in ends if end.column} & set(lake.lake.tables()):
        assert {end.column.partition(".")[0] for end in ends if end.node == name} - {""} <= real(lake, name)
    return graph


def named(graph: Graph, table: str) -> set[str]:
    return {edge.target.column.partition(".")[0] for edge in graph.edges if edge.target.node == table} - {""}


def real(lake: SmallLake, table: str) -> set[str]:
    return {field.name for field in DeltaTable(str(lake.lake.path(table))).schema().fields}


def sources(graph: Graph, column: str, table: str = UNO) -> list[Source]:
    """What a column is made of: node, column, how, number of the field, schemas."""
    return [
        (edge.origin.node, edge.origin.column, edge.by.kind, edge.by.number, edge.by.schemas)
        for edge in graph.edges
        if edge.target == Endpoint(table, column)
    ]


def field(column: str, number: int, *schemas: int, kind: str = "field", message: str = "Event") -> Source:
    return f"message:{message}", column, kind, number, schemas


def shown(lake: SmallLake, table: str) -> list[str]:
    """The text of a table or a column, line by line, with single spaces."""
    own = LakeGraph(lake.settings)
    name, _, column = table.partition(".")
    graph = own.of(name)
    if not column:
        return [" ".join(line.split()) for line in table_lines(graph, name)]
    endpoint = own.column_of(graph, name, column)
    return [" ".join(line.split()) for line in column_lines(graph.around(endpoint), endpoint)]


def prove(game: Game, graph: Graph) -> None:
    """Each value of a column is that of the field that the graph names for the schema of its row, and Google's parser
    finds it in the record; without a field it is NULL."""
    table = pl.read_delta(str(game.lake.lake.path(UNO))).sort("_offset")
    bronze = pl.read_delta(str(game.lake.lake.path("bronze_events"))).sort("offset")
    sent = {row["offset"]: row["value"] for row in bronze.to_dicts()}
    for row in table.to_dicts():
        key = row["_schema_id"]
        message = message_class(compile_text(game.subject.texts[key - 11]), "Event").FromString(
            sent[row["_offset"]][6:]
        )
        for column in [name for name in table.columns if not name.startswith("_")]:
            fields = [edge.origin.column for edge in graph.into(UNO, column) if key in edge.by.schemas]
            assert len(fields) <= 1
            assert row[column] == (getattr(message, fields[0]) if fields else None)


@pytest.mark.parametrize("policy", ["alias", "new_column", "warn"])
@pytest.mark.parametrize(
    "versions",
    [
        ("int32 a = 3; int32 b = 4;", "int32 b = 3; int32 a = 4;"),
        ("int32 a = 3;", "int32 b = 3;", "int32 a = 3;", "int32 b = 3; int32 c = 4;"),
        ("int32 a = 3;", "string a = 3;", "int32 a = 3;"),
        ("string a = 3;", "string a = 9;"),
        ("int32 score = 3;", "int32 Score = 3;"),
    ],
)
def test_values_are_those_of_the_fields(
    answers: Answers, tmp_path: Path, versions: tuple[str, ...], policy: str
) -> None:
    others = dict.fromkeys(("swap", "incompatible", "renumber"), "new_column" if policy == "alias" else policy)
    game = Game(answers, tmp_path, *versions, rename=policy, **others)
    for number, text in enumerate(versions, 1):
        fields = re.findall(r"(int32|string) (\w+)", text)
        values = {
            name: 10 * number + at if kind == "int32" else f"{number}{at}" for at, (kind, name) in enumerate(fields)
        }
        game.send(number, values)
    prove(game, graph_of(game.lake, UNO))


def test_an_alias_names_both_fields(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, "int32 score = 3;", "int32 points = 3;", rename="alias")
    game.send(1, {"score": 1})
    game.send(2, {"points": 2})
    graph = graph_of(game.lake, UNO)
    assert sources(graph, "score") == [field("score", 3, 11), field("points", 3, 12)]
    assert sources(graph, "gamer_id") == [field("gamer_id", 2, 11, 12)]
    assert graph.nodes[UNO].details["schemas"] == [
        {"schema": 11, "version": None, "subjects": {"t-value": 1}, "rows": 1},
        {"schema": 12, "version": None, "subjects": {"t-value": 2}, "rows": 1},
    ]
    assert "score Event.score = 3 in schema 11; Event.points = 3 in schema 12" in shown(game.lake, UNO)
    assert "12 v2 of t-value, Event, 1 row" in shown(game.lake, UNO)


def test_a_new_column_names_the_field_of_the_old_name(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, "string a = 3;", "repeated string a = 3;")
    game.send(1, {"a": "x"})
    game.send(2, {"a": ["x"]})
    graph = graph_of(game.lake, UNO)
    assert sources(graph, "a") == [field("a", 3, 11)]
    assert sources(graph, "a_2") == [field("a", 3, 12)]


def test_a_column_that_no_table_has_yet_is_not_named(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, "int32 score = 3;", "int32 score = 3; string note = 4;")
    game.send(1, {"score": 1})
    game.lake.opened.resolver.resolve_new([12])
    game.lake.opened.resolver.ledger.save()
    graph = graph_of(game.lake, UNO)
    assert sources(graph, "note") == []
    assert sources(graph, "score") == [field("score", 3, 11, 12)]
    assert "12 v2 of t-value, Event, 0 rows" in shown(game.lake, UNO)


def test_fields_inside_of_structs(answers: Answers, tmp_path: Path) -> None:
    text = (
        "message Event {{ string game_name = 1; string gamer_id = 2; repeated Point at = 3;"
        " map<string, Point> by = 4; }}"
        " message Point {{ int64 {} = 1; }}"
    )
    game = Game(answers, tmp_path, text.format("x"), text.format("z"), rename="alias")
    game.send(1, {"at": [{"x": 1}]})
    game.send(2, {"at": [{"z": 1}], "by": {"a": {"z": 2}}})
    graph = graph_of(game.lake, UNO)
    assert sources(graph, "at") == [field("at", 3, 11, 12)]
    assert sources(graph, "at.x") == [field("at.x", 1, 11), field("at.z", 1, 12)]
    assert sources(graph, "by.x") == [field("by.x", 1, 11), field("by.z", 1, 12)]
    assert {edge.by.message for edge in graph.into(UNO, "at")} == {"Event", "Point"}
    assert "at.x Event.at.x = 1 in schema 11; Event.at.z = 1 in schema 12" in shown(game.lake, UNO)
    assert "at.x: Event.at.z = 1 in schema 12" in shown(game.lake, f"{UNO}.at")


def test_projected_columns(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    lake.take(batch_of([event("uno", "a"), event("poker", "b")]))
    graph = graph_of(lake, UNO)
    assert sources(graph, "device") == [field("device_id", 4, 7, 8, kind="expression")]
    assert sources(graph, "fast") == [field("latency_ms", 3, 7, 8, kind="expression")]
    [hashed] = graph.into(UNO, "gamer_id")
    assert (hashed.by.hashed, hashed.by.sql, hashed.by.reads) == (True, "hmac(gamer_id)", "gamer_id")
    assert graph.nodes[UNO].details["dropped"] == {
        "device_id": [{"node": "message:Event", "column": "device_id"}],
        "ssn": [{"node": "message:Event", "column": "ssn"}],
    }
    assert "device_id" in named(graph_of(lake, POKER), POKER)


def test_a_renamed_column_and_one_of_no_column(tmp_path: Path) -> None:
    lake = lake_of(
        tmp_path / "lake",
        {"columns": {"player": "gamer_id", "one": "1", "at": "_offset + _partition"}, "drop": ["gamer_id"]},
    )
    lake.take(batch_of([event("uno", "a")]))
    graph = graph_of(lake, UNO)
    assert sources(graph, "player") == [field("gamer_id", 2, 7, 8, kind="expression")]
    assert sources(graph, "one") == [("app", "", "expression", 0, ())]
    assert [source[:3] for source in sources(graph, "at")] == [
        ("bronze_events", "offset", "expression"),
        ("bronze_events", "partition", "expression"),
    ]
    assert "at _offset + _partition from bronze_events.offset, bronze_events.partition" in shown(lake, UNO)


def test_a_part_of_a_struct_in_an_expression(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {"columns": {"home": "struct_pack(city := home.city)"}})
    lake.take(batch_of([event("uno", "a")]))
    graph = graph_of(lake, UNO)
    assert sources(graph, "home") == [field("home", 7, 7, 8, kind="expression")]
    assert sources(graph, "home.city") == []


def test_a_table_whose_rows_have_no_definition_any_more(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {})
    lake.take(batch_of([event("uno", "a")]))
    lake.reopen(silver={"columns": {"gamer_id": "upper(gamer_id)"}})
    lake.take(batch_of([event("uno", "a")], first=1))
    lake.reopen(silver={"columns": {}})
    lake.take(batch_of([event("uno", "a")], first=2))
    graph = graph_of(lake, UNO)
    assert (graph.nodes[UNO].details["definitions"], graph.nodes[UNO].details["older_definitions"]) == ([0], [1])
    assert "columns, in rows of no definition" in shown(lake, UNO)
    assert "gamer_id upper(gamer_id) from Event.gamer_id = 2" in shown(lake, UNO)


def test_gold_by_its_functions(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {})
    lake.take(batch_of([event("uno", "a")]))
    lake.fold("_kafka_timestamp")
    lake.reopen(event={"time": "_kafka_timestamp"})
    graph = graph_of(lake, GOLD)
    made = {edge.target.column: (edge.origin, edge.by.kind, edge.by.function) for edge in graph.into(GOLD, "")} | {
        edge.target.column: (edge.origin, edge.by.kind, edge.by.function)
        for edge in graph.edges
        if edge.target.node == GOLD and edge.target.column
    }
    assert made["gamer_id"] == (Endpoint(UNO, "gamer_id"), "key", "")
    assert made["session_count"] == (Endpoint(UNO), "aggregate", "count")
    assert made["min_timestamp"] == (Endpoint(UNO, "_kafka_timestamp"), "aggregate", "min")
    lake.reopen(event={"time": "nowhere"})
    assert f"min_timestamp min of nowhere, which {UNO} has not got" in shown(lake, GOLD)
    lake.reopen(gold={"aggregates": {"n": {"function": "count"}}})
    assert any(line.startswith("min_timestamp unknown: ") for line in shown(lake, GOLD))


def test_wrapped_messages(tmp_path: Path) -> None:
    outer = compile_text(PROTO3 + "message Outer { bytes body = 1; int32 id = 2; string region = 3; }", schema_id=5)
    lake = SmallLake(tmp_path, outer, GROWN, wrapper={"payload": "body", "schema_id": "id"})
    payload = message_class(GROWN, "Event")(game_name="uno", gamer_id="a").SerializeToString()
    wrapped = message_class(outer, "Outer")(body=payload, id=8, region="eu").SerializeToString()
    lake.take(batch_of([frame(5, wrapped)]))
    graph = graph_of(lake, UNO)
    assert sources(graph, "gamer_id") == [field("gamer_id", 2, 8)]
    assert sources(graph, "_wrapper") == [field("", 0, 5, kind="wrapper", message="Outer")]
    assert sources(graph, "_wrapper.region") == [field("region", 3, 5, message="Outer")]
    assert "_wrapper the other fields of Outer" in shown(lake, UNO)
    assert "message Outer, Event" in shown(lake, UNO)


def test_tables_by_message_and_schemas_by_guid(tmp_path: Path) -> None:
    guid = "4a0c1e7e-9d2f-4d56-a8d1-0c2b6f2f9a11"
    text = PROTO3 + "message Bet { string gamer_id = 1; } message Win { string gamer_id = 1; int64 sum = 2; }"
    lake = SmallLake(tmp_path, compile_text(text, schema_id=guid), event={"route_by": "message"})
    kinds = [message_class(compile_text(text), name) for name in ("Bet", "Win")]
    payloads = [kind(gamer_id="a").SerializeToString() for kind in kinds]
    lake.take(batch_of([frame(guid, payload, (number,)) for number, payload in enumerate(payloads)]))
    graph = graph_of(lake, "silver_win_events")
    assert sources(graph, "sum", "silver_win_events") == [field("sum", 2, guid, message="Win")]
    assert [source[:3] for source in sources(graph, "_schema_guid", "silver_win_events")] == [
        ("bronze_events", "schema_guid", "record")
    ]
    assert f"{guid} Win, 1 row" in shown(lake, "silver_win_events")


def test_a_table_of_several_messages(tmp_path: Path) -> None:
    """Rows of a message whose columns clash with those of the others land nowhere."""
    text = (
        "message Bet { string game_name = 1; int64 score = 2; }"
        " message Win { int64 score = 1; string game_name = 2; }"
        " message Zap { string game_name = 1; int64 Score = 2; }"
    )
    texts = compile_text(PROTO3 + text)
    lake = SmallLake(tmp_path, texts, silver={"columns": {"twice": "2 * SCORE"}})
    kinds = [message_class(texts, name) for name in ("Bet", "Win", "Zap")]
    payloads = [kind(game_name="uno").SerializeToString() for kind in kinds]
    lake.take(batch_of([frame(1, payload, (number,)) for number, payload in enumerate(payloads)]))
    graph = graph_of(lake, UNO)
    assert sources(graph, "score") == [field("score", 2, 1, message="Bet"), field("score", 1, 1, message="Win")]
    assert [source[:2] for source in sources(graph, "twice")] == [("message:Bet", "score"), ("message:Win", "score")]
    assert "score Bet.score = 2; Win.score = 1" in shown(lake, UNO)


def test_messages_of_one_name_that_contradict_each_other(tmp_path: Path) -> None:
    other = compile_text(PROTO3 + "message Event { string game_name = 1; bytes gamer_id = 2; }", schema_id=9)
    lake = SmallLake(tmp_path, GROWN, other)
    kind = message_class(other, "Event")
    lake.take(batch_of([event("uno", "a", GROWN), frame(9, kind(game_name="chess").SerializeToString())]))
    table = "silver_chess_events"
    assert sources(graph_of(lake, table), "gamer_id", table) == [field("gamer_id", 2, 9, message="Event#2")]
    assert sources(graph_of(lake, UNO), "gamer_id") == [field("gamer_id", 2, 8)]


def test_several_topics(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, GROWN)
    lake.take(batch_of([event("uno", "a", GROWN), event("uno", "a", GROWN)], topic=["t", "u"]))
    lake.opened.units.manifests.begin({"t": {}, "u": {}}, None)
    graph = graph_of(lake, UNO)
    assert graph.nodes[UNO].details["topics"] == ["t", "u"]
    assert [source[0] for source in sources(graph, "key", "bronze_events")] == ["topic:t", "topic:u"]


def test_all_side_outputs(tmp_path: Path) -> None:
    rules = {
        "known": {"check": "gamer_id <> ''", "action": "drop"},
        "old": {"check": "large < 9", "action": "quarantine"},
    }
    lake = SmallLake(tmp_path, GROWN, expectations=rules)
    lake.take(batch_of([event("uno", "a", GROWN), event("uno", "", GROWN), event("uno", "a", GROWN, large=9)]))
    for table in ("dropped_events", "quarantine_events"):
        graph = graph_of(lake, table)
        assert sources(graph, "rules", table) == [("app", "", "made", 0, ())]
        assert [source[:3] for source in sources(graph, "offset", table)] == [("bronze_events", "offset", "record")]
    assert "dropped dropped_events" in shown(lake, UNO)


def test_a_lake_of_an_earlier_release(tmp_path: Path) -> None:
    """Its gold was made by Spark, with the functions of the settings by default."""
    path = golden_lake.unpack(tmp_path)
    settings = Settings(lake={"path": str(path)})  # type: ignore[arg-type]
    for table in Lake(path).tables():
        graph = LakeGraph(settings).of(table)
        assert named(graph, table) == {field.name for field in DeltaTable(str(path / table)).schema().fields}
        assert not [edge for edge in graph.edges if edge.by.kind == "unknown"]
        assert all(line.isprintable() and len(line) <= 100 for line in table_lines(graph, table))
