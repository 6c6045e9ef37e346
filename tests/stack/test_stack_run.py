"""The whole path on real parts: producer, broker, registry and Spark app, judged by the ledger."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from spark_app.errors import ExitCode
from tests.support import ledger
from tests.support.app import BUMP, Stack, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
GAMES = ["euchre", "go_fish", "hearts", "poker", "rummy", "spades", "uno"]


def test_three_versions_and_every_fault_drain_to_silver_gold_and_quarantine(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(SCHEMAS__PATIENCE_S="1")
    stack.produce(20_000, schema_version="3", num_versions="3", poison="0.02", partitions="3")
    assert stack.drain() == [ExitCode.DONE]
    assert ledger.verify(stack.lake, ledger.consume(stack.brokers, stack.topic)).faults() == {}
    silver = ledger.tables(stack.lake, "silver_")
    assert {f"silver_{game}_events" for game in GAMES} <= set(silver)
    assert len(ledger.tables(stack.lake, "gold_")) == len(silver)
    filled = [_ids_with(stack, "rummy", column) for column in ("game_name", "col_custom_1", "col_custom_2")]
    assert [len(ids) for ids in filled] == [3, 2, 1]
    assert filled[0] > filled[1] > filled[2]
    assert DeltaTable(str(stack.lake / "silver_rummy_events")).protocol().min_reader_version == 1


def test_a_bump_leaves_once_and_comes_back_with_the_column(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(BATCH__INTERVAL_S="0.5")
    stack.produce(2_000)
    app = stack.start()
    try:
        wait_until(lambda: stack.status().get("bronze") == 2_000, 90, "the first batch")
        stack.produce(2_000, schema_version="3", num_versions="2")
        assert app.wait(60) == BUMP
    finally:
        kill(app)
    assert ledger.read(stack.lake, "bronze_events", ["offset"]).num_rows == 2_000
    assert stack.status()["bumps"] == 1
    assert stack.drain() == [ExitCode.DONE]
    assert sum("exit_code=75" in line for line in stack.lines()) == 1
    assert ledger.verify(stack.lake, ledger.consume(stack.brokers, stack.topic)).faults() == {}
    assert _ids_with(stack, "uno", "col_custom_2") == {max(_ids_with(stack, "uno", "game_name"))}


def test_kills_at_any_moment_lose_and_double_nothing(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(BATCH__INTERVAL_S="0", BATCH__RECORDS="1500", GOLD__INTERVAL_S="0.7", LAKE__COMPACT_FILES="5")
    stack.produce(30_000, schema_version="2", num_versions="2")
    for extra in (0.0, 0.9, 2.1):
        before = stack.status().get("batch")
        app = stack.start()
        try:
            wait_until(lambda before=before: stack.status().get("batch") not in (None, before), 90, "a batch")
            wait_until(_after(extra), 10, "the moment to kill")
        finally:
            kill(app)
    assert stack.drain() == [ExitCode.DONE]
    assert ledger.verify(stack.lake, ledger.consume(stack.brokers, stack.topic)).faults() == {}


def test_sigterm_stops_cleanly_and_the_next_start_goes_on(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack()
    stack.produce(1_000)
    app = stack.start()
    try:
        wait_until(lambda: stack.status().get("bronze") == 1_000, 90, "the first batch")
        os.kill(app.pid, signal.SIGTERM)
        assert app.wait(20) == ExitCode.DONE
    finally:
        kill(app)
    assert stack.status()["state"] == "stopped"
    stack.produce(500, seed="8")
    assert stack.drain() == [ExitCode.DONE]
    assert ledger.verify(stack.lake, ledger.consume(stack.brokers, stack.topic)).faults() == {}


def test_landed_only_records_are_decoded_by_the_next_run(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack()
    stack.produce(3_000, poison="0.05")
    assert stack.run("--available-now", "--land-only") == ExitCode.DONE
    assert ledger.tables(stack.lake, "silver_") == []
    truth = ledger.consume(stack.brokers, stack.topic)
    assert ledger.read(stack.lake, "deferred_events", ["offset"]).num_rows == sum(1 for v in truth.values() if v)
    assert stack.run("--available-now", SCHEMAS__PATIENCE_S="0.1") == ExitCode.DONE
    assert ledger.verify(stack.lake, truth).faults() == {}


def test_a_lost_checkpoint_is_rebuilt_from_the_manifests(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack()
    stack.produce(1_000)
    assert stack.drain() == [ExitCode.DONE]
    (stack.lake / "_protolake" / "checkpoint").rename(stack.lake.parent / "lost")
    stack.produce(1_000, seed="9")
    assert stack.drain() == [ExitCode.DONE]
    assert ledger.verify(stack.lake, ledger.consume(stack.brokers, stack.topic)).faults() == {}


def test_unreachable_servers_and_missing_topic_end_with_their_code(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(RUN__PATIENCE_S="2")
    assert stack.run(KAFKA__BROKERS="127.0.0.1:1") == ExitCode.UNREACHABLE
    assert "broker 127.0.0.1:1 did not answer" in stack.lines()[-1]
    stack.produce(10)
    assert stack.run(REGISTRY__URL="http://127.0.0.1:1") == ExitCode.UNREACHABLE
    assert "registry http://127.0.0.1:1 did not answer" in stack.lines()[-1]
    assert stack.run(KAFKA__TOPIC="no_such_topic") == ExitCode.CONFIGURATION
    assert "there is no topic no_such_topic" in stack.lines()[-1]


def _ids_with(stack: Stack, game: str, column: str) -> set[int]:
    """Schema ids whose rows have a value in the column; every field of the demo may be unset in some rows."""
    rows = ledger.read(stack.lake, f"silver_{game}_events", ["_schema_id", column]).to_pylist()
    return {row["_schema_id"] for row in rows if row[column] is not None}


def _after(seconds: float) -> Callable[[], bool]:
    import time

    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
