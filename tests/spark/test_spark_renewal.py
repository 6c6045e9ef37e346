"""A table is made anew from bronze in one Delta commit: by other columns, with the same rows, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.model.errors import ConfigurationError
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from spark_app.recovery.result_text import renew_lines
from tests.spark.parts import Killed, Parts
from tests.spark.test_spark_projections import gold_faults, keys, take
from tests.spark.test_spark_rebuild import answer, ask, counts
from tests.support.clear_text import places_of
from tests.support.projections import hashed, key_file

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("uno", "bot"), ("uno", "c"), ("uno", "b"), ("uno", "")]
UNO, RUMMY, GOLD = "silver_uno_events", "silver_rummy_events", "gold_uno_player_agg"
RULES = {
    "known": {"check": "gamer_id <> ''", "action": "quarantine"},
    "human": {"check": "gamer_id <> 'bot'", "action": "drop"},
}


@pytest.fixture
def hashing(tmp_path: Path) -> dict[str, Any]:
    return {"columns": {"gamer_id": "hmac(gamer_id)"}, "hmac_key_file": key_file(tmp_path / "secrets")}


def renew(parts: Parts, *names: str, dry_run: bool = False) -> dict[str, Any]:
    request = Request("renew", {"names": list(names)}, dry_run)
    requests.submit(parts.lake, request)
    return answer(parts, request)


def versions(parts: Parts, table: str) -> int:
    return DeltaTable(str(parts.lake.path(table))).version()


def test_a_table_is_made_anew_by_the_settings(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    """What rules have kept out stays out, and rows stay rows although a rule of now would keep them out."""
    take(new_parts(expectations=RULES), *PLAYERS)
    stricter = {"nobody": {"check": "false", "action": "quarantine"}}
    parts = new_parts(silver=hashing, expectations=stricter)
    before, old = versions(parts, UNO), DeltaTable(str(parts.lake.path(UNO)))
    result = renew(parts, "uno")
    assert result["rows"] == {UNO: 3}
    assert versions(parts, UNO) == before + 1
    table = DeltaTable(str(parts.lake.path(UNO)))
    offset = next(field for field in table.schema().fields if field.name == "_offset")
    assert (table.metadata().id, table.metadata().description) == (old.metadata().id, old.metadata().description)
    assert offset.metadata.get("comment")
    assert sorted(parts.read(UNO)["gamer_id"]) == sorted([hashed("b"), hashed("b"), hashed("c")])
    assert parts.read(UNO)["_definition"].n_unique() == 1
    assert keys(parts) == sorted([(hashed("b"), 2), (hashed("c"), 1)])
    assert gold_faults(parts) == {}
    assert parts.read(RUMMY)["gamer_id"].to_list() == ["a"]
    assert (parts.read("quarantine_events").height, parts.read("dropped_events").height) == (1, 1)
    assert counts(ask(parts))[UNO] == {"expected": 3, "present": 3}


def test_the_next_unit_goes_on_after_it(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    take(new_parts(), *PLAYERS)
    parts = new_parts(silver=hashing)
    renew(parts, "uno", "rummy")
    take(parts, ("uno", "c"))
    again = new_parts(silver=hashing)
    take(again, ("uno", "c"))
    assert keys(again) == sorted([(hashed("b"), 2), (hashed("bot"), 1), (hashed("c"), 3), (hashed(""), 1)])
    assert gold_faults(again) == {}
    assert again.read(UNO).height == 7


def test_columns_and_types_are_new(new_parts: NewParts) -> None:
    take(new_parts(silver={"columns": {"gamer_id": "length(gamer_id)", "old": "1"}}), *PLAYERS)
    changed = {"columns": {"gamer_id": "upper(gamer_id)", "new": "2.5::DOUBLE"}, "drop": ["event_timestamp"]}
    parts = new_parts(silver=changed)
    with pytest.raises(ConfigurationError, match=r"rebuild rummy --renew --yes"):
        parts.units.check_expectations()
    result = renew(parts, "uno", "rummy")
    assert result["rows"] == {RUMMY: 1, UNO: 5}
    parts.units.check_expectations()
    table = DeltaTable(str(parts.lake.path(UNO)))
    names = {field.name: str(field.type) for field in table.schema().fields}
    assert names["gamer_id"] == 'PrimitiveType("string")'
    assert names["new"] == 'PrimitiveType("double")'
    assert not {"old", "event_timestamp"} & names.keys()
    found = pl.scan_delta(str(parts.lake.path(UNO))).filter(pl.col("gamer_id") == "BOT").collect()
    assert found["new"].to_list() == [2.5]
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)


def test_nothing_changes_without_yes(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    take(new_parts(), *PLAYERS)
    parts = new_parts(silver=hashing)
    files, last = parts.files(), parts.manifests.last
    result = renew(parts, "uno", dry_run=True)
    assert result == {"rows": {UNO: 5}, "gold": {}}
    assert (parts.files(), parts.manifests.last) == (files, last)
    assert any("--yes does it" in line for line in renew_lines(result, True))


def test_a_name_without_a_table_is_refused(new_parts: NewParts) -> None:
    parts = new_parts()
    take(parts, *PLAYERS)
    assert "no table is named unno" in renew(parts, "unno")["error"]


def test_rows_that_bronze_cannot_give_keep_the_table(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    take(new_parts(), *PLAYERS)
    parts = new_parts(silver=hashing)
    rows = DeltaTable(str(parts.lake.path(UNO))).to_pyarrow_table().slice(0, 1)
    parts.opened.units.refresh(UNO)
    write_deltalake(str(parts.lake.path(UNO)), rows, mode="append")  # a row is there twice
    parts = new_parts(silver=hashing)
    before = parts.files()
    result = renew(parts, "uno")
    assert "has 6 rows, but bronze gives 5 of them now: run `rebuild`" in result["error"]
    assert parts.files() == before
    assert parts.read(UNO).height == 6


@pytest.mark.parametrize("place", ["manifest", "commit", "gold"])
def test_a_death_at_any_step_is_made_good(
    new_parts: NewParts, hashing: dict[str, Any], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(new_parts(), *PLAYERS)
    parts = new_parts(silver=hashing)
    request = Request("renew", {"names": ["uno"]})
    requests.submit(parts.lake, request)
    with monkeypatch.context() as patch:
        if place == "commit":
            parts.kill_at_commit(UNO, patch)
        elif place == "manifest":
            patch.setattr(parts.opened.units, "commit", killed)
        else:
            patch.setattr(parts.gold, "renew", killed)
        with pytest.raises(Killed):
            answer(parts, request)
    again = new_parts(silver=hashing)
    assert again.redone_units == (place == "commit")
    assert answer(again, request)["rows"] == {UNO: 5}
    assert again.manifests.last == 2  # the first batch, and one renewal
    assert again.read(UNO).height == 5
    assert keys(again) == sorted([(hashed("b"), 2), (hashed("bot"), 1), (hashed("c"), 1), (hashed(""), 1)])
    assert counts(ask(again))[UNO] == {"expected": 5, "present": 5}


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def test_clear_text_leaves_with_the_old_files(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    take(new_parts(), ("uno", "Zebra-7731"))
    parts = new_parts(silver=hashing)
    renew(parts, "uno")
    live = {key.split("/")[1] for key in parts.committer.tables.files(UNO)}
    found = {place for place in places_of(parts.lake.root, "Zebra-7731") if place.startswith(UNO) and ":" in place}
    assert found
    assert not any(name in place for name in live for place in found)
    assert json.dumps(parts.read(GOLD).to_dicts(), default=str).count("Zebra") == 0
