"""Writes the table of events: the follower `events`.

Each commit has the rows of some consecutive units together with two Delta transactions: the last of these units, and
the last spooled event. So after a crash each event is in the table once.
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.followers.events import spool
from spark_app.followers.events.event_rows import COMMENTS, SCHEMA, to_arrow
from spark_app.followers.events.unit_events import unit_events
from spark_app.lake.delta import log_entry
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.delta.manifest import Manifest, Manifests
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.model.events import Event, EventRow
from spark_app.model.log import log
from spark_app.model.run_id import RUN_ID
from spark_app.settings.models import Settings

MOST_UNITS = 100  # per commit: with a thousand tables the counts of a unit take 0.1 MiB
SYNC_EVERY_S = 30.0
EXPIRE_EVERY_S = 3600.0
REMEDY = "start the app once with --accept-gap, which goes on without them"


class EventsTable:
    """The follower. It loses nothing: manifests are kept for it, and if some are gone, it is paused."""

    name = "events"

    def __init__(self, lake: Lake, settings: Settings, manifests: Manifests, synced: DurabilityMark, accepted: int = 0):
        """`accepted`: it goes on behind missing manifests of units up to this one."""
        layout = settings.tables.layout
        self.interval_s = settings.events.interval_s
        self._accepted = accepted
        self._keep_s = settings.events.keep_days * 86_400
        self._lake = lake
        self._layout = layout
        self._table = layout.events
        self._app = f"{lake.identity()}/events"
        self._manifests = manifests
        self._synced = synced
        self._handles = Tables(lake, settings.lake, layout)
        self._maintainer = Maintainer(self._handles, settings.lake, synced)
        self._compression = settings.lake.compression
        self._cursor: int | None = None  # None: the table is opened again
        self._moved: dict[str, int] = {}  # writer -> number of its last event in the table
        self._durable = 0
        self._why_paused: str | None = None
        self._recent: deque[Manifest] = deque(maxlen=MOST_UNITS)  # the last units, without their files
        self._next_sync = self._next_expiry = 0.0

    def offer(self, unit: Manifest) -> None:
        """Remember a unit that was just applied, so that `follow` need not read its manifest, which may have megabytes.
        The thread of ingest calls this."""
        self._recent.append(_told(unit))

    def cursor(self) -> int:
        return self._cursor or 0

    def durable(self) -> int:
        return self._durable

    def paused(self) -> str | None:
        return self._why_paused

    def follow(self) -> None:
        """Write the events of all applied units, and keep the table small."""
        self.begin()
        while self._write_some():
            pass
        if time.monotonic() > self._next_sync:
            self.close()
        self._maintainer.step()

    def begin(self) -> None:
        """Open the table, or create it: it begins with the next unit.

        Raises:
            ContractError: its log needs what the app does not support.
        """
        if self._cursor is not None:
            return
        table = self._handles.get(self._table)
        if table is None:
            table = self._create()
        log_entry.check(self._table, table)
        self._cursor = table.transaction_version(self._app) or 0
        for writer in spool.writers(self._lake):
            self._moved_of(writer)
        self._maintainer.count_files([self._table])
        self.close()

    def _create(self) -> DeltaTable:
        applied = self._manifests.applied()
        self._synced.forget(self._table)
        with failpoints.around("events.commit"):
            self._handles.begin_without_rows(self._table, SCHEMA, [(self._app, applied)], COMMENTS)
        if applied:
            log.info("the table of events begins", table=self._table, after_unit=applied)
        table = self._handles.get(self._table)
        assert table is not None
        return table

    def close(self) -> None:
        """Make what is written durable: then its manifests and spooled events are no longer needed."""
        self._handles.wait_for_checkpoints()
        cursor, moved = self.cursor(), dict(self._moved)
        self._synced.sync([self._table])
        self._durable = cursor
        for writer, number in moved.items():
            spool.forget(self._lake, writer, number)
        self._next_sync = time.monotonic() + SYNC_EVERY_S

    def _write_some(self) -> bool:
        """Make one commit; False if there was nothing to write."""
        gap = self._manifests.gone_until(self.cursor())
        self._pause(gap)
        reached = self.cursor() if self._why_paused else max(self.cursor(), gap)
        units = [] if self._why_paused else self._units(reached, self._manifests.applied())
        names = spool.writers(self._lake)
        spooled = {name: spool.read(self._lake, name, self._moved_of(name)) for name in names}
        rows = list(unit_events(self._layout, units))
        rows += [_gap_event(self.cursor(), gap)] if gap and not self._why_paused else []
        rows += [row for events in spooled.values() for row in events.values()]
        if not rows:
            return False
        moved = {name: max(events) for name, events in spooled.items() if events}
        self._commit(rows, units[-1].sequence if units else reached, moved)
        return True

    def _pause(self, gap: int) -> None:
        """Pause if manifests up to the unit `gap` are gone, unless a person has accepted that."""
        was_paused, self._why_paused = self._why_paused, None
        if gap > self._accepted:
            said = _describe_gap(self.cursor(), gap)
            self._why_paused = f"{said}: {REMEDY}"
            if not was_paused:
                log.error("the events of units are paused", reason=said, remedy=REMEDY)

    def _moved_of(self, writer: str) -> int:
        """The number of a writer's last event in the table."""
        if writer not in self._moved:
            self._moved[writer] = self._handles.handle(self._table).transaction_version(f"{self._app}/{writer}") or 0
        return self._moved[writer]

    def _units(self, after: int, last: int) -> list[Manifest]:
        """The next units, at most `MOST_UNITS`."""
        while self._recent and self._recent[0].sequence <= after:
            self._recent.popleft()
        recent = {unit.sequence: unit for unit in list(self._recent)}
        numbers = range(after + 1, min(last, after + MOST_UNITS) + 1)
        return [recent.get(number) or _told(self._manifests.read(number)) for number in numbers]

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
            self._open_again()
            raise DeltaError(f"another writer has changed or removed {self._table} ({error})") from None
        except (DeltaError, OSError, ContractError):
            self._open_again()  # the commit may exist
            raise
        self._cursor = unit
        self._moved.update(moved)
        self._handles.checkpoint_if_due(self._table, version)
        self._maintainer.added(self._table, 1)

    def _open_again(self) -> None:
        self._handles.forget(self._table)
        self._cursor = None
        self._moved.clear()

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


def _told(unit: Manifest) -> Manifest:
    """What `unit_events` needs of a unit: with a thousand tables the rest has megabytes."""
    return replace(unit, tables={}, counts={key: value for key, value in unit.counts.items() if key != "schema_ids"})


def _describe_gap(cursor: int, gap: int) -> str:
    return f"the manifests of units {cursor + 1} to {gap} were removed before their events were written"


def _gap_event(cursor: int, gap: int) -> EventRow:
    said = _describe_gap(cursor, gap)
    event = Event("gap", f"{said[0].upper()}{said[1:]}", "WARN", details={"units": [cursor + 1, gap]})
    return EventRow.of(event, f"gap/{cursor + 1}-{gap}", int(time.time() * 1e6), RUN_ID, gap)
