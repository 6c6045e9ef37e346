"""`replay` and `rebuild` as an operator uses them: beside the running app, and when it is down."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from spark_app.model.errors import ExitCode
from tests.chaos import read_back
from tests.chaos.stage import Stage, kill, wait_until
from tests.support import ledger

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
ONLY = {"TABLES__ALLOWLIST": '["rummy", "uno"]'}


def test_replay_and_rebuild_beside_the_app_and_without_it(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(SCHEMAS__UNKNOWN_ID_GRACE_S="1", BATCH__INTERVAL_S="0.5", GOLD__INTERVAL_S="1")
    stage.produce(5_000, schema_version="2", num_versions="2", poison="0.02", partitions="2")
    assert stage.run("--available-now", **ONLY) == ExitCode.DONE
    truth = read_back.consume(stage.brokers, stage.topic)
    assert ledger.verify(stage.lake, truth).faults() == {}
    refused = stage.status()["quarantine"]["route_refused"]
    assert refused > 2_000

    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("state") == "running", "the start")
        counted = stage.command("replay", "--dry-run", "--json")
        assert json.loads(counted.stdout)["candidates"]["route_refused"] == refused
        done = stage.command("replay", "--json", "--cause", "route_refused")
        assert "the app runs" in done.stderr
        result = json.loads(done.stdout)
        assert sum(result["resolved"].values()) + sum(result["refused"].values()) == refused
        assert sum(result["resolved"].values()) > 2_000
        wait_until(lambda: "route_refused" not in stage.status()["quarantine"], "the status")
        assert stage.command("replay", "--cause", "route_refused").stdout == "no open record in quarantine matches\n"
        stage.produce(1_000, seed="8")
        rebuilt = stage.command("rebuild")
        assert (rebuilt.returncode, rebuilt.stderr.count("Error")) == (0, 0), rebuilt.stdout + rebuilt.stderr
        os.kill(app.pid, signal.SIGTERM)
        assert app.wait(120) == ExitCode.DONE
    finally:
        kill(app)
    truth = read_back.consume(stage.brokers, stage.topic)
    assert stage.run("--available-now") == ExitCode.DONE
    assert ledger.verify(stage.lake, truth).faults() == {}
    assert "route_refused" not in stage.status()["quarantine"]

    shutil.rmtree(stage.lake / "silver_uno_events")
    rebuilt = stage.command("rebuild", "uno", "--json")
    assert rebuilt.returncode == ExitCode.DONE, rebuilt.stdout + rebuilt.stderr
    found = json.loads(rebuilt.stdout)["tables"]["silver_uno_events"]
    assert found["added"] == found["expected"] > 500
    assert ledger.verify(stage.lake, truth).faults() == {}
    assert stage.command("rebuild", "no_such_game").returncode == ExitCode.USAGE


@pytest.mark.nightly
def test_a_replay_requested_of_the_app_outlives_its_jvm(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(SCHEMAS__UNKNOWN_ID_GRACE_S="1", BATCH__INTERVAL_S="0.5")
    stage.produce(5_000, partitions="2")
    assert stage.run("--available-now", **ONLY) == ExitCode.DONE
    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("state") == "running", "the start")
        asked = stage.spawn("replay")
        wait_until(lambda: list(_requests(stage, "*.tries.json")), "the first step")
        jvm = next(p for p in psutil.Process(app.pid).children(recursive=True) if p.name() == "java")
        jvm.kill()
        assert app.wait(120) == ExitCode.BUG
        assert asked.poll() is None
        assert len(list(_requests(stage, "[0-9a-f]" * 12 + ".json"))) == 1
        app = stage.start()
        assert asked.wait(300) == ExitCode.DONE
        os.kill(app.pid, signal.SIGTERM)
        assert app.wait(120) == ExitCode.DONE
    finally:
        kill(app)
    assert stage.run("--available-now") == ExitCode.DONE
    assert "route_refused" not in stage.status()["quarantine"]
    assert stage.verify() == {}


def _requests(stage: Stage, pattern: str) -> Iterator[Path]:
    return (stage.lake / "_protolake" / "requests").glob(pattern)
