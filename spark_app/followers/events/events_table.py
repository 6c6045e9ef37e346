"""Writes the table of events: the follower `events`.

Each commit has the rows of some consecutive units together with two Delta transactions: the last of these units, and
the last spooled event. So after a crash each event is in the table once: the transaction, and not the cursor in the
lake, says where the table goes on.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa

from spark_app.followers.events import spool
from spark_app.followers.events.unit_events import unit_events
from spark_app.followers.follower import Follower, Units
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.spooled_table import TIME, Kept, SpooledTable
from spark_app.lake.lake import Lake
from spark_app.model.columns import Comments
from spark_app.model.events import RUN_ID, Event, EventRow
from spark_app.model.log import log
from spark_app.settings.models import Settings

MOST_UNITS = 100  # per commit: with a thousand tables the counts of a unit take 0.1 MiB
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("happened_at", TIME),
        ("kind", pa.string()),
        ("level", pa.string()),
        ("run", pa.string()),
        ("unit", pa.int64()),
        ("table", pa.string()),
        ("message", pa.string()),
        ("details", pa.string()),
        ("written_at", TIME),
    ]
)
COMMENTS = Comments(
    own={
        (): "What the app has done and met; docs/events.md explains the kinds",
        ("id",): "Names the event for ever",
        ("happened_at",): "When it happened, UTC",
        ("kind",): "What happened, in one word",
        ("level",): "INFO, WARN or ERROR",
        ("run",): "The process that it happened in",
        ("unit",): "Number of the unit, or of the last of several units, that it is about",
        ("table",): "The table that it is about",
        ("message",): "What happened, in one sentence",
        ("details",): "Values of its kind, as JSON",
        ("written_at",): "When the row was written to this table, UTC",
    }
)


class EventsTable(Follower):
    """The follower. It loses nothing: manifests are kept for it, and if some are gone, it is paused."""

    name = "events"

    def __init__(self, lake: Lake, settings: Settings, synced: DurabilityMark):
        self.interval_s = settings.events.interval_s
        self._lake = lake
        self._layout = settings.layout
        self._app = f"{lake.identity()}/events"
        kept = Kept(SCHEMA, COMMENTS, "happened_at", settings.events.keep_days)
        self._table = SpooledTable(lake, settings, synced, self._layout.events, kept, step="events.commit")
        self._unit = 0  # the last one in the table
        self._moved: dict[str, int] = {}  # writer -> number of its last event in the table

    def begin(self, stored: int | None, newest: int) -> int:
        """Open the table, or create it: it begins with the next unit.

        Raises:
            ContractError: its log needs what the app does not support.
        """
        self._moved.clear()
        if not self._table.begin():
            self._table.create([(self._app, newest)])
            if newest:
                log.info("the table of events begins", table=self._table.name, after_unit=newest)
        self._unit = self._table.transaction(self._app)
        for writer in spool.writers(self._lake):
            self._moved_of(writer)
        return self._unit

    def follow(self, units: Units) -> int:
        """Write the events of the units, and keep the table small."""
        new = (unit for unit in units.without_files() if unit.sequence > self._unit)
        gap = units.gone if units.gone > self._unit else 0
        while True:
            some = list(itertools.islice(new, MOST_UNITS))
            names = spool.writers(self._lake)
            spooled = {name: spool.read(self._lake, name, self._moved_of(name)) for name in names}
            rows = [*unit_events(self._layout, some), *([_gap_event(self._unit, gap)] if gap else [])]
            rows += [row for events in spooled.values() for row in events.values()]
            if not rows:
                break
            moved = {name: max(events) for name, events in spooled.items() if events}
            self._commit(rows, some[-1].sequence if some else max(self._unit, gap), moved)
            gap = 0
        self._table.step()
        return self._unit

    def flush(self) -> None:
        """Make what is written durable: then its manifests and spooled events are no longer needed."""
        moved = dict(self._moved)
        self._table.sync()
        for writer, number in moved.items():
            spool.forget(self._lake, writer, number)

    def _moved_of(self, writer: str) -> int:
        """The number of a writer's last event in the table."""
        if writer not in self._moved:
            self._moved[writer] = self._table.transaction(f"{self._app}/{writer}")
        return self._moved[writer]

    def _commit(self, rows: Sequence[EventRow], unit: int, moved: Mapping[str, int]) -> None:
        """
        Args:
            unit: the last one in the table after this commit.
            moved: writer -> number of its last event in the table after this commit, for those with new events.
        """
        cursors = [*((f"{self._app}/{writer}", number) for writer, number in moved.items()), (self._app, unit)]
        self._table.commit(to_arrow(rows), cursors)
        self._unit = unit
        self._moved.update(moved)


def _gap_event(cursor: int, gap: int) -> EventRow:
    text = f"The manifests of units {cursor + 1} to {gap} were removed before their events were written"
    event = Event("gap", text, "WARN", details={"units": [cursor + 1, gap]})
    return EventRow.of(event, f"gap/{cursor + 1}-{gap}", int(time.time() * 1e6), RUN_ID, gap)


def to_arrow(rows: Iterable[EventRow]) -> pa.Table:
    """Rows of `SCHEMA`, which are written now."""
    written_at = int(time.time() * 1e6)
    return pa.Table.from_pylist([{**asdict(row), "written_at": written_at} for row in rows], SCHEMA)
