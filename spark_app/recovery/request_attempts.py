"""Counts consecutive attempts of a request without progress, also across crashes of the process.

A request survives the end of the JVM at any step. A request that ends the JVM each time fails after `MOST` attempts.
"""

from __future__ import annotations

from typing import Any

from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.lake import Lake
from spark_app.recovery.requests import Request, key_of

MOST = 10
NO_REASON_KNOWN = "the process ended for an unknown reason"


class RequestAttempts:
    """The attempts of one request. A change of its progress file or of its `attempts` file is progress; the latter has
    the attempts of single records, which `units/driver/size_backoff` counts and limits."""

    def __init__(self, lake: Lake, request: Request):
        self._storage = lake.storage
        self._key = key_of(request, "tries")
        self._progress_files = [key_of(request, what) for what in ("progress", "attempts")]
        self._stored: dict[str, Any] = {}

    def begin(self) -> str | None:
        """Count an attempt before it is made; returns the last error if there were too many attempts, else None."""
        stored = read_json(self._storage, self._key) or {}
        at = [read_json(self._storage, key) for key in self._progress_files]
        same = stored.get("at") == at
        tries, said = (int(stored["tries"]), stored["said"]) if same else (0, NO_REASON_KNOWN)
        if tries >= MOST:
            return str(said)
        self._keep(at, tries + 1, NO_REASON_KNOWN)
        return None

    def failed(self, said: str) -> None:
        """Store the error of the current attempt."""
        self._keep(self._stored["at"], self._stored["tries"], said)

    def withdraw(self) -> None:
        """Do not count the current attempt: its error has nothing to do with the request."""
        self._keep(self._stored["at"], self._stored["tries"] - 1, NO_REASON_KNOWN)

    def _keep(self, at: list[Any], tries: int, said: str) -> None:
        self._stored = {"at": at, "tries": tries, "said": said}
        write_quickly(self._storage, self._key, self._stored, "attempt", owned=True)
