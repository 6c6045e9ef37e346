"""How often in a row a request was tried without getting any further, also when each try ended the process. A request
outlives the death of the JVM at any of its steps; one that is the death of it again and again is answered at last.
"""

from __future__ import annotations

from typing import Any

from spark_app.recovery.requests import Request, path_of
from spark_app.storage.lake import Lake, read_json, write_quickly

MOST = 10
NO_REASON_KNOWN = "the process ended for an unknown reason"


class RequestAttempts:
    """Of one request. What counts as getting further is what its files say: its progress, and the tries of its records,
    which have a count and an end of their own (`driver/attempts`)."""

    def __init__(self, lake: Lake, request: Request):
        self._path = path_of(lake, request, "tries")
        self._progress_files = [path_of(lake, request, what) for what in ("progress", "attempts")]
        self._stored: dict[str, Any] = {}

    def begin(self) -> str | None:
        """Count a try, before it is made; what the last one said, when there have been too many."""
        stored, at = read_json(self._path) or {}, [read_json(path) for path in self._progress_files]
        same = stored.get("at") == at
        tries, said = (int(stored["tries"]), stored["said"]) if same else (0, NO_REASON_KNOWN)
        if tries >= MOST:
            return str(said)
        self._keep(at, tries + 1, NO_REASON_KNOWN)
        return None

    def failed(self, said: str) -> None:
        """The try that began ended so."""
        self._keep(self._stored["at"], self._stored["tries"], said)

    def take_back(self) -> None:
        """The try that began says nothing of the request."""
        self._keep(self._stored["at"], self._stored["tries"] - 1, NO_REASON_KNOWN)

    def _keep(self, at: list[Any], tries: int, said: str) -> None:
        self._stored = {"at": at, "tries": tries, "said": said}
        write_quickly(self._path, self._stored, "attempt")
