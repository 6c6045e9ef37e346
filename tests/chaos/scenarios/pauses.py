"""SIGSTOP of the driver, the JVM or the workers, for a while (the app continues) or for ever (the watchdog ends the
app)."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from random import Random

import psutil  # type: ignore[import-untyped]

from tests.chaos.flow import Flow, flowing
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import kill

VICTIMS = ("driver", "jvm", "workers")
SHORTEST_S, LONGEST_S = 5.0, 60.0
RESUMES_S = 60.0
STALL_S = 25.0
LEAVES_S = 30.0  # after the watchdog's timeout
GONE_S = 5.0  # until the kernel has ended a process that was killed: it first frees gigabytes of memory
UNREACHABLE = 69


def pause(lab: Lab, size: Size, dice: Random) -> Outcome:
    """So many pauses of a running app; it must neither exit nor lose records."""
    stage = lab.stage()
    stage.produce(size.records, partitions="3")
    resumed, paused = [], []
    with flowing(stage) as flow:
        for _ in range(size.times):
            seconds = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** dice.random()
            _stop_for(flow, dice.choice(VICTIMS), seconds)
            paused.append(seconds)
            resumed.append(flow.await_units(timeout=RESUMES_S))
        if max(resumed) >= RESUMES_S or flow.app.poll() is not None:
            flow.faults["went_on_after_s"] = (max(resumed), flow.app.poll())
        faults = flow.finish()
    figures = {"longest_pause_s": max(paused), "next_unit_after_s_at_most": max(resumed), "restarts": flow.starts - 1}
    return Outcome(size.times, faults, figures)


def stall(lab: Lab, size: Size, dice: Random) -> Outcome:
    """A part that is stopped for ever: the app must exit with 69 in time and leave no process behind."""
    stage = lab.stage(RUN__STALL_S=str(STALL_S))
    stage.produce(size.records, partitions="3")
    left = []
    with flowing(stage) as flow:
        for number in range(size.times):
            flow.await_units(2)
            stopped = _freeze(flow, VICTIMS[1 + number % 2])
            began = time.monotonic()
            code = _await_end(flow, STALL_S + LEAVES_S)
            left.append(time.monotonic() - began)
            _, left_over = psutil.wait_procs(stopped, GONE_S)
            alive = [p.pid for p in left_over if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
            if code != UNREACHABLE or alive:
                flow.faults[f"stall {number + 1}"] = {"code": code, "still_there": alive}
            kill(flow.app)
            flow.restart()
            flow.await_start()
        faults = flow.finish()
    return Outcome(size.times, faults, {"stall_s": STALL_S, "left_after_s_at_most": max(left)})


def _victims(flow: Flow, who: str) -> list[psutil.Process]:
    if who == "driver":
        return [psutil.Process(flow.app.pid)]
    return flow.workers() if who == "workers" else [p for p in [flow.jvm()] if p]


def _stop_for(flow: Flow, who: str, seconds: float) -> None:
    stopped = _freeze(flow, who)
    time.sleep(seconds)
    for process in stopped:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)


def _freeze(flow: Flow, who: str) -> list[psutil.Process]:
    """Stop all processes of this part, so that a running batch waits for one of them."""
    victims = _victims(flow, who)
    for process in victims:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    return victims


def _await_end(flow: Flow, timeout: float) -> int | None:
    try:
        return flow.app.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
