"""Gold of projected columns, and the commands that decode records again: each row keeps to its own columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spark_app.audit.check_gold import check_gold
from spark_app.audit.snapshot import Snapshot
from spark_app.audit.verdict import Verdict
from spark_app.model.errors import ExitCode
from tests.spark.parts import Parts, events
from tests.spark.test_spark_rebuild import ask, counts
from tests.spark.test_spark_replay import replay
from tests.support.clear_text import places_of
from tests.support.projections import KEY, hashed, key_file

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("uno", "c"), ("uno", "b"), ("rummy", "")]
RUMMY, UNO, GOLD = "silver_rummy_events", "silver_uno_events", "gold_uno_player_agg"


@pytest.fixture
def hashing(tmp_path: Path) -> dict[str, Any]:
    columns = {
        "gamer_id": "hmac(gamer_id)",
        "day": "_kafka_timestamp::DATE",
        "hour": "date_trunc('hour', event_timestamp)",
    }
    return {"columns": columns, "hmac_key_file": key_file(tmp_path / "secrets")}


def take(parts: Parts, *players: tuple[str, str]) -> None:
    parts.learn(1)
    parts.take(events(1, list(players)))
    parts.gold.run()


def gold_faults(parts: Parts) -> dict[tuple[str, str], int]:
    verdict = Verdict()
    check_gold(Snapshot.read(parts.settings, 1.0), verdict)
    return dict(verdict.counts)


def keys(parts: Parts, table: str = GOLD) -> list[tuple[Any, ...]]:
    return sorted(parts.read(table).select("gamer_id", "session_count").rows(), key=str)


def test_gold_groups_by_a_hashed_key(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    parts = new_parts(silver=hashing)
    take(parts, *PLAYERS)
    take(parts, ("uno", "c"), ("uno", "d"))
    assert keys(parts) == sorted([(hashed("b"), 2), (hashed("c"), 2), (hashed("d"), 1)])
    assert gold_faults(parts) == {}


@pytest.mark.nightly
def test_gold_aggregates_columns_that_only_the_projection_has(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    aggregates = {
        "first_day": {"function": "min", "field": "day"},
        "hours": {"function": "distinct", "field": "hour"},
        "days": {"function": "count", "field": "day"},
    }
    parts = new_parts(silver=hashing, gold={"aggregates": aggregates})
    take(parts, *PLAYERS)
    found = parts.read(GOLD)
    assert found["first_day"].dtype == pl.Date
    assert sorted(found["days"]) == [1, 2]
    assert gold_faults(parts) == {}


@pytest.mark.nightly
def test_gold_goes_on_after_a_change_of_the_projection(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    take(new_parts(), *PLAYERS)
    parts = new_parts(silver=hashing)
    take(parts, ("uno", "c"))
    assert keys(parts) == sorted([("b", 2), ("c", 1), (hashed("c"), 1)])
    dropping = new_parts(silver={"drop": ["gamer_id"]})
    take(dropping, ("uno", "c"))
    assert keys(dropping) == sorted([("b", 2), ("c", 1), (hashed("c"), 1), (None, 1)], key=str)
    assert gold_faults(dropping) == {}


def test_a_rebuild_compares_each_row_by_its_own_columns(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    take(new_parts(), *PLAYERS)
    take(new_parts(silver=hashing), *PLAYERS)
    parts = new_parts(silver={"drop": ["gamer_id"]})
    take(parts, *PLAYERS)
    result = ask(parts)
    assert counts(result) == {RUMMY: {"expected": 6, "present": 6}, UNO: {"expected": 9, "present": 9}}
    assert result["exit_code"] == int(ExitCode.DONE)
    assert not list((parts.lake.root / "_protolake").rglob("*.parquet"))


@pytest.mark.nightly
def test_a_rebuild_gives_missing_rows_the_columns_in_force(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    parts = new_parts(silver=hashing)
    take(parts, *PLAYERS)
    parts.lake.storage.delete_all(UNO)
    parts = new_parts(silver=hashing)
    assert counts(ask(parts))[UNO] == {"expected": 3, "added": 3}
    assert sorted(parts.read(UNO)["gamer_id"]) == sorted([hashed("b"), hashed("b"), hashed("c")])
    assert keys(parts) == sorted([(hashed("b"), 2), (hashed("c"), 1)])


@pytest.mark.nightly
def test_a_rebuild_names_a_row_with_another_column(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    parts = new_parts(silver=hashing)
    take(parts, *PLAYERS)
    file = parts.lake.path(parts.committer.tables.files(RUMMY)[0])
    rows = pl.read_parquet(file)
    rows.with_columns(gamer_id=pl.when(pl.col("_offset") == 0).then(pl.lit("a")).otherwise("gamer_id")).write_parquet(
        file
    )
    result = ask(new_parts(silver=hashing))
    assert result["named"] == {RUMMY: ["t/0@0 differing"]}


@pytest.mark.nightly
def test_a_rebuild_leaves_what_another_key_made(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    take(new_parts(silver=hashing), *PLAYERS)
    key_file(Path(hashing["hmac_key_file"]).parent, KEY[::-1])
    parts = new_parts(silver=hashing)
    take(parts, *PLAYERS)
    result = ask(parts)
    assert counts(result) == {RUMMY: {"expected": 4, "present": 4}, UNO: {"expected": 6, "present": 6}}


@pytest.mark.nightly
def test_a_replay_lands_the_columns_in_force(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    rules = {"known": {"check": "gamer_id <> ''", "action": "quarantine"}}
    take(new_parts(silver=hashing, expectations=rules), *PLAYERS)
    parts = new_parts(silver=hashing)
    assert replay(parts, rules=["known"])["resolved"] == {RUMMY: 1}
    assert sorted(parts.read(RUMMY)["gamer_id"]) == sorted([hashed("a"), hashed("")])


@pytest.mark.nightly
def test_waiting_rows_land_with_the_columns_in_force(new_parts: NewParts, hashing: dict[str, Any]) -> None:
    rules = {"known": {"check": "gamer_id <> ''", "action": "pause"}}
    parts = new_parts(silver=hashing, expectations=rules)
    take(parts, *PLAYERS)
    assert not parts.lake.has_table(RUMMY)
    let_in = new_parts(silver=hashing)
    while let_in.deferred.step(None) is not None:
        pass
    assert sorted(let_in.read(RUMMY)["gamer_id"]) == sorted([hashed("a"), hashed("")])


def test_hidden_text_is_in_no_table_of_the_app(
    new_parts: NewParts, hashing: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """Also not in gold, in status and manifests, and not after a replay and a rebuild."""
    secret = "Zebra-7731"
    hashing["columns"]["number"] = "gamer_id::INTEGER"
    rules = {"cast": {"check": "TRY_CAST(gamer_id AS INTEGER) > 0 OR gamer_id LIKE '%-_'", "action": "quarantine"}}
    parts = new_parts(expectations=rules, silver=hashing)
    take(parts, *[("uno", f"{secret}-{n}") for n in range(5)], ("no name !", secret), ("uno", secret))
    parts.status.running()
    parts.lake.storage.delete_all(UNO)
    again = new_parts(expectations=rules, silver=hashing)
    ask(again)
    replay(again, rules=["cast"])
    assert (again.read(UNO).height, again.read("quarantine_events").height) == (5, 2)
    assert again.read(GOLD).height == 5
    assert places_of(again.lake.root, secret) == set()
    assert secret not in "".join(capfd.readouterr())
