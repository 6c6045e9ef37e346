"""Lets the waiting rows of a paused table in, although the rule that they wait for is unchanged."""

from __future__ import annotations

from typing import Any

from spark_app.model.errors import UsageError
from spark_app.model.reports import Report
from spark_app.recovery.request_progress import load_progress, save_progress
from spark_app.recovery.requests import Request
from spark_app.units.driver.open_lake import OpenLake


class Resume:
    """One resume request. Call `step` between two units, with the unit lock."""

    def __init__(self, opened: OpenLake, request: Request):
        self._opened = opened
        self._request = request
        self._asked = request.arguments["table"]
        self._result = load_progress(opened.lake, opened.units.manifests, request)

    def step(self) -> tuple[Report, dict[str, int]] | None:
        """Execute one step: look for the table, or commit the decision, after which the app lets the rows in.

        Returns:
            (an empty report, {}); None if the request is done.

        Raises:
            UsageError: no such table is paused.
        """
        if self._result is None:
            self._find_name()
            self._result = {}
            save_progress(self._opened.lake, self._opened.units.manifests, self._request, self._result)
            return Report(), {}
        if not self._result:
            self._result = self._decide(self._find_name())
        return None

    def conclude(self) -> dict[str, Any]:
        """The result, after the last step."""
        assert self._result is not None
        return self._result

    def _decide(self, name: str) -> dict[str, Any]:
        pause, failing = self._opened.paused.pauses[name], self._request.arguments["failing"]
        result = {"table": name, "rule": pause.rule, "rows": pause.rows, "failing": failing}
        self._opened.resume(name, failing, {"request": self._request.id, "records": 0, "progress": result})
        return result

    def _find_name(self) -> str:
        """The routing name of the table, which a person may name as the silver table, too."""
        layout, paused = self._opened.settings.tables.layout, self._opened.paused.pauses
        found = next((name for name in paused if self._asked in (name, layout.silver_of(name))), None)
        if found is None:
            raise UsageError(f"no paused table is named {self._asked}; paused: {', '.join(sorted(paused)) or 'none'}")
        return found
