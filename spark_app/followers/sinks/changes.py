"""Plans the calls of a sink from tables whose rows change: gold, and tables by SQL.

    _protolake/sinks/crm/sent.json                     {"round": 7, "tables": {"gold_uno_player_agg": 7, ...}, "target"}
    _protolake/sinks/crm/sent/000000000007-000.plan    of each table: the keys, and a hash of the row of each

A table is read when it has a new version. What is new, changed or gone since it was read last is planned: so a row that
is computed anew without another value is not sent again, and where the table cannot say what has changed, the hashes
can. `sent.json` is written last: what a crash has left without it is removed and planned anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.followers.follower import MOST_BYTES, MOST_ROWS, Follower, Units
from spark_app.followers.sinks.plan import Head, Part, Plan, Plans, lanes_of, number_of, unit_of
from spark_app.followers.sinks.silver_rows import ENGINE
from spark_app.followers.sinks.sink import DELETE, OPERATION, UPSERT, Sink
from spark_app.lake import sql_tables
from spark_app.lake.delta.parquet import read_batches
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.files.state_files import read_durable, read_json, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.model.gold_functions import STATE
from spark_app.model.table_names import GOLD, TableNames, is_made_by, name_in
from spark_app.model.text import near, quoted
from spark_app.settings.models import Settings
from spark_app.settings.sinks import EVERY
from spark_app.tables.expectations.checks import binding_problem
from spark_app.tables.sql.engine import connection, failures

HASH = "_protolake_hash"
UNSENT = 0  # no hash, but for one row in 10^19
MOST_PLANNED = 100_000  # rows, of a plan that has more than one table
NAME = "{name}"


class ChangePlanner(Follower):
    """
    Attributes:
        made: see `UnitPlanner`.
        gone: always 0: what is not there any more is told.
        trouble: which tables it cannot plan, and why, where it goes on with the others.
    """

    recomputes = True
    gone = 0

    def __init__(self, name: str, settings: Settings, lake: Lake, target: Sink):
        """
        Args:
            name: of the sink.
            target: whether it `can_replace`, and whether it has `owns_tables`: then a table has nothing there that was
                not sent.
        """
        self.name = f"sink.{name}"
        self.made: list[Head] = []
        self.trouble = ""
        self._setting = f"sinks.{name}"
        self._sink = settings.all_sinks[name]
        self.interval_s = self._sink.max_wait_s
        self._lake = lake
        self._layout = settings.layout
        self._settings = settings
        self._can_replace = target.can_replace
        self._owns = getattr(target, "owns_tables", False)
        self._target = hashlib.sha256(repr(self._sink.target).encode()).hexdigest()[:16]
        folder = lake.sink(name)
        self._plans, self._sent_files = Plans(lake, folder), Plans(lake, folder, "sent")
        self._state = f"{folder}/sent.json"
        self._tables = Tables(lake, settings.lake, settings.layout)
        self._round = 0
        self._rounds: dict[str, int] = {}  # table -> the round in which it was read last
        self._sent: dict[str, pa.Table] = {}
        self._emptied: list[str] = []  # tables whose rows at the target go before those of the next plan
        self._versions: dict[str, int] = {}

    def begin(self, stored: int | None, newest: int) -> int:
        self.made.clear()
        found = read_durable(self._lake.storage, self._state) or {"round": 0, "tables": {}}
        self._round = found["round"]
        self._rounds = found["tables"] if found.get("target") == self._target else {}  # another one has nothing yet
        self._versions.clear()
        self._sent.clear()
        self._emptied.clear()
        numbers = self._plans.numbers()
        self._lake.lease.check()  # who has taken over has other plans
        for number in numbers:
            if unit_of(number) > self._round:
                self._plans.forget(number)  # a crash came before `sent.json`: nothing of it was sent
        needed = set(self._rounds.values())
        for number in self._sent_files.numbers():
            if unit_of(number) not in needed:
                self._sent_files.forget(number)
                continue
            for part in self._sent_files.read(number).parts:
                if self._rounds.get(part.table) == unit_of(number):
                    self._sent[part.table] = part.rows
        return newest

    def follow(self, units: Units) -> int:
        """Look for new versions of the tables."""
        parts, sent, versions, troubles = list[Part](), list[Part](), dict[str, int](), list[str]()
        chosen = dict(self._chosen())
        if self._owns and (gone := self._rounds.keys() - chosen.keys()):
            self._forget(gone)
        for table, name in chosen.items():
            handle = self._tables.look_again(table)
            if handle is None or handle.version() == self._versions.get(table):
                continue
            try:
                found = self._changes(table, name)
            except ConfigurationError as error:
                if self._sink.source != EVERY:
                    raise
                troubles.append(str(error))
                continue
            versions[table] = handle.version()
            if found is not None:
                parts.append(found[0])
                sent.append(Part(table, name, [], found[1]))
            if sum(len(part.rows) for part in parts) >= MOST_PLANNED:
                self._store(units.upto, parts, sent)
                self._versions |= versions
                parts, sent = [], []
        if parts:
            self._store(units.upto, parts, sent)
        self._versions |= versions
        self.trouble = "; ".join(troubles)
        return units.upto

    def _chosen(self) -> Iterator[tuple[str, str]]:
        """(table, routing name) of the tables whose rows leave."""
        first, _, kind = self._sink.source.partition(".")
        pattern = self._layout.pattern_of(kind or GOLD) if first == "gold" else self._sink.source
        if pattern == EVERY:
            return every_table(self._lake, self._layout)
        return self._of_pattern(pattern)

    def _of_pattern(self, pattern: str) -> Iterator[tuple[str, str]]:
        for table in self._lake.storage.list(""):
            if pattern == table:
                yield table, ""
            elif NAME in pattern and is_made_by(pattern, table):
                name = name_in(pattern, table)
                if name in (self._sink.tables or (name,)):
                    yield table, name

    def _changes(self, table: str, name: str) -> tuple[Part, pa.Table] | None:
        """(what is to be sent, the keys and hashes of all rows); None if nothing has changed."""
        columns = self._tables.columns(table)
        assert columns is not None
        keys = self._keys(table, columns)
        rows = self._rows(table, columns, keys)
        with ENGINE:
            return self._compared(table, name, keys, rows)

    def _compared(self, table: str, name: str, keys: list[str], rows: pa.Table) -> tuple[Part, pa.Table] | None:
        if not keys:
            rows = rows.append_column(OPERATION, pa.array([UPSERT] * len(rows)))
            before = self._sent.get(table)
            sums = pa.table({HASH: [hashlib.sha256(np.sort(_hashes(rows).to_numpy()).tobytes()).hexdigest()]})
            if before is not None and before.equals(sums):
                return None
            return replace(Part.of(self._sink, table, name, [], rows), replaces=True), sums
        now = rows.select(keys).append_column(HASH, _hashes(rows))
        before = self._sent.get(table)
        if before is None or before.schema != now.schema:  # by another key, or without one
            if self._owns or (self._can_replace and before is not None):
                self._emptied.append(table)
            before = now.slice(0, 0)
        changed, gone = _differences(now, before, keys)
        if not len(changed) and not len(gone) and table not in self._emptied:
            return None
        nulls = {f.name: pa.nulls(len(gone), f.type) for f in rows.schema if f.name not in keys}
        left = pa.table({**{key: before[key].take(gone) for key in keys}, **nulls}).select(rows.column_names)
        found = pa.concat_tables([rows.take(changed), left.cast(rows.schema)])
        operations = pa.array([UPSERT] * len(changed) + [DELETE] * len(gone))
        return Part.of(self._sink, table, name, [], found.append_column(OPERATION, operations), keys), now

    def _keys(self, table: str, columns: pa.Schema) -> list[str]:
        kind = self._layout.gold_kind(table)
        own = sql_tables.read(self._lake, table) if kind is None else None
        named = self._sink.key or (self._settings.gold_key(kind) if kind else own.key if own else ())
        known = {name.casefold(): name for name in columns.names}
        for name in (*named, *self._sink.columns):
            if name.casefold() not in known:
                raise ConfigurationError(f"{self._setting}: {table} has no column {name}; {near(name, columns.names)}")
        if not named and not self._can_replace:
            text = f"{self._setting}.key: no columns name the rows of {table}"
            raise ConfigurationError(f"{text}: set some, or a kind of sink that replaces tables, such as postgres")
        return [known[name.casefold()] for name in named]

    def _rows(self, table: str, columns: pa.Schema, keys: Sequence[str]) -> pa.Table:
        """The columns to send of the rows to send."""
        where = self._sink.where
        with ENGINE:
            problem = binding_problem(where, columns) if where else None
        if problem:
            raise ConfigurationError(f"{self._setting}.where: {problem}, in {table}")
        files = self._tables.files(table)
        batches = (
            batch
            for key in files
            for batch in read_batches(self._lake.storage, key, columns, columns.names, MOST_ROWS, MOST_BYTES)
        )
        rows = pa.Table.from_batches(batches, columns)
        if where:
            with ENGINE:
                rows = rows.filter(pa.array(failures(rows, [where]) == 0))
        named = {name.casefold() for name in (*self._sink.columns, *keys)}
        return rows.select(
            [n for n in columns.names if (n.casefold() in named if self._sink.columns else not n.startswith(STATE))]
        )

    def _store(self, unit: int, parts: Sequence[Part], sent: Sequence[Part]) -> None:
        number = number_of(self._round + 1, 0)
        plans = [Plan(number, unit, parts, lanes=lanes_of(self._sink, parts, number))]
        # A table with another key, or of which nobody knows what is there, is emptied first. Its rows are not in one
        # call with that: it may be large, and a row that is refused would keep out all of them.
        new = [part for part in parts if part.table in self._emptied]
        emptied = [replace(part, rows=part.rows.slice(0, 0), replaces=True) for part in new]
        if emptied:
            plans[0] = replace(plans[0], number=number_of(self._round + 1, 1))
            plans.insert(0, Plan(number, unit, emptied, lanes=lanes_of(self._sink, emptied, number)))
        self._emptied.clear()
        for plan in plans:
            self._plans.store(plan)
        self._sent_files.store(Plan(number, unit, sent))
        self._round += 1
        self._remember(self._rounds | dict.fromkeys((part.table for part in sent), self._round))
        self.made.extend(plan.head for plan in plans)
        self._sent |= {part.table: part.rows for part in sent}

    def _remember(self, rounds: dict[str, int]) -> None:
        stored = json.dumps({"round": self._round, "tables": rounds, "target": self._target})
        write_durably(self._lake.storage, self._state, stored, "sink.state")
        old = set(self._rounds.values()) - set(rounds.values())
        self._rounds = rounds
        for round in old:
            self._sent_files.forget(number_of(round, 0))

    def _forget(self, tables: Collection[str]) -> None:
        """A table of one of these names that comes later is another one."""
        self._remember({table: round for table, round in self._rounds.items() if table not in tables})
        for table in tables:
            self._sent.pop(table, None)
            self._versions.pop(table, None)

    def again(self, request: str, wanted: Mapping[str, Any], units: Units) -> None:
        """Send the newest row of every key, and all keys that are gone since they were sent, whatever was sent."""
        if self._owns:
            return self._forget(list(self._rounds))
        for table, rows in self._sent.items():
            kept = rows.drop_columns(HASH)
            unsent = pa.array([UNSENT] * len(rows), pa.uint64())
            self._sent[table] = kept.append_column(HASH, unsent) if kept.num_columns else rows.slice(0, 0)
        self._versions.clear()


def every_table(lake: Lake, layout: TableNames) -> Iterator[tuple[str, str]]:
    """(table, routing name) of gold, and of the tables by SQL, which have none."""
    by_sql = sql_tables.names(lake)
    for table in lake.storage.list(""):
        if layout.is_gold(table):
            yield table, layout.gold_name_of(table)
        elif table in by_sql:
            yield table, ""


def sent_tables(lake: Lake, name: str) -> Collection[str]:
    """The tables of which a sink has sent rows."""
    found: dict[str, int] = (read_json(lake.storage, f"{lake.sink(name)}/sent.json") or {}).get("tables", {})
    return found


def _hashes(rows: pa.Table) -> pa.ChunkedArray:
    """A number of 64 bits for each row."""
    con, columns = connection(), ", ".join(map(quoted, rows.column_names))
    names = str(rows.schema.remove_metadata()).replace("'", "")  # another name is another row
    con.register("rows", rows)
    try:
        return con.sql(f"SELECT hash('{names}', {columns}) AS found FROM rows").to_arrow_table()["found"]
    finally:
        con.unregister("rows")


def _differences(now: pa.Table, before: pa.Table, keys: Sequence[str]) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """(rows of `now` that are new or have another hash, rows of `before` whose key is gone)"""
    con = connection()
    con.register("now", now.append_column("_at", pa.array(range(len(now)), pa.int64())))
    con.register("before", before.append_column("_at", pa.array(range(len(before)), pa.int64())))
    same = " AND ".join(f"now.{quoted(key)} IS NOT DISTINCT FROM before.{quoted(key)}" for key in keys)
    try:
        joined = con.sql(
            f"SELECT now._at AS now, before._at AS before FROM now FULL JOIN before ON {same} "
            f"WHERE now.{HASH} IS DISTINCT FROM before.{HASH} ORDER BY ALL"
        ).to_arrow_table()
    finally:
        con.unregister("now")
        con.unregister("before")
    gone = joined.filter(pc.is_null(joined["now"]))["before"]
    return joined["now"].drop_null(), gone
