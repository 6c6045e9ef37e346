"""The life cycle of one run: start (after a back-off delay if needed), progress monitoring, and exit, also when other
threads hang.

The reasons: docs/decisions/process.md.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import NoReturn

from spark_app.app import children
from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.settings.models import Run
from spark_app.units.driver.disk_space import StopRequested
from spark_app.units.driver.status import Status

WITHIN_S = 15.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """`requested` is set once the process gets a signal to stop. It may also be set to end the run for another reason.

    On SIGTERM or SIGINT the app finishes the batch and exits with 0; after `WITHIN_S` seconds it exits anyway. A thread
    reads the signal from a pipe, because Python's handlers wait for the main thread, which may be inside a library. An
    unfinished unit can be abandoned at any time: it is either committed or not.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()

    def listen(self, abandon: Callable[[], None], within_s: float = WITHIN_S) -> None:
        """Call from the main thread. `abandon` is called `within_s` seconds after the signal if the process still
        runs."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.reinstall_signal_handlers()
        threading.Thread(target=self._await, args=(read, abandon, within_s), name="stop", daemon=True).start()

    def reinstall_signal_handlers(self) -> None:
        """Set the handlers, also after a library (PySpark) has replaced them."""
        for number in SIGNALS:
            signal.signal(number, lambda *_: self.requested.set())

    def _await(self, read: int, abandon: Callable[[], None], within_s: float) -> None:
        while os.read(read, 1)[0] not in SIGNALS:
            pass
        self.requested.set()
        time.sleep(within_s)
        abandon()


IMMEDIATE_STARTS = 3  # failed starts without a wait
LONGEST_S = 600.0  # so six starts an hour at most


class StartBackoff:
    """Counts consecutive starts without a committed unit and delays further ones, so that a restart policy does not
    loop. The caller has the lake's lock.

    <lake>/_protolake/starts.json    {"failed": starts since the last one that committed a unit or ended normally,
                                      "unit": the last committed unit when this start began}

    The first few starts begin at once, as after any crash; each later one waits twice as long as the one before.
    """

    def __init__(self, lake: Lake, first_s: float):
        """`first_s` is the first wait in seconds; 0 = no start ever waits."""
        self._first_s = first_s
        self._lake = lake
        self.failed = 0

    def begin(self) -> float:
        """Count this start as failed until `succeeded`; returns the seconds that it has to wait."""
        unit = max(self._lake.units(), default=0)
        old = read_json(self._lake.local_state, self._lake.starts) or {}
        self.failed = int(old["failed"]) if old.get("unit") == unit else 0
        with contextlib.suppress(OSError):  # a full disk is waited for later
            write_quickly(self._lake.local_state, self._lake.starts, {"failed": self.failed + 1, "unit": unit}, None)
        return pause(self.failed, self._first_s)

    def succeeded(self) -> None:
        """The run ended normally: the next start does not wait."""
        self._lake.local_state.delete(self._lake.starts)


def pause(failed: int, first_s: float) -> float:
    """Seconds that a start waits after `failed` failed starts."""
    return 0.0 if failed < IMMEDIATE_STARTS else min(LONGEST_S, first_s * 2.0 ** min(failed - IMMEDIATE_STARTS, 20))


TICK_S = 1.0
LOOK_TICKS = 5  # between two looks: a probe calls the JVM, and nothing is due sooner
LONGEST_TICK = 2  # in ticks: if one takes longer, the process or the machine was stopped

ProgressProbe = Callable[[], Hashable]  # returns a value that changes with progress; None = no work to do


class Watchdog:
    """Ends the process if nothing makes progress, even if all other threads hang in Spark, the JVM or a disk.

    Two threads: one calls the progress probes and may hang itself, because they call the JVM; the other counts the
    seconds since the last progress in its own ticks, so that a stopped process (SIGSTOP, a suspended laptop) counts as
    one tick.
    """

    def __init__(
        self,
        probes: Mapping[str, ProgressProbe],
        stall_s: float,
        fire: Callable[[str], None],
        tick_s: float = TICK_S,
        clock: Callable[[], float] = time.monotonic,
    ):
        """
        Args:
            probes: name of a loop -> its progress probe.
            stall_s: seconds without progress until `fire` is called, once, with the name of the stalled loop.
        """
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
        """Call all probes; one that fails gives no progress."""
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


FINAL_STATUS_TIMEOUT_S = 5.0


class ProcessLifecycle:
    """`stop` is set by a signal to stop, or when the process ends for another reason."""

    def __init__(
        self,
        lake: Lake,
        settings: Run,
        status: Status,
        jvm_pid: Callable[[], int | None],
        emit: Callable[[Event], None] = lambda event: None,
        describe_batch: Callable[[], str] = str,
    ):
        """
        Args:
            jvm_pid: the process id of the JVM, while there is one.
            emit: gets the event of the end.
            describe_batch: the records of the current batch, for the exit message; "" = there is none.
        """
        self._describe_batch = describe_batch
        self._emit = emit
        self._lake = lake
        self._settings = settings
        self._status = status
        self._jvm_pid = jvm_pid
        self._starts = StartBackoff(lake, settings.backoff_s)
        self._watchdog: Watchdog | None = None
        self._begun = False
        self._request = StopRequest()
        self.stop = self._request.requested

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT."""
        self._request.listen(lambda: self.leave(ExitCode.DONE, "stopped; the current batch is abandoned"))

    def reinstall_signal_handlers(self) -> None:
        """Set the signal handlers again after PySpark has replaced them."""
        self._request.reinstall_signal_handlers()

    def begin(self, signs: Mapping[str, ProgressProbe]) -> None:
        """Call with the lake's lock: start the status thread, wait if earlier starts committed nothing, and start the
        watchdog.

        Raises:
            StopRequested: a signal to stop came while it waited.
        """
        self._status.start()
        self._begun = True
        seconds = self._starts.begin()
        if seconds:
            self._lake.lease.release()  # a person may repair the lake during the wait
            failed = self._starts.failed
            self._status.waiting(
                f"the last {failed} starts committed nothing, see the log: the app waits {seconds:.0f} s"
            )
            if self.stop.wait(seconds):
                raise StopRequested
            self.take_lease()
        self._watchdog = Watchdog(signs, self._settings.stall_s, self._stalled)
        self._watchdog.start()

    def take_lease(self) -> None:
        """Take the lease of the lake; the app exits when another process takes it over.

        Raises:
            UnreachableError: another process has it.
        """
        self._lake.lease.acquire(on_lost=lambda reason: self.leave(ExitCode.UNREACHABLE, reason))

    def quiet_s(self) -> float:
        """Seconds without progress."""
        return self._watchdog.quiet_s() if self._watchdog else 0.0

    def end(self, code: ExitCode, reason: str | None) -> None:
        """Write the final status and stop the watchdog, because a held app makes no progress."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if not self._begun:
            return
        self._emit(_end_event(code, reason))
        self._status.end("held" if code.held else "stopped", reason or None, bump=code == ExitCode.BUMP)
        if code.held or code in (ExitCode.DONE, ExitCode.BUMP):
            self._starts.succeeded()

    def leave(self, code: ExitCode, why: str) -> NoReturn:
        """Exit from any thread, even if others hang; all committed data is durable."""
        log.warning("exiting", reason=why, exit_code=int(code))
        last = threading.Thread(target=self.end, args=(code, why), daemon=True)
        last.start()
        last.join(FINAL_STATUS_TIMEOUT_S)  # writing the status may hang with the disk
        children.kill_all([*children.descendants(os.getpid()), *filter(None, [self._jvm_pid()])])
        os._exit(code)

    def _stalled(self, what: str) -> NoReturn:
        batch = self._describe_batch() if what == "ingest" else ""
        stalled = f"{what}: {batch}" if batch else what
        self.leave(ExitCode.UNREACHABLE, f"{stalled} made no progress for {self._settings.stall_s:.0f} s")


def _end_event(code: ExitCode, reason: str | None) -> Event:
    """The text of an error that nobody has foreseen is left to the log: it may have anything in it."""
    kind = "bump" if code is ExitCode.BUMP else "held" if code.held else "stop"
    texts = {"bump": "The app restarts for new columns", "held": "The app stops, and a person has to act"}
    why = "a bug, see the log" if code is ExitCode.BUG else reason
    text = texts.get(kind, "The app stops") + (f": {why}" if why else "")
    calm = code in (ExitCode.DONE, ExitCode.BUMP)
    return Event(kind, text, "INFO" if calm else "ERROR", details={"exit_code": int(code)})
