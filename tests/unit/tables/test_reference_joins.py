"""Columns of reference tables in silver: what rows get, what the audit proves, and which settings are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.audit.check_silver import GONE
from spark_app.lake.files.reference_files import key_of
from spark_app.lake.lake import Lake
from spark_app.model.definitions import Join, Projection
from spark_app.model.errors import ConfigurationError
from spark_app.settings import config
from spark_app.tables.definitions import number, projections_of
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN, POKER, UNO, columns, event, faults, hashed, lake_of, rows
from tests.support.references import section, write


def joined(folder: Path, silver: dict[str, Any] | None = None, path: str = "", **settings: Any) -> SmallLake:
    """A lake with players as its reference table, after the check of its start."""
    path = path or write(folder, ("ann", "FR", 1), ("bob", None, 2))
    return lake_of(folder / "lake", silver or {}, reference=section(path, **settings))


def test_rows_get_the_columns_of_their_player(tmp_path: Path) -> None:
    lake = joined(tmp_path)
    players = ["bob", "cy", "ann", "", "bob", "Ann"]
    lake.take(batch_of([event("uno", player) for player in players] + [event("poker", "ann")]))
    assert rows(lake, UNO, "_offset", "gamer_id", "country", "tier") == [
        (0, "bob", None, 2),
        (1, "cy", None, None),
        (2, "ann", "FR", 1),
        (3, "", None, None),
        (4, "bob", None, 2),
        (5, "Ann", None, None),
    ]
    assert rows(lake, POKER, "gamer_id", "country", "tier") == [("ann", "FR", 1)]
    assert columns(lake, UNO)[:9] == [
        *("game_name", "gamer_id", "latency_ms", "device_id", "ssn", "large", "home", "country", "tier")
    ]
    assert faults(lake) == {}


def test_other_engines_find_rows_by_joined_columns(tmp_path: Path) -> None:
    path = write(tmp_path, *((f"g{n}", f"c{n % 7}", n % 11) for n in range(1000)))
    lake = joined(tmp_path, path=path)
    lake.take(batch_of([event("uno", f"g{n * 13 % 1000}", latency_ms=n) for n in range(500)]))
    expected = sorted(n for n in range(500) if (n * 13 % 1000) % 7 == 3 and (n * 13 % 1000) % 11 > 8)
    table = str(lake.lake.path(UNO))
    frame = pl.scan_delta(table).filter((pl.col("country") == "c3") & (pl.col("tier") > 8)).collect()
    assert sorted(frame["latency_ms"]) == expected
    silver = DeltaTable(table).to_pyarrow_dataset()  # noqa: F841
    found = duckdb.sql("SELECT latency_ms FROM silver WHERE country = 'c3' AND tier > 8 ORDER BY 1").fetchall()
    assert [one for (one,) in found] == expected


def test_expressions_see_joined_columns(tmp_path: Path) -> None:
    silver = {
        "columns": {"country": "lower(country)", "place": "gamer_id || '/' || country"},
        "tables": {"uno": {"drop": ["tier"]}, "poker": {"columns": {"gamer_id": "hmac(gamer_id)"}}},
    }
    lake = joined(tmp_path, silver)
    lake.take(batch_of([event("uno", "ann"), event("poker", "ann"), event("poker", "bob")]))
    assert rows(lake, UNO, "country", "place") == [("fr", "ann/FR")]
    assert rows(lake, POKER, "gamer_id", "country", "place", "tier") == [
        (hashed("ann"), "fr", "ann/FR", 1),
        (hashed("bob"), None, None, 2),
    ]
    assert "tier" not in columns(lake, UNO)
    assert faults(lake) == {}


def test_expectations_judge_the_row_as_it_was_sent(tmp_path: Path) -> None:
    rules = {"no_country": {"check": "country = ''", "action": "quarantine"}}
    path = write(tmp_path, ("ann", "FR", 1))
    lake = lake_of(tmp_path / "lake", {}, reference=section(path), expectations=rules)
    lake.take(batch_of([event("uno", "ann", GROWN), event("uno", "ann", GROWN, country="IT")]))
    assert rows(lake, UNO, "_offset", "country") == [(0, "FR")]
    assert faults(lake) == {}


def test_a_new_version_is_another_definition(tmp_path: Path) -> None:
    lake = joined(tmp_path, {"drop": ["ssn"]})
    lake.take(batch_of([event("uno", "ann")]))
    write(tmp_path, ("ann", "IT", 9))
    lake.take(batch_of([event("uno", "ann")], first=1))
    write(tmp_path, ("ann", "FR", 1), ("bob", None, 2))
    lake.take(batch_of([event("uno", "ann")], first=2))
    found = rows(lake, UNO, "country", "tier", "_definition")
    assert [one[:2] for one in found] == [("FR", 1), ("IT", 9), ("FR", 1)]
    assert found[0][2] == found[2][2] != found[1][2]
    assert faults(lake) == {}


def test_a_version_costs_little_in_the_definitions(tmp_path: Path) -> None:
    lake = joined(tmp_path, {"columns": {"note": "'" + "x" * 1000 + "'"}})
    for tier in range(20):
        write(tmp_path, ("ann", "IT", tier))
        lake.take(batch_of([event("uno", "ann")], first=tier))
    stored = json.loads(lake.lake.storage.get(lake.lake.definitions))
    assert len(stored) == 21
    assert len(json.dumps(stored)) < 1000 + 21 * 200
    assert stored["21"]["as"] == 1
    assert projections_of(lake.lake)[21].columns == projections_of(lake.lake)[1].columns


def test_a_definition_of_a_reference_alone_is_read_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    projection = Projection(joins=(Join("players", "gamer_id", ("tier",), "aa"),))
    found = number(lake, (), projection)
    assert projections_of(lake) == {found.number: projection}


def test_the_audit_names_a_joined_value_that_is_wrong(tmp_path: Path) -> None:
    lake = joined(tmp_path, {"columns": {"place": "gamer_id || country"}})
    lake.take(batch_of([event("uno", "ann"), event("uno", "bob")]))
    table = pl.read_delta(str(lake.lake.path(UNO)))
    for change in ({"tier": pl.lit(3)}, {"country": pl.lit(None, pl.String)}, {"place": pl.lit("annIT")}):
        wrong = table.with_columns(
            **{n: pl.when(pl.col("_offset") == 0).then(v).otherwise(n) for n, v in change.items()}
        )
        write_deltalake(str(lake.lake.path(UNO)), wrong.to_arrow(), mode="overwrite")
        assert faults(lake) == {("altered", UNO): 1}, change


def test_the_audit_says_which_rows_it_cannot_prove(tmp_path: Path) -> None:
    lake = joined(tmp_path, {"columns": {"place": "gamer_id || country"}}, keep_versions=2)
    for tier in range(3):
        write(tmp_path, ("ann", "IT", tier))
        lake.take(batch_of([event("uno", "ann"), event("uno", "bob")], first=2 * tier))
    verdict = lake.audit()
    assert {key for key in verdict.counts if key[0] != "gold"} == set()
    assert verdict.notes[GONE] == 6  # country, tier and place of two rows


def test_an_altered_copy_proves_nothing(tmp_path: Path) -> None:
    lake = joined(tmp_path)
    lake.take(batch_of([event("uno", "ann")]))
    [key] = lake.lake.storage.list("_protolake/references/players")
    lake.lake.storage.replace(key, lake.lake.storage.get(key).replace(b"FR", b"IT"))
    assert lake.audit().notes[GONE] == 2


def test_a_copy_of_a_bucket_is_known_by_its_digest(tmp_path: Path) -> None:
    lake = joined(tmp_path)
    lake.take(batch_of([event("uno", "ann")]))
    [key] = lake.lake.storage.list("_protolake/references/players")
    content = key.rpartition("/")[2].removesuffix(".arrow")
    lake.lake.storage.replace(key_of("players", f"{content}-3"), lake.lake.storage.get(key))
    definitions = lake.lake.storage.get(lake.lake.definitions)
    lake.lake.storage.replace(lake.lake.definitions, definitions.replace(content.encode(), f"{content}-3".encode()))
    assert (faults(lake), lake.audit().notes[GONE]) == ({}, 0)


def test_a_joined_column_replaces_that_of_the_message(tmp_path: Path) -> None:
    lake = joined(tmp_path, {"columns": {"both": "country || '!'"}})
    lake.take(batch_of([event("uno", "ann"), event("uno", "ann", GROWN, country="DE"), event("uno", "x", GROWN)]))
    assert rows(lake, UNO, "country", "both") == [("FR", "FR!"), ("FR", "FR!"), (None, None)]
    assert faults(lake) == {}


def test_tables_without_the_looked_up_column_stay_as_they_were(tmp_path: Path) -> None:
    path = write(tmp_path, ("DE", "x", 1))
    lake = lake_of(tmp_path / "lake", {}, reference=section(path, on="country", columns=["tier"]))
    lake.take(batch_of([event("uno", "a"), event("poker", "a", GROWN, country="DE")]))
    assert "tier" in columns(lake, POKER)
    assert rows(lake, POKER, "tier") == [(1,)]
    assert faults(lake) == {}


def test_whole_numbers_are_looked_up(tmp_path: Path) -> None:
    path = write(tmp_path, (7, "FR", 1), (2**63 - 1, "IT", 2), key=pa.int64())
    for on, name in (("latency_ms", "a"), ("large", "b")):
        lake = lake_of(tmp_path / name / "lake", {}, reference=section(path, on=on))
        values = [{on: 7}, {on: 8}, {}, {on: 2**63 - 1}]
        lake.take(batch_of([event("uno", "a", **one) for one in values]))
        assert rows(lake, UNO, "tier") == [(1,), (None,), (None,), (2,)]
        assert faults(lake) == {}


def test_what_is_about_the_record_is_looked_up(tmp_path: Path) -> None:
    path = write(tmp_path, ("t", "FR", 1))
    lake = lake_of(tmp_path / "lake", {}, reference=section(path, on="_topic", prefix="topic_"))
    lake.take(batch_of([event("uno", "a")]))
    assert rows(lake, UNO, "topic_country", "topic_tier") == [("FR", 1)]
    assert faults(lake) == {}


def test_the_column_stays_when_the_reference_table_goes(tmp_path: Path) -> None:
    joined(tmp_path).take(batch_of([event("uno", "ann")]))
    lake = lake_of(tmp_path / "lake", {})
    lake.ends = {0: 1}
    lake.take(batch_of([event("uno", "ann")], first=1))
    assert rows(lake, UNO, "country", "tier") == [("FR", 1), (None, None)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"on": "gamer"}, "reference.players.on: no column has the name gamer; did you mean gamer_id"),
        (
            {"on": "latency_ms"},
            "reference.players.on: latency_ms is int64, but the key of the reference table is string",
        ),
        ({"on": "home"}, "reference.players.on: home is struct<"),
        ({"key": "name"}, "it has no column name; it has player, country, tier"),
        ({"columns": ["level"]}, "it has no column level"),
    ],
)
def test_a_start_refuses_what_cannot_be_joined(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = write(tmp_path, ("ann", "FR", 1))
    with pytest.raises(ConfigurationError) as refused:
        lake_of(tmp_path / "lake", {}, reference=section(path, **change))
    assert said in str(refused.value)
    assert str(refused.value).startswith("reference.players")


def test_a_start_refuses_a_column_that_the_table_has_with_another_type(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {})
    lake.take(batch_of([event("uno", "ann", GROWN, country="DE")]))
    path = write(tmp_path, ("ann", "FR", 1))
    settings = section(path, columns=["tier"], prefix="latency_")
    lake_of(tmp_path / "lake", {}, reference=settings)
    swapped = str(tmp_path / "swapped")
    write_deltalake(swapped, pa.table({"player": ["ann"], "country": [7], "tier": ["x"]}))
    with pytest.raises(ConfigurationError) as refused:
        lake_of(tmp_path / "lake", {}, reference=section(swapped))
    assert str(refused.value) == (
        "reference.players: country is of the type int64, but the table uno has string in country: choose another "
        "name, or run `rebuild uno --renew --yes`"
    )
    lake_of(tmp_path / "lake", {"columns": {"country": "country::VARCHAR"}}, reference=section(swapped))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("columns = []", "reference.players.columns: Tuple should have at least 1 item"),
        ('columns = ["_offset"]', "reference.players: Value error, _offset names a record"),
        ('columns = ["a b"]', "reference.players: String should match pattern"),
        ('columns = ["a", "A"]', "reference.players: Value error, a column is there twice"),
        ('columns = ["Game_Name"]', "reference.players: game_name names the table"),
        ('columns = ["a"]\nkeep_versions = 1', "reference.players.keep_versions: Input should be greater"),
        ('columns = ["a"]\nkeyy = "b"', "reference.players.keyy: no such setting; did you mean reference.players.key?"),
        ('columns = ["a"]\n[reference.others]\npath = "/b"\nkey = "k"\ncolumns = ["A"]', "both give A: set a prefix"),
    ],
)
def test_settings_are_refused_by_their_names(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[reference.players]\npath = "/a"\nkey = "k"\n{text}')
    with pytest.raises(ConfigurationError) as refused:
        config.load(file)
    assert said in str(refused.value)


def test_settings_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOLAKE_REFERENCE", '{"players": {"path": "/a", "key": "id", "columns": ["b"]}}')
    found = config.load().reference["players"]
    assert (found.looked_up, found.names, found.refresh_s) == ("id", ("b",), 300)
    monkeypatch.setenv("PROTOLAKE_REFERENCE__PLAYERS__COLUMNS", "b")
    with pytest.raises(ConfigurationError, match="PROTOLAKE_REFERENCE__PLAYERS__COLUMNS must be JSON, such as"):
        config.load()


def test_a_source_that_is_gone_at_the_next_start_keeps_its_columns(tmp_path: Path) -> None:
    joined(tmp_path).take(batch_of([event("uno", "ann")]))
    shutil.rmtree(tmp_path / "players")
    lake = joined(tmp_path, path=str(tmp_path / "players"))
    lake.ends = {0: 1}
    lake.take(batch_of([event("uno", "ann", EVENTS)], first=1))
    assert rows(lake, UNO, "country", "tier") == [("FR", 1)] * 2
