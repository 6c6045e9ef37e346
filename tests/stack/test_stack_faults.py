"""Faults around a running app: what it survives, what ends it and how, and that no record pays for it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.local.errors import LocalError
from spark_app.model.errors import ExitCode
from tests.chaos.disk import empty, fill, small_disk
from tests.chaos.flow import Flow, flowing
from tests.chaos.stage import Stage, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
STALL_S = 45.0  # a start takes a part of it


def test_a_killed_worker_costs_a_try_and_a_killed_jvm_an_exit(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    stage.produce(20_000, partitions="3")
    with flowing(stage) as flow:
        for _ in range(5):
            wait_until(flow.workers, "a worker")
            flow.workers()[0].kill()
            assert flow.await_units(timeout=60) < 60
        assert flow.app.poll() is None
        jvm = flow.jvm()
        assert jvm is not None
        jvm.kill()
        assert flow.app.wait(120) == ExitCode.BUG
        assert flow.finish() == {}


@pytest.mark.nightly
def test_a_batch_that_ends_the_jvm_is_named(new_stage: Callable[..., Stage]) -> None:
    """By what an operator can look for in Kafka, in the log and in the status."""
    stage = new_stage()
    attempts = stage.lake / "_protolake" / "attempts.json"
    stage.produce(1_000, partitions="1")
    with flowing(stage) as flow:
        wait_until(lambda: stage.status().get("bronze") == 1_000 and not attempts.exists(), "the first records")
        for worker in flow.workers():
            worker.send_signal(signal.SIGSTOP)
        stage.produce(100)
        wait_until(attempts.exists, "a batch", 60)
        taken = json.loads(attempts.read_text())
        jvm = flow.jvm()
        assert jvm is not None
        jvm.kill()
        assert flow.app.wait(120) == ExitCode.BUG
        end = taken["end"][stage.topic]["0"]
        named = rf"batch of {stage.topic}/0 \d+ to {end}, attempt 1 "
        assert re.search(named, stage.status()["reason"])
        assert any(re.search(named, line) for line in stage.lines())
        assert flow.finish() == {}
    assert any(f"to {end}" in line and 'event="batch is retried" tries=2' in line for line in stage.lines())


@pytest.mark.nightly
def test_a_batch_that_hangs_is_ended_with_all_its_processes(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    stage.produce(5_000, partitions="3")
    with flowing(stage, RUN__STALL_S=str(STALL_S)) as flow:
        stopped = [flow.jvm(), *flow.workers()]
        for process in stopped:
            assert process is not None
            process.send_signal(signal.SIGSTOP)
        assert flow.app.wait(STALL_S + 30) == ExitCode.UNREACHABLE
        wait_until(lambda: not any(_is_there(process) for process in stopped), "the end of what was stopped", 10)
        # Both may have been under way, or the JVM was between two batches; the watchdog names one.
        reason = stage.status()["reason"]
        assert re.search(f"(ingest(: batch of .*)?|gold) made no progress for {STALL_S:.0f} s", reason)
        assert flow.finish() == {}


@pytest.mark.nightly
def test_a_full_disk_is_waited_for_and_tears_no_table(new_stage: Callable[..., Stage], tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", "300m") as disk:
            stage = new_stage(LAKE__PATH=str(disk), LAKE__MIN_FREE_BYTES="1", GOLD__INTERVAL_S="1")
            stage.lake = disk
            stage.produce(20_000, partitions="3")
            with flowing(stage) as flow:
                _fill_for_a_while(flow, disk)
                assert flow.await_units(3, timeout=60) < 60
                assert flow.app.poll() is None
                assert flow.finish() == {}
    except LocalError as error:
        pytest.skip(str(error))


def _fill_for_a_while(flow: Flow, disk: Path) -> None:
    said = len(flow.stage.lines())
    fill(disk)
    wait_until(lambda: any("no space left" in line for line in flow.stage.lines()[said:]), "a wait")
    empty(disk)


def _is_there(process: object) -> bool:
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text()  # type: ignore[attr-defined]
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
