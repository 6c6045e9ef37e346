"""Gold tables that could not be computed or written, and the time of each next attempt."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from spark_app.model.errors import last_message_line
from spark_app.model.log import log

PAUSES_S = (0.0, 10.0, 60.0, 600.0)  # after the first failure in a row, the second, and so on


@dataclass(frozen=True)
class Failure:
    """The last error of a table.

    Attributes:
        times: number of consecutive failures.
        again_at: time of the next attempt in monotonic seconds.
    """

    reason: str
    times: int
    again_at: float


class TableFailures:
    """Failures by routing name, in memory only: after a restart all tables are attempted immediately."""

    def __init__(self) -> None:
        self._found: dict[str, Failure] = {}

    def add(self, name: str, table: str, error: Exception) -> None:
        """Store and log the failure of a table; the pause before the next attempt grows with each one."""
        times = self._found[name].times + 1 if name in self._found else 1
        pause = PAUSES_S[min(times, len(PAUSES_S)) - 1]
        self._found[name] = Failure(last_message_line(error), times, time.monotonic() + pause)
        log.error("gold table failed: it is recomputed later", table=table, reason=last_message_line(error), in_s=pause)

    def clear(self, names: Iterable[str]) -> None:
        """Remove tables that were written."""
        for name in names:
            self._found.pop(name, None)

    def any_due(self) -> bool:
        """Whether the pause of a failed table is over."""
        return len(self._found) > len(self.waiting())

    def waiting(self) -> set[str]:
        """The failed tables whose pause is not over."""
        now = time.monotonic()
        return {name for name, failure in self._found.items() if failure.again_at > now}

    def reasons(self) -> dict[str, str]:
        return {name: failure.reason for name, failure in self._found.items()}
