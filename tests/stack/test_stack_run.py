"""The whole path on real parts: producer, broker, registry and Spark app, judged by the ledger."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from spark_app.lake import cursors, sql_tables
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.chaos import gold_tables, read_back
from tests.chaos.stage import WAITS_FOR_SCHEMAS, Stage, kill, wait_until
from tests.support import ledger

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
GAMES = ["euchre", "go_fish", "hearts", "poker", "rummy", "spades", "uno"]


def test_three_versions_and_every_fault_drain_to_silver_gold_and_quarantine(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(SCHEMAS__UNKNOWN_ID_GRACE_S="1")
    stage.produce(20_000, schema_version="3", num_versions="3", poison="0.02", partitions="3")
    assert stage.drain() == [ExitCode.DONE]
    assert ledger.verify(stage.lake, read_back.consume(stage.brokers, stage.topic)).faults() == {}
    silver = read_back.tables(stage.lake, "silver_")
    assert {f"silver_{game}_events" for game in GAMES} <= set(silver)
    assert len(read_back.tables(stage.lake, "gold_")) == len(silver)
    filled = [_ids_with(stage, "rummy", column) for column in ("game_name", "col_custom_1", "col_custom_2")]
    assert [len(ids) for ids in filled] == [3, 2, 1]
    assert filled[0] > filled[1] > filled[2]
    assert DeltaTable(str(stage.lake / "silver_rummy_events")).protocol().min_reader_version == 1


def test_a_bump_leaves_once_and_comes_back_with_the_column(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(BATCH__INTERVAL_S="0.5", **WAITS_FOR_SCHEMAS)
    stage.produce(2_000)
    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("bronze") == 2_000, "the first batch")
        stage.produce(2_000, schema_version="3", num_versions="2")
        assert app.wait(120) == ExitCode.BUMP
    finally:
        kill(app)
    assert read_back.read(stage.lake, "bronze_events", ["offset"]).num_rows == 2_000
    assert stage.status()["bumps"] == 1
    assert stage.drain() == [ExitCode.DONE]
    assert sum("exit_code=75" in line for line in stage.lines()) == 1
    assert read_back.wrong_events(stage.lake, Lake(stage.lake).units()[-1]) == {"missing": [], "doubled": []}
    kinds = Counter(read_back.read(stage.lake, "pipeline_events", ["kind"])["kind"].to_pylist())
    assert (kinds["start"], kinds["settings"], kinds["bump"]) == (2, 2, 1)
    assert {"unit", "table_rows", "table_admitted", "schema_resolved", "gold"} <= {*kinds}
    assert ledger.verify(stage.lake, read_back.consume(stage.brokers, stage.topic)).faults() == {}
    assert _ids_with(stage, "uno", "col_custom_2") == {max(_ids_with(stage, "uno", "game_name"))}


def gold_rows(stage: Stage) -> list[str]:
    """The further gold tables that have rows."""
    return [table for table in stage.status().get("gold_rows", {}) if table.startswith("gold_")]


def test_gold_tables_of_all_kinds_follow_kills_and_new_columns(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(BATCH__INTERVAL_S="0.5", GOLD__INTERVAL_S="0.5", **gold_tables.AS_SETTING, **WAITS_FOR_SCHEMAS)
    stage.produce(2_000)
    app = stage.start()
    try:
        wait_until(lambda: len(gold_rows(stage)) == 4 * len(GAMES), "all tables but those of devices")
        wait_until(lambda: stage.status().get("gold_rows", {}).keys() >= gold_tables.MADE_BY_SQL, "the tables by SQL")
        kill(app)
        stage.produce(2_000, schema_version="3", num_versions="2")
        app = stage.start()
        wait_until(lambda: "gold_uno_devices" in stage.status().get("gold_rows", {}), "the table of the new column")
        behind = {f"gold.{kind}": 0 for kind in gold_tables.KINDS} | {"gold": 0}
        wait_until(
            lambda: behind.items() <= {n: f["lag"] for n, f in stage.status()["followers"].items()}.items(), "gold"
        )
    finally:
        kill(app)
    assert stage.drain() == [ExitCode.DONE]
    assert stage.verify() == {}
    found = stage.command("rebuild", "uno", "--dry-run")
    assert found.returncode == ExitCode.DONE, found.stdout + found.stderr
    kept = {"GOLD__TABLES": json.dumps({"hourly": gold_tables.KINDS["hourly"]})}
    assert stage.drain(**kept) == [ExitCode.DONE]
    by_sql = {f"sql.{table}" for table in gold_tables.MADE_BY_SQL}
    assert {*cursors.names(Lake(stage.lake))} == {"events", "sinks", "gold", "gold.hourly", *by_sql}
    assert {one.unit for one in sql_tables.every(Lake(stage.lake)) if one.digest} == {max(Lake(stage.lake).units())}


def test_a_signal_stops_cleanly_and_the_next_start_goes_on(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    for number, stop in enumerate((signal.SIGTERM, signal.SIGINT), 1):
        stage.produce(1_000, seed=str(number))
        app = stage.start()
        try:
            wait_until(lambda taken=number * 1_000: stage.status().get("bronze") == taken, "the batch")
            os.kill(app.pid, stop)
            assert app.wait(120) == ExitCode.DONE
        finally:
            kill(app)
        assert stage.status()["state"] == "stopped"
    stage.produce(500, seed="8")
    assert stage.drain() == [ExitCode.DONE]
    assert ledger.verify(stage.lake, read_back.consume(stage.brokers, stage.topic)).faults() == {}


@pytest.mark.nightly
def test_landed_only_records_are_decoded_by_the_next_run(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    stage.produce(3_000, poison="0.05")
    assert stage.run("--available-now", "--land-only") == ExitCode.DONE
    assert read_back.tables(stage.lake, "silver_") == []
    truth = read_back.consume(stage.brokers, stage.topic)
    assert read_back.read(stage.lake, "deferred_events", ["offset"]).num_rows == sum(1 for v in truth.values() if v)
    assert stage.run("--available-now", SCHEMAS__UNKNOWN_ID_GRACE_S="0.1") == ExitCode.DONE
    assert ledger.verify(stage.lake, truth).faults() == {}


@pytest.mark.parametrize(("umask", "kept"), [("027", 0o027), pytest.param("022", 0o022, marks=pytest.mark.nightly)])
def test_no_file_of_a_lake_is_open_to_more_than_the_settings_allow(
    new_stage: Callable[..., Stage], umask: str, kept: int
) -> None:
    """Made by the app, its JVM, Spark's checkpoint, workers, delta-rs: whatever the umask of who started it."""
    before = os.umask(0)
    try:
        stage = new_stage(
            LAKE__UMASK=umask, LAKE__CHECKPOINT_EVERY="1", BATCH__MAX_RECORDS="500", LAKE__COMPACT_FILES="2"
        )
        stage.produce(2_000, poison="0.05")
        assert stage.drain() == [ExitCode.DONE]
    finally:
        os.umask(before)
    paths = [stage.lake, *stage.lake.rglob("*")]
    kinds = {path.relative_to(stage.lake).parts[:2] for path in paths if path.is_file()}
    assert {("_protolake", "checkpoint"), ("_protolake", "manifests"), ("bronze_events", "_delta_log")} <= kinds
    assert {path: oct(path.stat().st_mode) for path in paths if path.stat().st_mode & kept} == {}
    if umask == "022":
        assert all(path.stat().st_mode & 0o004 for path in stage.lake.glob("bronze_events/*.parquet"))


