"""The view Table: what its jobs find in lakes, compared with what other readers find."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames
from spark_app.page import job as jobs
from spark_app.page.metrics.reading import Reading
from spark_app.page.observations import Observations, pause_text, troubled_tables
from spark_app.page.views.query.view import examples
from spark_app.page.views.table.lineage import versions_text
from spark_app.page.views.table.view import Layer, figures, snippets, trouble
from spark_app.settings.watching import Page
from tests.support.answers import Answers
from tests.support.following import follow_events
from tests.support.frames import batch_of
from tests.support.games import Game
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, MASKED, UNO, event, lake_of
from tests.support.statuses import write_status

FIRST = "int32 score = 3; bytes picture = 4;"
SECOND = FIRST + " string country = 5; repeated string tags = 6;"
RULES = {
    "small": {"check": "score < 8", "action": "warn"},
    "known": {"check": "gamer_id <> ''", "action": "quarantine", "tables": ["uno"]},
    "other": {"check": "false", "action": "drop", "tables": ["poker"]},
}
SECRET = "Okapi"
LAYOUT = TableNames()


def do(lake: SmallLake, job: str, table: str) -> dict[str, Any]:
    """The answer, as JSON hands it on."""
    question = {"job": job, "arguments": {"table": table}, "settings": lake.settings.model_dump_json()}
    found: dict[str, Any] = json.loads(json.dumps(jobs.do(question), allow_nan=False))
    return found


def grown(answers: Answers, root: Path) -> Game:
    """Six units of ten rows, the last two of a later version; each has two rows that fail `small` and one without a
    gamer, and the events say so."""
    game = Game(answers, root, FIRST, SECOND, expectations=RULES)
    events = follow_events(game.lake.opened)
    for unit in range(6):
        rows = [{"game_name": "uno", "gamer_id": f"g{n}", "score": n, "picture": "AAEC"} for n in range(10)]
        rows[0]["gamer_id"] = ""
        if unit > 3:
            rows = [row | {"country": "<b>FI</b>", "tags": ["a", "b"]} for row in rows]
        game.send(1 if unit < 4 else 2, *rows)
        events.call()
    events.flush()
    return game


def test_a_silver_table_is_shown_as_other_readers_find_it(answers: Answers, tmp_path: Path) -> None:
    game = grown(answers, tmp_path / "lake")
    found = do(game.lake, "table", UNO)
    silver = game.silver
    assert [one["name"] for one in found["columns"]] == [field.name for field in silver.schema().fields]
    types = {one["name"]: one["type"] for one in found["columns"]}
    assert (types["score"], types["picture"], types["tags"], types["_offset"]) == (
        "bigint",
        "binary",
        "array<string>",
        "bigint",
    )
    assert {one["name"]: one["comment"] for one in found["columns"]}["_topic"] == "Kafka topic of the record"
    assert found["comment"] == silver.metadata().description
    assert found["version"] == silver.version()
    assert (found["files"]["count"], found["files"]["rows"]) == (len(silver.file_uris()), 54)
    assert found["files"]["bytes"] == sum(Path(uri).stat().st_size for uri in silver.file_uris())
    assert [one["version"] for one in found["commits"]] == list(range(silver.version(), -1, -1))
    told = [one["what"] for one in found["commits"]]
    assert told == [
        *(f"appends rows of unit {unit}" for unit in (6, 5)),
        "adds columns or comments",
        *(f"appends rows of unit {unit}" for unit in (4, 3, 2, 1)),
    ]


def test_the_newest_rows_are_read_from_the_newest_files_only(answers: Answers, tmp_path: Path) -> None:
    game = grown(answers, tmp_path / "lake")
    rows = do(game.lake, "table", UNO)["rows"]
    newest = pl.read_delta(str(game.lake.lake.path(UNO))).sort("_landed_at", "_offset", descending=True).head(20)
    place = {name: number for number, name in enumerate(rows["columns"])}
    assert rows["moment"] == "_landed_at"
    assert [row[place["_offset"]] for row in rows["rows"]] == newest["_offset"].to_list()
    assert [row[place["score"]] for row in rows["rows"]] == newest["score"].to_list()
    assert {row[place["picture"]] for row in rows["rows"]} == {"000102"}
    assert {(row[place["country"]], row[place["tags"]]) for row in rows["rows"][:18]} == {("<b>FI</b>", '["a", "b"]')}
    assert {(row[place["country"]], row[place["tags"]]) for row in rows["rows"][18:]} == {(None, None)}
    for path in sorted((tmp_path / "lake" / UNO).glob("part-00000000000[12]*")):
        path.unlink()
    assert do(game.lake, "table", UNO)["rows"] == rows


def test_expectations_have_the_pass_rates_of_the_events(answers: Answers, tmp_path: Path) -> None:
    game = grown(answers, tmp_path / "lake")
    found = do(game.lake, "table", UNO)
    assert [(one["name"], one["check"], one["action"]) for one in found["rules"]] == [
        ("known", "gamer_id <> ''", "quarantine"),
        ("small", "score < 8", "warn"),
    ]
    counted = {name: [sum(one[part] for one in points) for part in (1, 2)] for name, points in found["rates"].items()}
    assert counted == {"known": [54, 6], "small": [48, 12]}
    for points in found["rates"].values():
        assert all(abs(at - time.time()) < 600 for at, _, _ in points)
    assert do(game.lake, "table", "bronze_events")["rules"] == []


def test_the_examples_of_queries_find_the_same(answers: Answers, tmp_path: Path) -> None:
    game = grown(answers, tmp_path / "lake")
    found = {}
    for name, sql in examples(game.lake.lake.tables(), LAYOUT).items():
        question = {"job": "query", "arguments": {"sql": sql}, "settings": game.lake.settings.model_dump_json()}
        found[name] = jobs.do(question)["rows"]
    assert found["Failing expectations"] == [["small", UNO, 12], ["known", UNO, 6]]
    assert sum(rows for _, rows in found["Rows per minute"]) == 54
    assert {level for _, level, _ in found["Newest warnings"]} == {"WARN"}


def test_events_that_cannot_be_read_leave_the_rest(answers: Answers, tmp_path: Path) -> None:
    game = grown(answers, tmp_path / "lake")
    before = do(game.lake, "table", UNO)
    for path in (tmp_path / "lake" / "pipeline_events").glob("*.parquet"):
        path.unlink()
    after = do(game.lake, "table", UNO)
    assert "failed" in after["rates"]
    assert {name: part for name, part in after.items() if name != "rates"} == {
        name: part for name, part in before.items() if name != "rates"
    }
    (tmp_path / "lake" / UNO / "_delta_log" / "00000000000000000000.json").write_text("{")
    assert "failed" in do(game.lake, "table", UNO)


def test_columns_have_their_fields_and_versions(answers: Answers, tmp_path: Path) -> None:
    game = grown(answers, tmp_path / "lake")
    found = do(game.lake, "lineage", UNO)
    columns = found["columns"]
    assert found["messages"] == ["Event"]
    assert columns["score"] == {"made": "Event.score = 3", "numbers": "3", "versions": "all"}
    assert columns["country"]["numbers"] == "5"
    assert columns["country"]["versions"] == "since schema 12"
    assert columns["_offset"] == {"made": "bronze_events.offset", "numbers": "", "versions": ""}
    game.lake.fold("_landed_at")
    gold = do(game.lake, "lineage", "gold_uno_player_agg")["columns"]
    assert gold["session_count"]["made"] == f"count of the rows of {UNO}"
    assert gold["gamer_id"]["made"] == f"{UNO}.gamer_id, a row for each value"
    assert do(game.lake, "lineage", "pipeline_events")["columns"] == {}
    assert set(do(game.lake, "lineage", "bronze_events")["columns"]) == {
        field.name for field in DeltaTable(str(game.lake.lake.path("bronze_events"))).schema().fields
    }


def test_projected_columns_show_their_expression_without_reading_rows(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", MASKED)
    lake.take(batch_of([event("uno", "g", device_id="device")]))
    found = do(lake, "lineage", UNO)["columns"]
    assert found["gamer_id"]["made"] == "hmac(gamer_id) from Event.gamer_id = 2"
    assert "latency_ms < 50" in found["fast"]["made"]
    for path in (tmp_path / "lake" / UNO).glob("*.parquet"):
        path.unlink()
    assert do(lake, "lineage", UNO)["columns"] == found


@pytest.mark.parametrize(
    ("has", "text"),
    [
        ([1, 1, 1], "all"),
        ([0, 1, 1], "since v2"),
        ([0, 0, 1], "since v3"),
        ([1, 1, 0], "v1 to v2"),
        ([1, 0, 1], "v1, v3"),
        ([0, 1, 0], "v2"),
        ([0, 0, 0], ""),
    ],
)
def test_versions_are_named_in_short(has: list[int], text: str) -> None:
    assert versions_text(["v1", "v2", "v3"], [bool(one) for one in has]) == text


def test_many_versions_are_counted() -> None:
    assert versions_text([f"v{n}" for n in range(20)], [n % 2 == 0 for n in range(20)]).endswith("v10 and 4 more")
    assert versions_text(["v1"], [True]) == "v1"


def test_hidden_rows_do_not_leave_the_job(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", MASKED)
    lake.take(batch_of([event("uno", SECRET), SECRET.encode()]))
    for table in ("bronze_events", "quarantine_events"):
        found = do(lake, "table", table)
        assert "page.clear_text = true shows them" in found["rows"]["hidden"]
        assert SECRET.encode().hex() not in json.dumps(found)
    assert do(lake, "table", UNO)["rows"]["rows"]
    lake.settings = lake.settings.model_copy(update={"page": Page(clear_text=True)})
    for table in ("bronze_events", "quarantine_events"):
        assert SECRET.encode().hex() in json.dumps(do(lake, "table", table))


@pytest.mark.parametrize("name", ["", ".", "..", "../lake", "_protolake", "silver_nope_events", "/etc", "a/b", "\x00"])
def test_an_unknown_table_is_unknown(tmp_path: Path, name: str) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS)
    lake.take(batch_of([event("uno", "g")]))
    assert do(lake, "table", name) == {"unknown": True}
    assert do(lake, "lineage", name)["columns"] == {}


def test_values_of_any_kind_are_shown(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS)
    lake.take(batch_of([event("uno", "x" * 5000, large=(1 << 64) - 1, home={"city": "<i>", "street": "s"}), None]))
    rows = do(lake, "table", UNO)["rows"]
    [row] = [dict(zip(rows["columns"], one, strict=True)) for one in rows["rows"]]
    assert row["gamer_id"] == "x" * 500 + "…"
    assert row["large"] == str((1 << 64) - 1)
    assert json.loads(row["home"]) == {"city": "<i>", "street": "s"}
    assert row["latency_ms"] is None
    bronze = do(lake, "table", "bronze_events")["rows"]
    values = [dict(zip(bronze["columns"], one, strict=True))["value"] for one in bronze["rows"]]
    assert values[0] is None
    assert str(values[1]).endswith("…")
    assert base64.b16decode(str(values[1])[:10].upper()) == b"\x00\x00\x00\x00\x07"


def test_a_table_without_rows_has_none(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS)
    follow_events(lake.opened)
    found = do(lake, "table", "pipeline_events")
    assert (found["rows"]["rows"], found["files"]["count"], found["files"]["written_at"]) == ([], 0, None)


def test_the_texts_for_other_tools_read_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = SmallLake(tmp_path / "it's" / "lake", EVENTS)
    lake.take(batch_of([event("uno", "gamer-17")]))
    several = snippets(lake.lake.storage.uri(UNO))
    assert list(several) == ["Spark", "Polars", "DuckDB"]
    for name in ("Polars", "DuckDB"):
        exec(several[name], {})
        assert "gamer-17" in capsys.readouterr().out
    compile(several["Spark"], "Spark", "exec")


def test_each_table_has_its_layer_and_neighbours() -> None:
    assert Layer.of(LAYOUT, UNO) == Layer("silver", "uno")
    assert Layer.of(LAYOUT, "gold_uno_player_agg") == Layer("gold", "uno", "gold_uno_player_agg")
    assert Layer.of(LAYOUT, "deferred_events") == Layer("deferred")
    assert Layer.of(LAYOUT, "other") == Layer("table", "", "other")
    assert Layer("silver", "uno").neighbours(LAYOUT) == (["bronze_events"], ["gold_uno_player_agg"])
    assert Layer("gold", "uno", "gold_uno_player_agg").neighbours(LAYOUT) == ([UNO], [])


def test_a_table_in_trouble_names_the_command_that_helps(lake: Lake) -> None:
    pause = {"rows": 17, "rule": "small", "record": "t/0@12"}
    gold = {"gold_uno_player_agg": "no space"}
    tables = {"uno": {"silver": 9, "gold": 3}}
    made = write_status(lake, at=time.time(), paused={"uno": pause}, gold_failed=gold)
    (lake.root / lake.status).write_text(json.dumps(made | {"tables": tables}))
    observed = Observations(lake)
    silver, failed = Layer("silver", "uno"), Layer("gold", "uno", "gold_uno_player_agg")
    assert figures(observed, LAYOUT, silver)["rows"] == "9"
    assert figures(observed, LAYOUT, failed) == {"rows": "3", "gold": "failed"}
    assert "17 rows wait: the record t/0@12 fails the expectation small" in trouble(observed, silver, UNO)
    assert "./scripts/protolake resume uno --failing quarantine" in trouble(observed, silver, UNO)
    assert "no space" in trouble(observed, failed, "gold_uno_player_agg")
    assert trouble(observed, Layer("silver", "poker"), "silver_poker_events") == ""
    assert troubled_tables(observed.newest, LAYOUT) == {"uno": "paused"}
    assert "are let in" in pause_text(pause | {"let_in": True})
    assert troubled_tables(Reading({"gold_failed": gold}, 0.0), LAYOUT) == {"uno": "gold failed"}
    (lake.root / lake.status).write_text('{"paused": [1], "tables": {"uno": 3}, "gold_failed": null}')
    observed = Observations(lake)
    assert figures(observed, LAYOUT, silver)["rows"] == "-"
    assert trouble(observed, silver, UNO) == ""
