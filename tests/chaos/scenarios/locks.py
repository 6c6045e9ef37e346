"""R3 and R21: never two writers.

The driver alone is killed and the next app started at once, while the first JVM still lives; a second app, and every
command that writes, find the lake locked by a running app.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import psutil  # type: ignore[import-untyped]

from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill, wait_until

DONE, UNREACHABLE, ACCESS_DENIED_TIMEOUT_S = 0, 69, 15.0
RECORDS = 300
ASKED = (("replay",), ("rebuild",))  # a running app executes them
REFUSED = (("doctor", "--repair"), ("run",), ("run", "--available-now"))


@dataclass
class Tally:
    """The results of the starts."""

    jvms_outlived: int = 0
    ended_s: list[float] = field(default_factory=list)
    faults: dict[str, object] = field(default_factory=dict)


def relaunched(lab: Lab, size: Size, dice: Random) -> Outcome:
    """R3: `times` starts after a driver that was killed alone, and as many beside a running one."""
    stage, tally = _stage(lab), Tally()
    app = _start(stage)
    try:
        for number in range(size.times):
            stage.produce(RECORDS, seed=str(number))
            _start_beside(stage, tally, number)
            app = _replace(stage, app, dice, tally, number)
    finally:
        kill(app)
        _kill_jvms(stage)
    assert stage.drain()[-1] == DONE
    figures = {
        "starts": 2 * size.times,
        "jvms_that_outlived_their_driver": tally.jvms_outlived,
        "lock_decided_after_s_at_most": max(tally.ended_s),
    }
    return Outcome(2 * size.times, tally.faults | stage.verify(), figures)


def second(lab: Lab, size: Size, dice: Random) -> Outcome:
    """R21: `times` runs of each command that writes, beside a running app: rejected, or executed by the app."""
    stage, tally = _stage(lab), Tally()
    app = _start(stage)
    try:
        for number in range(size.times):
            stage.produce(RECORDS, seed=str(number))
            for command in dice.sample(REFUSED, len(REFUSED)):
                _expect_refusal(stage, command, tally, number)
            for command in dice.sample(ASKED, len(ASKED)):
                _expect_answer(stage, command, tally, number)
            if app.poll() is not None:
                tally.faults[f"app {number}"] = f"ended with {app.returncode}"
                app = _start(stage)
    finally:
        kill(app)
    assert stage.drain()[-1] == DONE
    commands = len(REFUSED) + len(ASKED)
    figures = {"commands": commands * size.times, "refused_after_s_at_most": max(tally.ended_s)}
    return Outcome(commands * size.times, tally.faults | stage.verify(), figures)


def _stage(lab: Lab) -> Stage:
    stage = lab.stage(BATCH__INTERVAL_S="0.2", BATCH__MAX_RECORDS="100", GOLD__INTERVAL_S="1", LAKE__COMPACT_FILES="8")
    stage.produce(RECORDS, partitions="3", poison="0.02")
    return stage


def _start(stage: Stage) -> Popen[bytes]:
    """Start the app and wait until it has ingested a batch."""
    before = stage.status().get("started_at")
    app = stage.start()
    wait_until(lambda: stage.status().get("started_at") != before and _runs(stage), "the start")
    return app


def _runs(stage: Stage) -> bool:
    return bool(stage.status().get("state") == "running")


def _start_beside(stage: Stage, tally: Tally, number: int) -> None:
    """Start a second app on a lake in use: it exits and has written nothing."""
    began = time.monotonic()
    code = stage.run("--available-now", timeout=60)
    tally.ended_s.append(round(time.monotonic() - began, 1))
    if code != UNREACHABLE:
        tally.faults[f"beside {number}"] = f"ended with {code}"


def _replace(stage: Stage, app: Popen[bytes], dice: Random, tally: Tally, number: int) -> Popen[bytes]:
    """Kill the driver alone and start another at once. While the first JVM lives, the second app must not get the
    lock."""
    time.sleep(dice.uniform(0.0, 2.0))
    old = _jvms(stage)
    app.kill()
    app.wait()
    began = time.monotonic()
    outlived = any(one.is_running() for one in old)
    tally.jvms_outlived += outlived
    before = stage.status().get("started_at")
    following = stage.start()
    wait_until(lambda: stage.status().get("started_at") != before, "the lock", 60)
    tally.ended_s.append(round(time.monotonic() - began, 1))
    if any(_is_alive(one) for one in old):
        tally.faults[f"two writers {number}"] = "the lake was locked while the JVM of the last app was alive"
    wait_until(lambda: _runs(stage), "the start")
    return following


def _jvms(stage: Stage) -> list[Any]:
    """The JVMs that have the lake's lock file open."""
    path = str(Path(stage.lake, "_protolake", "lock.jvm"))
    return [one for one in psutil.process_iter() if _is_java(one) and path in _open_files(one)]


def _is_java(process: Any) -> bool:
    try:
        return bool(process.name() == "java")
    except psutil.Error:
        return False


def _is_alive(process: Any) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _open_files(process: Any) -> set[str]:
    try:
        return {file.path for file in process.open_files()}
    except psutil.Error:
        return set()


def _kill_jvms(stage: Stage) -> None:
    for jvm in _jvms(stage):
        jvm.kill()


def _expect_refusal(stage: Stage, command: tuple[str, ...], tally: Tally, number: int) -> None:
    began = time.monotonic()
    done = stage.command(*command)
    seconds = round(time.monotonic() - began, 1)
    tally.ended_s.append(seconds)
    if (
        done.returncode != UNREACHABLE
        or "in use by another process" not in done.stderr
        or seconds > ACCESS_DENIED_TIMEOUT_S
    ):
        tally.faults[f"{' '.join(command)} {number}"] = f"{done.returncode} after {seconds} s: {done.stderr[-200:]}"


def _expect_answer(stage: Stage, command: tuple[str, ...], tally: Tally, number: int) -> None:
    done = stage.command(*command)
    if done.returncode != DONE or "the app runs" not in done.stderr:
        tally.faults[f"{' '.join(command)} {number}"] = f"{done.returncode}: {done.stdout[-200:]}{done.stderr[-200:]}"
