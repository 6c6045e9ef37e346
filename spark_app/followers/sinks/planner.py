"""Plans the calls of a sink from the units of silver. It goes on while the target is down, so that no manifest and no
file has to be kept for it."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.followers.follower import Follower, Units
from spark_app.followers.sinks import state
from spark_app.followers.sinks.plan import Head, Part, Plan, Plans, lanes_of, number_of, unit_of
from spark_app.followers.sinks.silver_rows import COORDINATES, SilverRows
from spark_app.lake.delta.manifest import MOVING, Manifest, read_manifest
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.log import log
from spark_app.model.offsets import Offsets
from spark_app.settings.sinks import SinkSettings

MOST_ROWS = 100_000  # of a plan
# table, keys of files, their new rows; without keys, all that was sent of the table goes
Added = tuple[str, Sequence[str] | None, Iterable[pa.Table]]
MOST_ROUND = 10 * MOST_ROWS  # rows that one call of `follow` plans, or those of one unit
MOST_UNITS = 100  # of a round: with a thousand tables a manifest has megabytes


class UnitPlanner(Follower):
    """
    Attributes:
        trouble: always "": what it cannot plan it cannot go on without.
        made: the plans that were made and that nobody has taken yet.
        gone: rows of units whose files were removed before they were planned, which nobody can find by their
            coordinates alone.
    """

    trouble = ""

    def __init__(self, name: str, sink: SinkSettings, lake: Lake, folder: str, rows: SilverRows, owns: bool = False):
        """
        Args:
            name: of the sink.
            folder: the key of the folder of the sink.
            owns: a table has nothing at the target that was not sent: if its rows are renewed, they are sent anew.
        """
        self.name = f"sink.{name}"
        self._sink_name = name
        self.interval_s = sink.max_wait_s
        self.made: list[Head] = []
        self.gone = 0
        self._sink = sink
        self._lake = lake
        self._began = f"{folder}/began.json"
        self._plans = Plans(lake, folder)
        self._rows = rows
        self._owns = owns
        self._skip: dict[str, int] = {}  # table -> the last unit whose rows are in plans of the whole table

    def begin(self, stored: int | None, newest: int) -> int:
        """A new sink begins with the next unit, or with what silver has."""
        self.made.clear()
        began = read_durable(self._lake.storage, self._began)
        numbers = self._plans.numbers()
        self._lake.lease.check()  # who has taken over has other plans
        is_away = state.was_away(self._lake, self._sink_name)
        if stored is None and began is not None and not is_away:
            stored = began.get("unit")  # a crash came before the cursor was stored for the first time
        if stored is None and began is not None:
            if self._owns:
                state.request_all(self._lake, self._sink_name)
            else:
                text = "a sink was not in the settings for a while: rows of the units between are not sent"
                log.error(text, sink=self.name, units_until=newest, remedy="`protolake resend --from` sends them")
            self._skip = began.get("skip", {})
            self._write_began(unit=newest)
            state.come_back(self._lake, self._sink_name)
            return newest
        for number in numbers:
            if stored is None or unit_of(number) > stored:
                self._plans.forget(number)  # a crash came before the cursor was stored: nothing of it was sent
        if stored is None:
            if self._sink.begin == "all":
                self._store(newest, self._all_of(self._lake.tables()))
            ends = {} if self._sink.begin == "all" or not newest else self._ends(newest)
            self._write_began(ends=ends, unit=newest)
            state.come_back(self._lake, self._sink_name)
            return newest
        self._skip = (began or {}).get("skip", {})
        return stored

    def _ends(self, newest: int) -> Offsets:
        """Where the units up to this one ended: the rows behind belong to the sink, for the audit."""
        for number in reversed([one for one in self._lake.units() if one <= newest]):
            unit = read_manifest(self._lake.storage, f"{self._lake.manifests}/{number:012d}.json")
            if unit.kind in MOVING:
                return dict(unit.source["end"])
        return {}

    def _write_began(self, **changes: Any) -> None:
        """Store how the sink began: `ends`, see `_ends`, the last `unit` then, and `skip`."""
        before = read_durable(self._lake.storage, self._began) or {}
        stored = json.dumps(before | {"skip": self._skip} | changes)
        write_durably(self._lake.storage, self._began, stored, "sink.state")

    def _all_of(self, tables: Iterable[str]) -> Iterator[Added]:
        """The rows of whole tables."""
        for table in filter(self._rows.is_sent, tables):
            keys = sorted(self._rows.recent(table))
            handle = self._rows.tables.handle(table)
            self._skip[table] = handle.transaction_version(self._lake.known_identity()) or 0
            if self._owns:
                yield table, None, []
            yield table, keys, self._rows.added(table, keys)

    def follow(self, units: Units) -> int:
        upto, planned, taken, is_renewed = units.after, 0, list[Manifest](), False
        for unit in units:
            is_renewed = self._owns and any(unit.replaces(table) for table in unit.tables)
            if is_renewed and taken:  # alone: calls of one round that have the same rows would have one key
                break
            taken.append(unit)
            upto, planned = unit.sequence, planned + sum(unit.counts["silver"].values())
            if planned > MOST_ROUND or len(taken) >= MOST_UNITS or is_renewed:
                break
        else:
            upto = units.upto
        self._store(upto, itertools.chain.from_iterable(self._added(unit, self._skip) for unit in taken))
        if is_renewed:
            self._write_began()
        return upto

    def _added(self, unit: Manifest, skip: Mapping[str, int]) -> Iterator[Added]:
        """The new rows of a unit. Those of a renewal are not new, but who owns the table has it renewed.

        Args:
            skip: table -> the last unit whose rows are known.
        """
        for table, change in unit.tables.items():
            if self._owns and unit.replaces(table):
                yield from self._all_of([table])
            elif self._rows.is_sent(table) and not unit.replaces(table) and unit.sequence > skip.get(table, 0):
                keys = [f"{self._lake.table(table)}/{add.path}" for add in change.adds]
                try:
                    yield table, keys, list(self._rows.added(table, keys))
                except FileNotFoundError:
                    yield self._merged(unit, table, sum(add.rows for add in change.adds))

    def _merged(self, unit: Manifest, table: str, count: int) -> Added:
        """The rows of a unit whose files are gone, in the files that they were merged into."""
        if unit.kind != "ingest":
            self.gone += count
            text = f"{count} rows of {table} are not sent: they were placed late, and the files of their unit are gone"
            remedy = "`protolake resend --from` sends them with the rows of later units"
            log.error(text, sink=self.name, unit=unit.sequence, remedy=remedy)
            return table, [], []
        ranges = [
            (topic, partition, first, unit.source["end"][topic][partition])
            for topic, parts in unit.source["start"].items()
            for partition, first in parts.items()
        ]
        keys = self._rows.between(table, min(r[2] for r in ranges), max(r[3] for r in ranges))
        found = []
        for rows in self._rows.added(table, keys):
            inside = [_inside(rows, *one) for one in ranges]
            found.append(rows.filter(functools.reduce(pc.or_, inside)))
        return table, keys, found

    def again(self, request: str, wanted: Mapping[str, Any], units: Units) -> None:
        """Plan rows that were planned before, for a request.

        Args:
            request: its id.
            wanted: the request.
            units: those that are there.
        """
        if "from" in wanted:
            taken = [unit for unit in units if unit.sequence >= wanted["from"]]
            found = (self._added(unit, {}) for unit in taken)
            return self._store(units.upto, itertools.chain.from_iterable(found), request)
        if "all" in wanted or (self._owns and "from" in wanted):
            self._store(units.upto, self._all_of(self._lake.tables()), request)
            return self._write_began(ends={})
        columns = {table: zip(*rows, strict=True) for table, rows in wanted["rejected"].items()}
        added = [
            (table, (), [pa.table(list(map(pa.array, own)), names=COORDINATES.names).cast(COORDINATES)])
            for table, own in columns.items()
        ]
        self._store(units.upto, added, request)

    def _store(self, upto: int, added: Iterable[Added], request: str = "") -> None:
        """Write the plans of these rows."""
        place, count, waiting = 0, 0, dict[str, tuple[list[str], list[pa.Table]]]()
        for table, keys, several in added:
            if keys is None:
                if waiting:
                    self._write(upto, place, waiting, request)
                    place, count, waiting = place + 1, 0, {}
                none = Part.of(self._sink, table, self._rows.name_of(table), [], COORDINATES.empty_table())
                self._write_parts(upto, place, [replace(none, replaces=True)], request)
                place += 1
                continue
            for rows in several:
                files, found = waiting.setdefault(table, ([], []))
                files += keys
                found.append(rows)
                count += len(rows)
                if count >= MOST_ROWS:
                    self._write(upto, place, waiting, request)
                    place, count, waiting = place + 1, 0, {}
        if waiting:
            self._write(upto, place, waiting, request)

    def _write(self, upto: int, place: int, waiting: dict[str, tuple[list[str], list[pa.Table]]], request: str) -> None:
        parts = list[Part]()
        for table, (files, found) in waiting.items():
            rows = pa.concat_tables(found)
            part = Part.of(self._sink, table, self._rows.name_of(table), dict.fromkeys(files), rows)
            parts.append(part)
        self._write_parts(upto, place, parts, request)

    def _write_parts(self, upto: int, place: int, parts: Sequence[Part], request: str) -> None:
        number = number_of(upto, place, request)
        plan = Plan(number, upto, parts, request, lanes_of(self._sink, parts, number))
        self._plans.store(plan)
        self.made.append(plan.head)


def _inside(rows: pa.Table, topic: str, partition: str, first: int, end: int) -> pa.ChunkedArray:
    """Which rows are of this range of offsets."""
    of_partition = pc.and_(pc.equal(rows["_topic"], topic), pc.equal(rows["_partition"], int(partition)))
    of_range = pc.and_(pc.greater_equal(rows["_offset"], first), pc.less(rows["_offset"], end))
    return pc.and_(of_partition, of_range)
