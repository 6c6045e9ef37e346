"""Comments of tables as delta-rs shows them: which ones, from which version, and when they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from google.protobuf import message_factory

from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.tables import GoldTables
from spark_app.model.catalog import SchemaKey
from spark_app.model.columns import Path as Columns
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.schemas.descriptors import compile_schema
from spark_app.protobuf.schemas.registry import ROOT, Sources
from spark_app.tables import comments as table_comments
from spark_app.units.driver.open_lake import OpenLake
from tests.support.delta_log import read_rows, replay
from tests.support.frames import batch_of, frame
from tests.support.lakes import LocalUnits, SmallLake
from tests.support.protos import CAPS, PROTO3

SILVER = "silver_uno_events"
PLACE = "message Place {\n// The city.\nstring city = 1; }"
ONE = f"""// A move.
message Event {{
  // Which game.
  string game_name = 1;
  string gamer_id = 2;
  // Where.
  Place home = 3;
  // Stops.
  repeated Place stops = 4;
  // By name.
  map<string, Place> named = 5;
}}
{PLACE}"""
TWO = ONE.replace("A move", "A better move").replace("The city", "The town").replace("Where", "Home")
BET = "// More.\n  int64 bet = 6;\n  // By"
THREE = TWO.replace("string gamer_id", "// Who.\n  string gamer_id").replace("// By", BET)
INSIDE = ("home", "stops", "named")


class Commented(SmallLake):
    """A lake that knows schemas with their comments, as the resolver enters them."""

    def know(self, key: SchemaKey, text: str, version: int | None = None, strip: bool = False) -> None:
        """`strip`: as if the schema were registered in its compiled form."""
        compiled = compile_schema(Sources(texts={ROOT: PROTO3 + text}), CAPS)
        comments = {} if strip else compiled.comments
        ledger = self.opened.resolver.ledger
        ledger.add_decodable(key, compiled.descriptor_set, 0.0, "text", version, comments)
        ledger.save()

    def send(self, key: SchemaKey, name: str = "Event", index: tuple[int, ...] = (0,), **fields: Any) -> None:
        """A unit with one event."""
        pool, _ = load_files(self.opened.resolver.ledger.catalog().decodable[key].descriptor_set)
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        payload = message(**{"game_name": "uno", **fields}).SerializeToString()
        self.take(batch_of([frame(key, payload, index)], first=self.ends.get(0, 0), topic=self.topic))

    def reopen(self) -> None:
        """As after a restart."""
        self.opened = OpenLake.of(self.lake, self.settings)
        self.units = LocalUnits(self.opened)

    def table(self, name: str = SILVER) -> DeltaTable:
        return DeltaTable(str(self.lake.path(name)))

    def comments(self, name: str = SILVER) -> dict[Columns, str]:
        """All comments of a table, except those of the app's own columns."""
        table = self.table(name)
        found = dict(walk(table.schema().fields))
        found[()] = table.metadata().description
        return {path: text for path, text in found.items() if not path or path[0][0] != "_"}

    def operations(self, name: str = SILVER) -> list[str]:
        return [commit["operation"] for commit in reversed(self.table(name).history())]


def walk(fields: list[Field], at: Columns = ()) -> list[tuple[Columns, str]]:
    found = []
    for field in fields:
        path = (*at, field.name)
        if "comment" in field.metadata:
            found.append((path, field.metadata["comment"]))
        kind: Any = field.type
        kind = getattr(kind, "element_type", getattr(kind, "value_type", kind))
        found += walk(kind.fields, path) if hasattr(kind, "fields") else []
    return found


def of_one(city: str = "The city.", **changed: str) -> dict[Columns, str]:
    texts = {"game_name": "Which game.", "home": "Where.", "stops": "Stops.", "named": "By name."} | changed
    table: dict[Columns, str] = {(): texts.pop("table", "A move.")}
    return table | {(name,): text for name, text in texts.items()} | {(name, "city"): city for name in INSIDE}


