"""Where the app tells its events, except those that belong to a unit."""

from __future__ import annotations

import time

from spark_app.followers.events.spool import SpoolWriter
from spark_app.lake.lake import Lake
from spark_app.model.events import Event, EventRow
from spark_app.model.run_id import RUN_ID


class EventLog:
    """Stores events durably; `EventsTable` moves them into the table. Thread-safe. It never fails.

    Args:
        writer: name of the process among those that write events of the lake.
    """

    def __init__(self, lake: Lake, writer: str = "app"):
        self._spool = SpoolWriter(lake, writer)

    def add(self, event: Event) -> None:
        """Tell an event of now."""
        moment = time.time_ns()
        self._spool.add(EventRow.of(event, f"{RUN_ID}/{moment}", moment // 1000, RUN_ID, None))
