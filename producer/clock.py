"""The time of a run: the timestamp of a record, the elapsed time, and the delay until the next record."""

import time
from datetime import datetime
from typing import Protocol

_AHEAD_S = 0.005
_BEHIND_S = 1.0
_STEP_US = 1000  # between records of a run with a fixed start and no rate


class Clock(Protocol):
    """The time of a record by its number (counted from 0)."""

    def now_us(self, record: int) -> int:
        """Microseconds since 1970, UTC."""

    def elapsed(self, record: int) -> float:
        """Seconds since the run began."""


class SystemClock:
    """The machine's time."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def now_us(self, record: int) -> int:
        """Microseconds since 1970, UTC, for any record."""
        return time.time_ns() // 1000

    def elapsed(self, record: int) -> float:
        """Seconds since this clock was created, for any record."""
        return time.monotonic() - self._began


class RecordClock:
    """Time that depends on the record number only, so that two runs are equal byte by byte."""

    def __init__(self, start: datetime, rate: float) -> None:
        self._start_us = round(start.timestamp() * 1_000_000)
        self._step_us = 1_000_000 / rate if rate else _STEP_US

    def now_us(self, record: int) -> int:
        """Start time plus one step per record."""
        return self._start_us + int(record * self._step_us)

    def elapsed(self, record: int) -> float:
        """Seconds of simulated time since the first record."""
        return record * self._step_us / 1_000_000


class Pace:
    """Spreads records evenly over time; no burst follows a pause of the broker."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def delay(self) -> float:
        """Seconds until the next record; 0 below a few milliseconds, which are too short to sleep."""
        ahead = self._due - time.monotonic() if self._rate else 0.0
        return ahead if ahead > _AHEAD_S else 0.0

    def step(self) -> None:
        """Call after each record."""
        if self._rate:
            self._due = max(self._due, time.monotonic() - _BEHIND_S) + 1 / self._rate