OF_THREE = of_one("The town.", table="A better move.", home="Home.", gamer_id="Who.", bet="More.")


def test_a_new_table_has_the_comments_of_its_message_and_of_the_app(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    lake.send(1, gamer_id="a", stops=[{"city": "x"}], named={"n": {"city": "y"}})
    lake.send(1, gamer_id="b")
    assert lake.comments() == of_one()
    own = dict(walk(lake.table().schema().fields))
    assert {path[0] for path in own if path[0].startswith("_")} == {
        field.name for field in lake.table().schema().fields if field.name.startswith("_")
    }
    bronze = lake.table("bronze_events")
    assert all(field.metadata["comment"] for field in bronze.schema().fields)
    assert bronze.metadata().description
    assert pl.read_delta(str(lake.lake.path(SILVER)))["gamer_id"].sort().to_list() == ["a", "b"]
    cities = "select stops[1].city, named['n'].city from found where gamer_id = 'a'"
    with duckdb.connect() as connection:
        connection.register("found", lake.table().to_pyarrow_table())
        assert connection.execute(cities).fetchall() == [("x", "y")]
    assert read_rows(lake.lake.path(SILVER), replay(lake.lake.path(SILVER))).num_rows == 2
    assert lake.audit().faults() == {}


def test_every_column_of_the_apps_own_tables_has_a_comment(tmp_path: Path) -> None:
    rules = {"rich": {"check": "bet > 0", "action": "quarantine"}, "known": {"check": "bet < 9", "action": "drop"}}
    lake = Commented(tmp_path, expectations=rules)
    lake.know(1, THREE, 1)
    lake.opened.resolver.ledger.add_waiting(2, "not now", 0.0)
    lake.send(1, bet=0)
    lake.send(1, bet=9)
    lake.send(1, bet=5)
    lake.take(batch_of([frame(2, b""), b"{"], first=3, topic=lake.topic))
    for name in ("bronze_events", "quarantine_events", "dropped_events", "deferred_events", SILVER):
        table = lake.table(name)
        lacking = [field.name for field in table.schema().fields if "comment" not in field.metadata]
        assert (name, [column for column in lacking if name != SILVER or column[0] == "_"]) == (name, [])
        assert table.metadata().description


def test_new_columns_come_with_the_comments_of_the_newest_version_in_one_commit(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    lake.send(1)
    lake.know(3, THREE, 3)
    lake.send(3, bet=5)
    assert lake.comments() == OF_THREE
    assert lake.operations() == ["WRITE", "ADD COLUMN", "WRITE"]
    assert sorted(lake.table().to_pyarrow_table()["bet"].to_pylist(), key=str) == [5, None]
    assert lake.audit().faults() == {}


def test_another_comment_alone_makes_no_commit_and_comes_with_the_next_columns(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    lake.send(1)
    before = lake.table().metadata()
    lake.know(2, TWO, 2)
    lake.send(2)
    lake.reopen()
    lake.send(2)
    assert lake.operations() == ["WRITE"] * 3
    assert (lake.comments(), lake.table().metadata()) == (of_one(), before)
    lake.know(3, THREE, 3)
    lake.send(3)
    after = lake.table().metadata()
    assert lake.comments() == OF_THREE
    assert (after.id, after.created_time, after.configuration) == (before.id, before.created_time, before.configuration)
    lake.know(4, TWO.replace("Home", "Other home"), 4)
    lake.send(4, "Event", gamer_id="z")
    assert lake.operations() == [*["WRITE"] * 3, "ADD COLUMN", *["WRITE"] * 2]


@pytest.mark.parametrize("versions", [(1, 2, 3), (None, None, None)], ids=["by version", "by id"])
def test_an_older_version_that_arrives_later_changes_nothing(tmp_path: Path, versions: tuple[Any, Any, Any]) -> None:
    """But for a column that only it has."""
    old = "// Old.\nmessage Event {\n// Old.\nstring game_name = 1;\n// Only here.\nint64 gone = 9; }"
    lake = Commented(tmp_path)
    lake.know(20, ONE, versions[1])
    lake.know(30, THREE, versions[2])
    lake.send(30)
    lake.send(20)
    assert lake.comments() == OF_THREE
    lake.know(10, old, versions[0])
    lake.send(10, gone=1)
    assert lake.comments() == OF_THREE | {("gone",): "Only here."}


def test_a_higher_version_counts_before_a_higher_id(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(9, ONE, 1)
    lake.know(5, TWO, 2)
    lake.know(7, TWO.replace("A better move", "Of another subject"))
    lake.send(9)
    assert lake.comments()[()] == "A better move."


def test_a_schema_without_comments_leaves_those_that_are_there(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    lake.send(1)
    lake.know(3, THREE, 3, strip=True)
    lake.send(3, bet=1)
    assert lake.comments() == of_one()


def test_comments_and_properties_of_others_stay(tmp_path: Path) -> None:
    """Where the .proto files say nothing."""
    lake = Commented(tmp_path)
    lake.know(1, ONE.replace("// A move.", ""), 1)
    lake.send(1)
    lake.table().alter.set_column_metadata("gamer_id", {"comment": "Set by hand", "other": "1"})
    lake.table().alter.set_column_metadata("_offset", {"comment": "Mine"})
    lake.table().alter.set_table_description("By hand")
    lake.table().alter.set_table_properties({"delta.checkpointInterval": "7"})
    lake.reopen()
    lake.send(1)
    assert lake.operations()[-1] == "WRITE"
    lake.know(3, THREE.replace("// Who.", "").replace("// A better move.", ""), 3)
    lake.send(3)
    fields = {field.name: field.metadata for field in lake.table().schema().fields}
    assert fields["gamer_id"] == {"comment": "Set by hand", "other": "1"}
    assert fields["_offset"] == {"comment": "Mine"}
    assert lake.comments()["home",] == "Home."
    metadata = lake.table().metadata()
    assert (metadata.description, metadata.configuration["delta.checkpointInterval"]) == ("By hand", "7")


TYPES = """
// Placed.
message Placed { string game_name = 1;
// Total of placed.
int64 total = 2; }
// Shipped.
message Shipped { string game_name = 1;
// Total of shipped.
int64 total = 2;
// Carrier.
string carrier = 3; }"""


def test_message_types_that_share_a_table(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(1, TYPES, 1)
    lake.know(2, TYPES.partition("// Shipped")[0].replace("= 2;", "= 2; int64 more = 5;"), 2)
    lake.send(1, "Shipped", (1,))
    assert lake.comments() == {(): "Shipped.", ("total",): "Total of shipped.", ("carrier",): "Carrier."}
    lake.send(1, "Placed")
    assert lake.operations() == ["WRITE"] * 2
    lake.send(2, "Placed")
    assert lake.comments() == {(): "Placed.", ("total",): "Total of placed.", ("carrier",): "Carrier."}
    lake.know(3, TYPES.replace("= 2;", "= 2; int64 last = 6;"), 3)
    lake.send(3, "Placed")
    assert lake.comments() == {(): "Shipped.", ("total",): "Total of shipped.", ("carrier",): "Carrier."}
    fixed = lake.opened.admission.fixed("uno")
    assert fixed is not None
    assert [field.metadata for field in fixed] == [None] * len(fixed)


def test_schemas_that_contradict_each_other_keep_their_comments_apart(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(1, "// Number.\nmessage Event { string game_name = 1; int64 x = 2; }", 1)
    lake.know(2, "// Struct.\nmessage Event { string game_name = 1; P x = 2; } message P { bool b = 1; }", 2)
    lake.send(1)
    lake.send(2, game_name="poker")
    assert [lake.comments(name)[()] for name in (SILVER, "silver_poker_events")] == ["Number.", "Struct."]


def test_wrapped_events_have_the_comments_of_both_messages(tmp_path: Path) -> None:
    lake = Commented(tmp_path, wrapper={"payload": "body", "schema_id": "id"})
    fields = "string game_name = 1; bytes body = 2; int64 id = 3;\n// Who sent it.\nstring by = 4;"
    lake.know(1, f"// Wraps.\nmessage Wrap {{ {fields} }}", 1)
    lake.know(2, "// Inside.\nmessage Event {\n// Won.\nint64 won = 1; }", 1)
    lake.send(1, "Wrap", body=b"\x08\x05", id=2, by="x")
    assert lake.comments() == {(): "Inside.", ("won",): "Won."}
    [found] = [text for path, text in walk(lake.table().schema().fields) if path == ("_wrapper", "by")]
    assert found == "Who sent it."


def test_hostile_and_foreign_text_arrives_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'It\'s */ "quoted" \\n {x} 大小 🎲 𠀀 type":"timestamp_ntz" <b>'
    lake = Commented(tmp_path, lake={"checkpoint_every": 2})
    part = f"message P {{\n// {text}\nstring a = 1; }}"
    lake.know(1, f"// {text}\nmessage Event {{\n// {text}\nstring game_name = 1; P p = 2; }} {part}")
    for _ in range(5):
        lake.send(1)
    lake.opened.units.committer.close()
    assert list(lake.lake.path(SILVER).glob("_delta_log/*.checkpoint.parquet"))
    assert set(lake.comments().values()) == {text}
    lake.know(2, "message Event { string game_name = 1; P p = 2; int64 x = 3; } message P { string a = 1; }")
    lake.send(2, x=1)
    assert set(lake.comments().values()) == {text}
    assert pl.read_delta(str(lake.lake.path(SILVER)))["x"].to_list().count(1) == 1
    said = capsys.readouterr()
    assert "quoted" not in said.out + said.err


def test_a_table_has_not_more_text_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments of outer columns come first."""
    monkeypatch.setattr(table_comments, "MOST_OF_TABLE", len("A move.Which game.Where.Stops.By name.The city."))
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    lake.send(1)
    expected = of_one()
    assert lake.comments() == {path: expected[path] for path in expected if len(path) < 2} | {
        ("home", "city"): "The city."
    }


def test_gold_has_comments_of_the_app_also_after_all_rows_were_replaced(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    gold = GoldTables(lake.opened, GoldSpec.all_of(lake.settings)[0])
    moment = pa.array([0], pa.timestamp("us", "UTC"))
    part = pa.table({"gamer_id": ["a"], "session_count": [1], "min_timestamp": moment, "max_timestamp": moment})
    for step in range(2):
        gold.replace("uno", part, 1)
        assert lake.comments("gold_uno_player_agg") == {
            (): "One row per gamer_id, aggregated from silver",
            ("gamer_id",): "Groups the rows",
            ("session_count",): "Number of rows",
            ("min_timestamp",): "Smallest event_timestamp",
            ("max_timestamp",): "Largest event_timestamp",
        }, step
    assert gold.merge("uno", part, 2) == 1
    assert gold.compare("uno", pa.table(part).set_column(1, "session_count", pa.array([2])))["differing"] == 0


def test_a_projected_column_has_no_comment_of_the_message(tmp_path: Path) -> None:
    lake = Commented(tmp_path / "lake", silver={"columns": {"gamer_id": "md5(gamer_id)"}})
    lake.know(1, THREE)
    lake.send(1, gamer_id="a")
    fields = DeltaTable(str(lake.lake.path(SILVER))).schema().fields
    comments = {field.name: field.metadata.get("comment") for field in fields}
    assert (comments["gamer_id"], comments["game_name"]) == (None, "Which game.")
