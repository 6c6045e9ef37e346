"""Ends the process if nothing makes progress, even if all other threads hang in Spark, the JVM or a disk.

Two threads: one calls the progress probes and may hang itself, because they call the JVM; the other counts the seconds
since the last progress in its own ticks, so that a stopped process (SIGSTOP, a suspended laptop) counts as one tick.

The reasons: docs/decisions/process.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping

TICK_S = 1.0
LOOK_TICKS = 5  # between two looks: a probe calls the JVM, and nothing is due sooner
LONGEST_TICK = 2  # in ticks: if one takes longer, the process or the machine was stopped

ProgressProbe = Callable[[], Hashable]  # returns a value that changes with progress; None = no work to do


class Watchdog:
    """
    Args:
        probes: name of a loop -> its progress probe.
        stall_s: seconds without progress until `fire` is called, once, with the name of the stalled loop.
    """

    def __init__(
        self,
        probes: Mapping[str, ProgressProbe],
        stall_s: float,
        fire: Callable[[str], None],
        tick_s: float = TICK_S,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._probes = probes
        self._stall_s = stall_s
        self._fire = fire
        self._tick_s = tick_s
        self._clock = clock
        self._done = threading.Event()
        self._seen: dict[str, Hashable] = {}
        self._elapsed = 0.0  # seconds, written by `count` alone
        self._moved = dict.fromkeys(probes, 0.0)  # -> `_elapsed` at the last sign, written by `look` alone
        self._then = clock()

    def start(self) -> None:
        """Start both threads."""
        for name, step, ticks in (("look", self.look, LOOK_TICKS), ("count", self.count, 1)):
            arguments = step, ticks * self._tick_s
            threading.Thread(target=self._repeat, args=arguments, name=f"watchdog-{name}", daemon=True).start()

    def stop(self) -> None:
        """End both threads; `fire` is not called any more."""
        self._done.set()

    def quiet_s(self) -> float:
        """Seconds since the last progress of the loop that has made none for the longest time."""
        return self._elapsed - min(self._moved.values(), default=self._elapsed)

    def look(self) -> None:
        """Ask for all probes; one that cannot be had is none."""
        for name, sign in self._probes.items():
            try:
                found = sign()
            except Exception:
                continue
            if found is None or found != self._seen.get(name):
                self._seen[name] = found
                self._moved[name] = self._elapsed

    def count(self) -> None:
        """Add the time since the last call, and fire if a loop has made no progress for too long."""
        now = self._clock()
        self._elapsed += min(now - self._then, LONGEST_TICK * self._tick_s)
        self._then = now
        stalled = [name for name, moved in self._moved.items() if self._elapsed - moved > self._stall_s]
        if stalled and not self._done.is_set():
            self.stop()
            self._fire(stalled[0])

    def _repeat(self, step: Callable[[], None], every_s: float) -> None:
        while not self._done.wait(every_s):
            step()
