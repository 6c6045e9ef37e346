"""Events that are not in the table yet: lines of JSON in files that only grow, a folder for each writer.

    _protolake/spool/<writer>/00001764106000000000.jsonl    {"number": 1764106000000000, "id": ..., ...}

A writer numbers its events in ascending order. A file is named by a number that none of the files before it has
reached. The app moves the events of all writers into the table. While it is down, whoever wants the newest events reads
these files.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from posixpath import basename

from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.errors import LeaseLost
from spark_app.model.events import RUN_ID, Event, EventRow
from spark_app.model.log import log

PER_FILE = 100  # events
MOST_UNWRITTEN = 1000  # events that wait in memory for free disk space


class SpoolWriter:
    """Adds events, from any thread. The process must be the only one with this writer's name."""

    def __init__(self, lake: Lake, writer: str):
        self._lake = lake
        self._writer = writer
        self._adding = threading.Lock()
        self._last: int | None = None  # number of the last event; None = not looked for yet
        self._key: str | None = None  # of the file at hand
        self._left = 0  # events that it may still get
        self._unwritten: list[bytes] = []

    def add(self, row: EventRow) -> None:
        """Store the event durably. If the disk cannot, it is stored with the next one."""
        with self._adding:
            self._unwritten = [*self._unwritten, self._line(row)][-MOST_UNWRITTEN:]
            try:
                self._write(self._unwritten)
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
            self._write([self._line(row) for row in rows])

    def _write(self, lines: Sequence[bytes]) -> None:
        if self._key is None or not self._left:
            self._key, self._left = f"{folder(self._lake, self._writer)}/{self._last:020d}.jsonl", PER_FILE
        try:
            with failpoints.around("spool"):
                self._lake.storage.append(self._key, b"".join(lines))
        except OSError:
            self._key = None  # the file may end within a line
            raise
        self._left -= 1

    def _line(self, row: EventRow) -> bytes:
        """The event with the next number."""
        last = _last_number(self._lake, self._writer) if self._last is None else self._last
        self._last = max(last + 1, int(time.time() * 1e6))
        return json.dumps({"number": self._last, **asdict(row)}, ensure_ascii=False).encode() + b"\n"


def writers(lake: Lake) -> list[str]:
    """The names of all that have written events."""
    return [basename(key) for key in lake.storage.list(lake.spool)]


def read(lake: Lake, writer: str, after: int) -> dict[int, EventRow]:
    """The events of a writer after a number, in their order: number -> event. The end of a line that a crash has cut is
    left out."""
    keys = _files(lake, writer)
    found: dict[int, EventRow] = {}
    for number, key in enumerate(keys):
        if number + 1 == len(keys) or _first(keys[number + 1]) > after + 1:
            found |= _lines(lake.storage.get(key))
    return {number: found[number] for number in sorted(found) if number > after}


def ids(lake: Lake, writer: str) -> set[str]:
    """The ids of the writer's events that are still there: at least those of its last file."""
    return {row.id for key in _files(lake, writer) for row in _lines(lake.storage.get(key)).values()}


def forget(lake: Lake, writer: str, upto: int) -> None:
    """Remove the files whose events all have a number up to this one. The newest file stays: it has the number after
    which the writer goes on."""
    keys = _files(lake, writer)
    done = [key for key, following in itertools.pairwise(keys) if _first(following) <= upto + 1]
    if done:
        with failpoints.around("spool.forget"):
            lake.storage.delete(*done)


def folder(lake: Lake, writer: str) -> str:
    """The key of the folder of a writer."""
    return f"{lake.spool}/{writer}"


def _files(lake: Lake, writer: str) -> list[str]:
    """The keys of a writer's files, the oldest first."""
    return [key for key in lake.storage.list(folder(lake, writer)) if key.endswith(".jsonl")]


def _first(key: str) -> int:
    return int(basename(key).removesuffix(".jsonl"))


def _last_number(lake: Lake, writer: str) -> int:
    keys = _files(lake, writer)
    return max([0, *map(_first, keys), *_lines(lake.storage.get(keys[-1]))]) if keys else 0


def _lines(data: bytes) -> dict[int, EventRow]:
    found = {}
    for line in data.splitlines(keepends=True):
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError):  # a crash has cut the line
            value = json.loads(line if line.endswith(b"\n") else b"")
            number = int(value.pop("number"))
            found[number] = EventRow(**value)
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
