"""Writes the table of events: the follower `events`.

Each commit has the rows of some consecutive units together with two Delta transactions: the last of these units, and
the last spooled event. So after a crash each event is in the table once: the transaction, and not the cursor in the
lake, says where the table goes on.
"""

from __future__ import annotations

import datetime
import itertools
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.followers.events import spool
from spark_app.followers.events.unit_events import unit_events
from spark_app.followers.follower import Follower, Units
from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.columns import Comments
from spark_app.model.events import RUN_ID, Event, EventRow
from spark_app.model.log import log
from spark_app.settings.models import Settings

MOST_UNITS = 100  # per commit: with a thousand tables the counts of a unit take 0.1 MiB
EXPIRE_EVERY_S = 3600.0
TIME = pa.timestamp("us", tz="UTC")
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
        layout = settings.layout
        self.interval_s = settings.events.interval_s
        self._keep_s = settings.events.keep_days * 86_400
        self._lake = lake
        self._layout = layout
        self._table = layout.events
        self._app = f"{lake.identity()}/events"
        self._synced = synced
        self._handles = Tables(lake, settings.lake, layout)
        self._maintainer = Maintainer(self._handles, settings.lake, synced)
        self._compression = settings.lake.compression
        self._unit = 0  # the last one in the table
        self._moved: dict[str, int] = {}  # writer -> number of its last event in the table
        self._next_expiry = 0.0

    def begin(self, stored: int | None, newest: int) -> int:
        """Open the table, or create it: it begins with the next unit.

        Raises:
            ContractError: its log needs what the app does not support.
        """
        self._handles.forget(self._table)
        self._moved.clear()
        table = self._handles.get(self._table)
        if table is None:
            table = self._create(newest)
        delta_log.check(self._table, table)
        self._unit = table.transaction_version(self._app) or 0
        for writer in spool.writers(self._lake):
            self._moved_of(writer)
        self._maintainer.count_files([self._table])
        return self._unit

    def _create(self, applied: int) -> DeltaTable:
        self._synced.forget(self._table)
        with failpoints.around("events.commit"):
            self._handles.begin_by_rows(self._table, SCHEMA, [], [(self._app, applied)], COMMENTS)
        if applied:
            log.info("the table of events begins", table=self._table, after_unit=applied)
        table = self._handles.get(self._table)
        assert table is not None
        return table

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
        self._maintainer.step()
        return self._unit

    def flush(self) -> None:
        """Make what is written durable: then its manifests and spooled events are no longer needed."""
        self._handles.wait_for_checkpoints()
        moved = dict(self._moved)
        self._synced.sync([self._table])
        for writer, number in moved.items():
            spool.forget(self._lake, writer, number)

    def _moved_of(self, writer: str) -> int:
        """The number of a writer's last event in the table."""
        if writer not in self._moved:
            self._moved[writer] = self._handles.handle(self._table).transaction_version(f"{self._app}/{writer}") or 0
        return self._moved[writer]

    def _commit(self, rows: Sequence[EventRow], unit: int, moved: Mapping[str, int]) -> None:
        """
        Args:
            unit: the last one in the table after this commit.
            moved: writer -> number of its last event in the table after this commit, for those with new events.
        """
        name, storage = f"events-{uuid.uuid4().hex}.parquet", self._lake.storage
        folder = self._lake.table(self._table)
        cursors = [*((f"{self._app}/{writer}", number) for writer, number in moved.items()), (self._app, unit)]
        entry = files.write_file(storage, folder, name, to_arrow(rows), self._compression, durable=False)
        try:
            if self._handles.version(self._table) is None:
                raise FileNotFoundError(f"{self._table} was removed")
            with failpoints.around("events.commit"):
                version = self._handles.commit_rows(self._table, [entry], self._expired(), cursors)
        except (FileExistsError, FileNotFoundError) as error:
            storage.delete(f"{folder}/{name}")
            raise DeltaError(f"another writer has changed or removed {self._table} ({error})") from None
        self._unit = unit
        self._moved.update(moved)
        self._handles.checkpoint_if_due(self._table, version)
        self._maintainer.added(self._table, 1)

    def _expired(self) -> list[str]:
        """Files whose events are all older than the table keeps them; looked for once an hour."""
        if time.monotonic() < self._next_expiry:
            return []
        self._next_expiry = time.monotonic() + EXPIRE_EVERY_S
        table = self._handles.get(self._table)
        actions = table.get_add_actions(flatten=True) if table is not None else None
        if actions is None or "max.happened_at" not in actions.schema.names:
            return []
        oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=self._keep_s)
        newest = zip(actions["path"].to_pylist(), actions["max.happened_at"].to_pylist(), strict=True)
        return [path for path, at in newest if at is not None and at < oldest]


def _gap_event(cursor: int, gap: int) -> EventRow:
    text = f"The manifests of units {cursor + 1} to {gap} were removed before their events were written"
    event = Event("gap", text, "WARN", details={"units": [cursor + 1, gap]})
    return EventRow.of(event, f"gap/{cursor + 1}-{gap}", int(time.time() * 1e6), RUN_ID, gap)


def to_arrow(rows: Iterable[EventRow]) -> pa.Table:
    """Rows of `SCHEMA`, which are written now."""
    written_at = int(time.time() * 1e6)
    return pa.Table.from_pylist([{**asdict(row), "written_at": written_at} for row in rows], SCHEMA)
