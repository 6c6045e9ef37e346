"""The counts of a run and its progress line. Input: sent records and the broker's reports. Output: lines on stderr."""

import sys
import time
from collections import Counter
from typing import Any

_INTERVAL_S = 10.0


def print_line(line: str) -> None:
    """Print one line for the user."""
    print(f"producer: {line}\n", end="", file=sys.stderr, flush=True)


class Progress:
    """Counts the sent, acknowledged and failed records, by version; prints a line every ten seconds."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.failed = 0
        self.reasons: set[str] = set()
        self._sorts: Counter[str] = Counter()
        self._told_at = time.monotonic()
        self._told_sent = 0

    def add(self, label: dict[str, Any]) -> None:
        """Count one more sent record; `label` describes it in its acknowledgement."""
        self.sent += 1
        self._sorts["poison" if label["poison"] else f"v{label['version']}"] += 1

    def fail(self, reason: str) -> None:
        """Count a record that the broker or the client has given up."""
        self.failed += 1
        self.reasons.add(reason)

    def report_if_due(self) -> None:
        """Print the line if ten seconds have passed since the last one."""
        if time.monotonic() - self._told_at >= _INTERVAL_S:
            self.report()

    def report(self) -> None:
        """Print the line: totals, the rate since the last line, records by version."""
        now = time.monotonic()
        rate = (self.sent - self._told_sent) / max(now - self._told_at, 1e-6)
        sorts = "".join(f" {sort}={many}" for sort, many in sorted(self._sorts.items()))
        failed = f"failed={self.failed}" + (f" ({'; '.join(sorted(self.reasons))})" if self.reasons else "")
        print_line(f"sent={self.sent} acknowledged={self.acknowledged} {failed} rate={rate:.0f}/s{sorts}")
        self._told_at, self._told_sent = now, self.sent
