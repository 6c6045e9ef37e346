"""Time as a run sees it: what time a record carries, how far the run is, and when the next record may leave."""

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
        """Microseconds since 1970, whatever the record."""
        return time.time_ns() // 1000

    def elapsed(self, record: int) -> float:
        """Seconds since this clock was made, whatever the record."""
        return time.monotonic() - self._began


class RecordClock:
    """Time that follows the record number alone, so that two runs are equal byte by byte."""

    def __init__(self, start: datetime, rate: float) -> None:
        self._start_us = round(start.timestamp() * 1_000_000)
        self._step_us = 1_000_000 / rate if rate else _STEP_US

    def now_us(self, record: int) -> int:
        """Start plus one step per record."""
        return self._start_us + int(record * self._step_us)

    def elapsed(self, record: int) -> float:
        """Seconds of made-up time since the first record."""
        return record * self._step_us / 1_000_000


class Pace:
    """Spreads records evenly over time; a pause of the broker is not made up for with a burst."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def delay(self) -> float:
        """Seconds that the next record still has to wait; a few milliseconds are not worth a sleep."""
        ahead = self._due - time.monotonic() if self._rate else 0.0
        return ahead if ahead > _AHEAD_S else 0.0

    def step(self) -> None:
        """One record has left."""
        if self._rate:
            self._due = max(self._due, time.monotonic() - _BEHIND_S) + 1 / self._rate
