"""Moves the ledgers of the sinks into the tables `sink_calls` and `sink_rejects`: the follower `sinks` of the app."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from posixpath import basename
from typing import Any

import pyarrow as pa

from spark_app.followers.follower import Follower, Units
from spark_app.followers.sinks.ledger import ledger_folder, writer_of
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.spooled_table import TIME, Kept, SpooledTable
from spark_app.lake.lake import Lake
from spark_app.lake.spool import Spool
from spark_app.model.columns import Comments, Path
from spark_app.settings.models import Settings

MOST_LINES = 100_000  # of a commit
KEEP_DAYS = 30.0
COMMON = [("sink", pa.string()), ("number", pa.int64()), ("key", pa.string()), ("table", pa.string())]
CALL_SCHEMA = pa.schema(
    [
        *COMMON,
        ("unit", pa.int64()),
        ("result", pa.string()),
        ("rows", pa.int64()),
        ("gone", pa.int64()),
        ("status", pa.int64()),
        ("attempts", pa.int64()),
        ("milliseconds", pa.float64()),
        ("request", pa.string()),
        ("answer", pa.string()),
        ("at", TIME),
    ]
)
REJECT_SCHEMA = pa.schema(
    [*COMMON, ("row", pa.string()), ("status", pa.int64()), ("answer", pa.string()), ("at", TIME)]
)
OF_BOTH: dict[Path, str] = {
    ("sink",): "Name of the sink in the settings",
    ("number",): "Number of the call in the ledger of the sink",
    ("key",): "Idempotency key of the call",
    ("table",): "Table of its rows",
    ("status",): "Status of the last answer, such as that of HTTP; 0 = none",
    ("answer",): "Begin of the last answer, if the call was not accepted",
    ("at",): "When its end was known, UTC",
}
CALL_COMMENTS = Comments(
    own={
        **OF_BOTH,
        (): "One row per call of a sink whose end is known",
        ("unit",): "Last unit that the plan of the call includes",
        ("result",): "accepted, divided (refused, and sent in smaller calls), rejected, or gone",
        ("rows",): "Rows of the call",
        ("gone",): "Rows of it that silver had no longer",
        ("attempts",): "How often it was sent",
        ("milliseconds",): "From the first attempt to the end",
        ("request",): "Request by which it was sent again; empty = it was not",
    }
)
REJECT_COMMENTS = Comments(
    own={
        **OF_BOTH,
        (): "One row per row that a sink has not delivered",
        ("row",): "Its coordinates, or the row, as JSON",
    }
)

CALLS = Kept(CALL_SCHEMA, CALL_COMMENTS, "at", KEEP_DAYS)
REJECTS = Kept(REJECT_SCHEMA, REJECT_COMMENTS, "at", KEEP_DAYS)


class SinkTables(Follower):
    """It follows no unit."""

    name = "sinks"
    recomputes = True

    def __init__(self, lake: Lake, settings: Settings, synced: DurabilityMark):
        self.interval_s = settings.events.interval_s
        self._lake = lake
        self._identity = lake.identity()
        layout = settings.layout
        self._tables = (
            SpooledTable(lake, settings, synced, layout.sink_rejects, REJECTS, step="sink.tables"),
            SpooledTable(lake, settings, synced, layout.sink_calls, CALLS, step="sink.tables"),
        )
        self._has_sinks = bool(settings.all_sinks)
        self._is_open = False

    def begin(self, stored: int | None, newest: int) -> int:
        self._is_open = False
        self._has_sinks = self._has_sinks or bool(self._lake.storage.list(self._lake.sinks))
        return newest

    def follow(self, units: Units) -> int:
        """Move the lines of all sinks."""
        for key in self._lake.storage.list(self._lake.sinks) if self._has_sinks else ():
            name = basename(key)
            spool = Spool(self._lake.storage, ledger_folder(self._lake.sink(name)))
            if spool.files():
                self._move(name, writer_of(self._identity, name), spool)
        for table in self._tables if self._is_open else ():
            table.step()
        return units.upto

    def _move(self, name: str, writer: str, spool: Spool) -> None:
        for table in self._tables if not self._is_open else ():
            if not table.begin():
                table.create([(writer, 0)])
        self._is_open = True
        rejects, calls = self._tables
        after = calls.transaction(writer)
        lines = dict(itertools.islice(spool.read(after).items(), MOST_LINES))
        # Rejects first: what is in the table of calls needs no second look.
        known = max(after, rejects.transaction(writer))
        rows = [row for number, line in lines.items() if number > known for row in _rejects(name, number, line)]
        if rows:
            rejects.commit(pa.Table.from_pylist(rows, REJECTS.schema), [(writer, max(lines))])
        if lines:
            found = [_call(name, number, line) for number, line in lines.items()]
            calls.commit(pa.Table.from_pylist(found, CALLS.schema), [(writer, max(lines))])

    def flush(self) -> None:
        for table in self._tables if self._is_open else ():
            table.sync()


def _common(name: str, number: int, line: Mapping[str, Any]) -> dict[str, Any]:
    return {"sink": name, "number": number, **{one: line[one] for one in ("key", "table", "status", "answer", "at")}}


def _call(name: str, number: int, line: Mapping[str, Any]) -> dict[str, Any]:
    more = {one: line[one] for one in ("unit", "result", "gone", "attempts", "request")}
    rows = line["stop"] - line["start"]
    return {**_common(name, number, line), **more, "rows": rows, "milliseconds": line["ms"]}


def _rejects(name: str, number: int, line: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**_common(name, number, line), "row": row} for row in line["rejects"]]
