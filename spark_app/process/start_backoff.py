"""How often the app was started in a row without achieving anything, so that no restart policy makes it spin.

<lake>/_protolake/starts.json    {"failed": starts since the last one that decided a unit or ended as it should,
                                  "unit": the last one that was decided when this start began}

The first few starts come at once, as after any crash; from then on each waits twice as long as the one before.
"""

from __future__ import annotations

import contextlib

from spark_app.storage.lake import Lake, read_json, write_quickly

IMMEDIATE_STARTS = 3  # failed starts that cost no wait
LONGEST_S = 600.0  # so six starts an hour at most


class StartBackoff:
    """Of one lake; whoever holds its lock may count."""

    def __init__(self, lake: Lake, first_s: float):
        """`first_s` is the first wait in seconds; 0 = no start ever waits."""
        self._first_s = first_s
        self._path = lake.state / "starts.json"
        self._lake = lake
        self.failed = 0

    def begin(self) -> float:
        """Count this start as failed until it is not; the seconds that it has to wait."""
        unit = max(self._lake.units(), default=0)
        old = read_json(self._path) or {}
        self.failed = int(old["failed"]) if old.get("unit") == unit else 0
        with contextlib.suppress(OSError):  # a full disk is waited for later
            write_quickly(self._path, {"failed": self.failed + 1, "unit": unit}, None)
        return pause(self.failed, self._first_s)

    def succeeded(self) -> None:
        """It ended as it should: the next one need not wait."""
        self._path.unlink(missing_ok=True)


def pause(failed: int, first_s: float) -> float:
    """Seconds that a start waits after so many failed ones."""
    return 0.0 if failed < IMMEDIATE_STARTS else min(LONGEST_S, first_s * 2.0 ** min(failed - IMMEDIATE_STARTS, 20))
