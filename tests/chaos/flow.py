"""Runs the app on a long backlog, so that each fault hits a batch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil  # type: ignore[import-untyped]

from tests.chaos.stage import Stage, kill

SMALL_BATCHES = {"BATCH__INTERVAL_S": "0.3", "BATCH__MAX_RECORDS": "300", "GOLD__INTERVAL_S": "2"}
LONGEST_START_S = 300.0  # on a busy machine


class Flow:
    """The running app.

    Attributes:
        app: the process, in its own process group.
        faults: unexpected behaviour of the process; `finish` adds the differences between Kafka and the tables.
    """

    def __init__(self, stage: Stage, **settings: str):
        self.stage = stage
        self.faults: dict[str, object] = {}
        self._settings = settings
        self.app = stage.start(**settings)
        self.starts = 1

    def unit(self) -> int:
        """The last ingest unit that this or an earlier process committed."""
        return self.stage.unit()

    def await_units(self, count: int = 1, timeout: float = LONGEST_START_S) -> float:
        """Seconds until so many further units are committed; the timeout if they are not."""
        began, before = time.monotonic(), self.unit()
        while self.unit() < before + count:
            if time.monotonic() - began > timeout or self.app.poll() is not None:
                return timeout
            time.sleep(0.1)
        return time.monotonic() - began

    def await_start(self) -> None:
        """Wait until a new process commits its first unit."""
        began = time.monotonic()
        while self.stage.status().get("pid") != self.app.pid or not self.stage.status().get("batch"):
            if self.app.poll() is not None or time.monotonic() - began > LONGEST_START_S:
                raise AssertionError(f"the app did not start: {self.stage.lines()[-3:]}")
            time.sleep(0.1)

    def restart(self, **settings: str) -> None:
        """Start a new process after the old one has ended."""
        self.app = self.stage.start(**(self._settings | settings))
        self.starts += 1

    def restart_with_environment(self, more: dict[str, str], **settings: str) -> None:
        """As `restart`, with additional environment variables for this process only."""
        before = os.environ.copy()
        os.environ.update(more)
        try:
            self.restart(**settings)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def jvm(self) -> psutil.Process | None:
        return next((p for p in self._descendants() if p.name() == "java"), None)

    def workers(self) -> list[psutil.Process]:
        """The Python workers, busy or idle: children of the daemon."""
        python = [p for p in self._descendants() if "spark_app.units.spark.daemon" in _command(p)]
        return [p for p in python if _parent(p) in {q.pid for q in python}]

    def _descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            found: list[psutil.Process] = psutil.Process(self.app.pid).children(recursive=True)
            return found
        return []

    def stop(self, within_s: float = 30.0) -> tuple[int | None, float]:
        """Send SIGTERM; returns the exit code (None if the process did not end in time) and the seconds it took."""
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.app.pid, signal.SIGTERM)
        try:
            code: int | None = self.app.wait(within_s)
        except subprocess.TimeoutExpired:
            code = None
        kill(self.app)
        return code, time.monotonic() - began

    def finish(self) -> dict[str, Any]:
        """Stop, ingest the rest in large batches, and verify all records; returns the faults."""
        if self.app.poll() is None:
            code, _ = self.stop()
            if code != 0:
                self.faults["stop"] = code
        codes = self.stage.drain(timeout=600, BATCH__MAX_RECORDS="200000")
        if codes[-1] != 0:
            self.faults["drain"] = codes
        return self.faults | self.stage.verify()


@contextlib.contextmanager
def flowing(stage: Stage, **settings: str) -> Iterator[Flow]:
    """The app in small batches, with work; killed at the end of the block if it still runs."""
    flow = Flow(stage, **(SMALL_BATCHES | settings))
    try:
        flow.await_start()
        yield flow
    finally:
        kill(flow.app)


def _command(process: psutil.Process) -> list[str]:
    try:
        found: list[str] = process.cmdline()
        return found
    except psutil.Error:
        return []


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0
