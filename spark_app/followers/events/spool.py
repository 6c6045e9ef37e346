"""Events that are not in the table yet, in a `Spool` for each writer:

    _protolake/spool/<writer>/00001764106000000000.jsonl    {"number": 1764106000000000, "id": ..., ...}

The app moves the events of all writers into the table. While it is down, whoever wants the newest events reads these
files.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from posixpath import basename
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.lake.spool import Spool
from spark_app.model.errors import LeaseLost
from spark_app.model.events import RUN_ID, Event, EventRow
from spark_app.model.log import log

MOST_UNWRITTEN = 1000  # events that wait in memory for free disk space


class SpoolWriter:
    """Adds events, from any thread. The process must be the only one with this writer's name."""

    def __init__(self, lake: Lake, writer: str):
        self._spool = spool_of(lake, writer)
        self._adding = threading.Lock()
        self._unwritten: list[bytes] = []

    def add(self, row: EventRow) -> None:
        """Store the event durably. If the disk cannot, it is stored with the next one."""
        with self._adding:
            self._unwritten = [*self._unwritten, self._spool.numbered(asdict(row))][-MOST_UNWRITTEN:]
            try:
                self._spool.write(self._unwritten)
                self._unwritten = []
            except LeaseLost:
                self._unwritten = []  # what this process does is of no importance any more
            except OSError as error:
                log.warning("an event could not be stored, and is stored with the next one", reason=str(error))

    def put(self, rows: Sequence[EventRow]) -> None:
        """Store events durably, in one file.

        Raises:
            OSError: some of them may be stored, see `ids`.
        """
        with self._adding:
            self._spool.write([self._spool.numbered(asdict(row)) for row in rows])


def writers(lake: Lake) -> list[str]:
    """The names of all that have written events."""
    return [basename(key) for key in lake.storage.list(lake.spool)]


def read(lake: Lake, writer: str, after: int) -> dict[int, EventRow]:
    """The events of a writer after a number, in their order: number -> event."""
    return _events(spool_of(lake, writer).read(after))


def ids(lake: Lake, writer: str) -> set[str]:
    """The ids of the writer's events that are still there: at least those of its last file."""
    return {row.id for row in _events(spool_of(lake, writer).read()).values()}


def forget(lake: Lake, writer: str, upto: int) -> None:
    """Remove the files whose events all have a number up to this one."""
    spool_of(lake, writer).forget(upto)


def folder(lake: Lake, writer: str) -> str:
    """The key of the folder of a writer."""
    return f"{lake.spool}/{writer}"


def spool_of(lake: Lake, writer: str) -> Spool:
    return Spool(lake.storage, folder(lake, writer))


def _events(lines: Mapping[int, Mapping[str, Any]]) -> dict[int, EventRow]:
    found = {}
    for number, line in lines.items():
        with contextlib.suppress(TypeError):  # of another release
            found[number] = EventRow(**line)
    return found


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
