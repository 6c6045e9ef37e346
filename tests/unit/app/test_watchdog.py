"""When the watchdog bites, and when it must not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from spark_app.app import lifecycle
from spark_app.app.children import descendants, kill_all
from spark_app.app.lifecycle import LONGEST_TICK, LOOK_TICKS, Watchdog
from spark_app.settings.models import Run

ROOT = Path(__file__).parents[3]
TICK_S, STALL_S = 1.0, 20.0


class Time:
    """A clock, a sign that may move, and a watchdog that looks at both."""

    def __init__(self, **more: Any):
        self.now, self.sign, self.fired = 0.0, 0, []
        self.dog = Watchdog({"it": lambda: self.sign} | more, STALL_S, self.fired.append, TICK_S, lambda: self.now)

    def live(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK_S)):
            self.now += TICK_S
            self.dog.look()
            self.dog.count()


def test_what_does_not_move_is_ended_once_and_in_time() -> None:
    time = Time()
    time.live(STALL_S)
    assert time.fired == []
    time.live(3)
    assert time.fired == ["it"]
    time.live(100)
    assert time.fired == ["it"]


def test_a_sign_now_and_then_is_enough() -> None:
    time = Time()
    for _ in range(20):
        time.live(STALL_S - 2)
        time.sign += 1
    assert time.fired == []
    assert time.dog.quiet_s() <= STALL_S


def test_the_shortest_limit_leaves_time_for_signs_that_are_seen_late() -> None:
    """Spark reports every ten seconds without records."""
    assert Run.model_fields["stall_s"].metadata[0].ge >= 10 + LOOK_TICKS * lifecycle.TICK_S


def test_a_stop_of_the_process_counts_as_little_as_a_tick() -> None:
    time = Time()
    for _ in range(5):
        time.live(1)
        time.now += 180  # SIGSTOP, or the lid of a laptop
        time.dog.count()
    assert time.fired == []
    assert time.dog.quiet_s() <= 5 * (1 + LONGEST_TICK)


def test_a_sign_that_cannot_be_had_is_none() -> None:
    def hangs() -> None:
        raise OSError("the JVM is gone")

    time = Time(other=hangs)
    while not time.fired:
        time.sign += 1
        time.live(1)
    assert time.fired == ["other"]


def test_it_rests_once_it_is_stopped() -> None:
    time = Time()
    time.dog.stop()
    time.live(10 * STALL_S)
    assert time.fired == []


def test_what_is_not_under_way_may_rest() -> None:
    time = Time(gold=lambda: None)
    for _ in range(50):
        time.sign += 1
        time.live(5)
    assert time.fired == []


STUCK = """
import os, subprocess, sys, threading
from spark_app.app.lifecycle import Watchdog
from spark_app.app import children
child = subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"])
def fire(what):
    print(child.pid, flush=True)
    children.kill_all(children.descendants(os.getpid()))
    os._exit(69)
never = threading.Event()
Watchdog({"it": lambda: 1, "hangs": never.wait}, 0.3, fire, 0.05).start()
never.wait()
"""


def test_it_ends_a_process_whose_threads_all_hang_with_all_it_has_made() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (69, "")
    deadline = time.monotonic() + 20
    while is_running(int(done.stdout)):
        assert time.monotonic() < deadline, "what it had made is still there"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Not a zombie: whoever inherits it here may not reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_descendants_are_found_through_generations() -> None:
    script = "sleep 1000 & exec sleep 1000"
    with subprocess.Popen(["/bin/sh", "-c", f"{script}"], start_new_session=True) as shell:
        deadline = time.monotonic() + 20
        while not descendants(shell.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        own = descendants(os.getpid())
        grandchild = descendants(shell.pid)
        assert len(grandchild) == 1
        assert {shell.pid, *grandchild} <= set(own)
        kill_all([*grandchild, shell.pid])
        assert shell.wait(120) == -signal.SIGKILL
