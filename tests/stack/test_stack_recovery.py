"""`replay` and `rebuild` as an operator uses them: beside the running app, and when it is down."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable

import pytest

from spark_app.errors import ExitCode
from tests.support import ledger
from tests.support.app import Stack, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
ONLY = {"TABLES__ALLOWED": '["rummy", "uno"]'}


def test_replay_and_rebuild_beside_the_app_and_without_it(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(SCHEMAS__PATIENCE_S="1", BATCH__INTERVAL_S="0.5", GOLD__INTERVAL_S="1")
    stack.produce(5_000, schema_version="2", num_versions="2", poison="0.02", partitions="2")
    assert stack.run("--available-now", **ONLY) == ExitCode.DONE
    truth = ledger.consume(stack.brokers, stack.topic)
    assert ledger.verify(stack.lake, truth).faults() == {}
    refused = stack.status()["quarantine"]["route_refused"]
    assert refused > 2_000

    app = stack.start()
    try:
        wait_until(lambda: stack.status().get("state") == "running", 90, "the start")
        counted = stack.command("replay", "--dry-run", "--json")
        assert json.loads(counted.stdout)["candidates"]["route_refused"] == refused
        done = stack.command("replay", "--json", "--cause", "route_refused")
        assert "the app runs" in done.stderr
        result = json.loads(done.stdout)
        assert sum(result["resolved"].values()) + sum(result["refused"].values()) == refused
        assert sum(result["resolved"].values()) > 2_000
        wait_until(lambda: "route_refused" not in stack.status()["quarantine"], 30, "the status")
        assert stack.command("replay", "--cause", "route_refused").stdout == "nothing of that is open in quarantine\n"
        stack.produce(1_000, seed="8")
        rebuilt = stack.command("rebuild")
        assert (rebuilt.returncode, rebuilt.stderr.count("Error")) == (0, 0), rebuilt.stdout + rebuilt.stderr
        os.kill(app.pid, signal.SIGTERM)
        assert app.wait(30) == ExitCode.DONE
    finally:
        kill(app)
    truth = ledger.consume(stack.brokers, stack.topic)
    assert stack.run("--available-now") == ExitCode.DONE
    assert ledger.verify(stack.lake, truth).faults() == {}
    assert "route_refused" not in stack.status()["quarantine"]

    shutil.rmtree(stack.lake / "silver_uno_events")
    rebuilt = stack.command("rebuild", "uno", "--json")
    assert rebuilt.returncode == ExitCode.DONE, rebuilt.stdout + rebuilt.stderr
    found = json.loads(rebuilt.stdout)["tables"]["silver_uno_events"]
    assert found["added"] == found["expected"] > 500
    assert ledger.verify(stack.lake, truth).faults() == {}
    assert stack.command("rebuild", "no_such_game").returncode == ExitCode.USAGE