def test_unreachable_servers_and_missing_topic_end_with_their_code(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(RUN__CONNECT_TIMEOUT_S="2")
    assert stage.run(KAFKA__BROKERS="127.0.0.1:1") == ExitCode.UNREACHABLE
    assert "broker 127.0.0.1:1 did not answer" in stage.lines()[-1]
    stage.produce(10)
    assert stage.run(REGISTRY__URL="http://127.0.0.1:1") == ExitCode.UNREACHABLE
    assert "registry http://127.0.0.1:1 did not answer" in stage.lines()[-1]
    assert stage.run(KAFKA__TOPIC="no_such_topic") == ExitCode.CONFIGURATION
    assert "there is no topic no_such_topic" in stage.lines()[-1]


def _ids_with(stage: Stage, game: str, column: str) -> set[int]:
    """Schema ids whose rows have a value in the column; every field of the demo may be unset in some rows."""
    rows = read_back.read(stage.lake, f"silver_{game}_events", ["_schema_id", column]).to_pylist()
    return {row["_schema_id"] for row in rows if row[column] is not None}


@pytest.mark.nightly
def test_latest_is_the_moment_of_the_first_start(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(KAFKA__STARTING_OFFSETS="latest")
    stage.produce(100)
    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("state") == "running", "the start")
        wait_until(lambda: (stage.lake / "_protolake/manifests/began").exists(), "the query")
    finally:
        kill(app)
    stage.produce(50, seed="2")
    assert stage.drain() == [ExitCode.DONE]
    assert read_back.read(stage.lake, "bronze_events", ["offset"]).num_rows == 50
    assert stage.verify() == {}
