"""Counts consecutive starts without a committed unit and delays further starts, so that a restart policy does not loop.

<lake>/_protolake/starts.json    {"failed": starts since the last one that committed a unit or ended normally,
                                  "unit": the last committed unit when this start began}

The first few starts begin at once, as after any crash; each later one waits twice as long as the one before.
"""

from __future__ import annotations

import contextlib

from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.lake import Lake

IMMEDIATE_STARTS = 3  # failed starts without a wait
LONGEST_S = 600.0  # so six starts an hour at most


class StartBackoff:
    """The counter of one lake; the caller holds the lake's lock."""

    def __init__(self, lake: Lake, first_s: float):
        """`first_s` is the first wait in seconds; 0 = no start ever waits."""
        self._first_s = first_s
        self._lake = lake
        self.failed = 0

    def begin(self) -> float:
        """Count this start as failed until `succeeded`; returns the seconds that it has to wait."""
        unit = max(self._lake.units(), default=0)
        old = read_json(self._lake.here, self._lake.starts) or {}
        self.failed = int(old["failed"]) if old.get("unit") == unit else 0
        with contextlib.suppress(OSError):  # a full disk is waited for later
            write_quickly(self._lake.here, self._lake.starts, {"failed": self.failed + 1, "unit": unit}, None)
        return pause(self.failed, self._first_s)

    def succeeded(self) -> None:
        """The run ended normally: the next start does not wait."""
        self._lake.here.delete(self._lake.starts)


def pause(failed: int, first_s: float) -> float:
    """Seconds that a start waits after `failed` failed starts."""
    return 0.0 if failed < IMMEDIATE_STARTS else min(LONGEST_S, first_s * 2.0 ** min(failed - IMMEDIATE_STARTS, 20))
