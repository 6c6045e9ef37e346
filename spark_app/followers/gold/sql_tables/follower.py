"""Keeps up the tables of one statement: looks at its sources, decides what to run, and writes the result in one commit.

A statement that fails or takes too long stops its own tables, and the next run of these is of the whole table.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.followers.follower import Follower, Units
from spark_app.followers.gold.aggregate import TableFailures
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.sql_tables.plans import Plan, Refused, plan_of
from spark_app.followers.gold.sql_tables.result_files import write_rows
from spark_app.followers.gold.sql_tables.sources import SourceReader, Sources, Waits
from spark_app.followers.gold.sql_tables.statements import SqlFiles, Statement
from spark_app.followers.gold.tables import GoldTables
from spark_app.lake import sql_tables
from spark_app.lake.files.disk import is_full
from spark_app.lake.lake import Lake
from spark_app.lake.sql_tables import SqlTable
from spark_app.model.columns import Comments
from spark_app.model.errors import ContractError, last_message_line
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.spark import jvm

Done = Callable[[str, dict[str, int], dict[str, str]], None]  # follower, table -> rows, table -> why it failed


WAITING_S = 5.0  # between two looks for a table that is not there yet


class TimedOut(Exception):
    """A run was ended."""


OF_ONE_TABLE = (
    *(PySparkException, Py4JError, DeltaError, ContractError, pa.ArrowException, FileNotFoundError),
    *(Refused, Waits, TimedOut),
)


@dataclass(frozen=True)
class OfSql(GoldSpec):
    """What `GoldTables` has to know of a table by SQL."""

    def comments(self) -> Comments:
        """That of the statement replaces one that the table has."""
        return Comments(authored={(): self.comment})


@dataclass(frozen=True)
class Analysed:
    """The plan of a query over sources with these columns."""

    columns: dict[str, pa.Schema]
    references: dict[str, str]
    digest: str
    plan: Plan

    def suits(self, sources: Sources) -> bool:
        return (self.columns, self.references) == (sources.columns, sources.references)


@dataclass(frozen=True)
class Looked:
    """A table as it is before a run.

    Attributes:
        state: as its last run left it; None if it has to be computed as a whole.
        cursor: the last unit in the table. After a crash the state may lack it.
    """

    statement: Statement
    sources: Sources
    state: SqlTable | None = None
    cursor: int = 0


@dataclass(frozen=True)
class Run:
    """A run that is due.

    Attributes:
        upto: the last unit that the table includes after it.
        new: the sources with the files that the table lacks; None if these do not say what it lacks.
        whole: the sources with all files; None if `new` is enough.
    """

    statement: Statement
    upto: int
    new: Sources | None
    whole: Sources | None


class SqlFollower(Follower):
    """The tables of one statement. Its views are in a session of its own."""

    recomputes = True
    runs_at_exit = False

    def __init__(
        self,
        statement: Statement,
        files: SqlFiles,
        spark: SparkSession,
        opened: OpenLake,
        unit_lock: AbstractContextManager[object],
        stop: threading.Event,
        done: Done = lambda follower, rows, failed: None,
    ):
        """
        Args:
            stop: ends a run.
        """
        self.name = statement.follower
        self.interval_s = statement.interval_s
        self.statement = statement
        self._spark = spark
        self._session = _session_of(spark)
        self._opened = opened
        self._unit_lock = unit_lock
        self._stop = stop
        self._done = done
        self._reader = SourceReader(self._session, opened, files)
        self._states: dict[str, SqlTable] = {}
        self._analysed: dict[str, Analysed] = {}
        self._writers: dict[str, tuple[Plan | None, GoldTables]] = {}
        self._waits: dict[str, str] = {}
        self._failures = TableFailures()

    def begin(self, stored: int | None, newest: int) -> int:
        return stored or 0  # a statement that was away for some starts has a table, but no cursor

    def follow(self, units: Units) -> int:
        """A table that is not brought up to the last unit, for whatever reason, is computed as a whole later."""
        manifests, rows = self._opened.units.manifests, dict[str, int]()
        # Without the lock: with a long interval, many tables or in a bucket this takes seconds.
        changes = Changes(self._opened.lake)
        changes.add(units)
        looked = self._look(changes)
        with self._unit_lock:
            if manifests.applied() < manifests.last:
                return units.after
            before, units = units.upto, units.now()
            changes.add(replace(units, after=before))
            runs = list[Run | None]()
            for one in looked:
                with self._of_one_table(one.statement):
                    runs.append(self._run_of(one, units, changes))
        for run in filter(None, runs):
            with self._of_one_table(run.statement):
                rows[run.statement.name] = self._run(run)
                self._failures.clear([run.statement.name])
            if self._stop.is_set():
                return units.after
        self._done(self.name, rows, self.failed())
        return units.upto

    def flush(self) -> None:
        for _, writer in self._writers.values():
            writer.sync()

    def failed(self) -> dict[str, str]:
        """Table -> why it is out of date."""
        return self._failures.reasons()

    def describe(self) -> dict[str, dict[str, Any]]:
        """For the status: table -> how it is kept up, what the last run made and cost, and what it waits for."""
        known, found = dict(self._states), {}
        for table in sorted({*known, *(one.name for one in self._tables().values())}):
            state = known.get(table)
            about = {"mode": state.mode, "rows": state.rows, "seconds": state.seconds, "at": state.at} if state else {}
            found[table] = about | {"interval_s": self.statement.interval_s, "waits": self._waits.get(table)}
        return found

    def makes(self, table: str) -> bool:
        """Whether a statement of its files makes this table."""
        return self._reader.is_made(table)

    def _tables(self) -> dict[str, Statement]:
        """Routing name -> statement; "" if there is one table."""
        if not self.statement.is_of_each:
            return {"": self.statement}
        return {name: self.statement.of(name) for name in sorted(set(self._opened.admission.admitted.values()))}

    def _look(self, changes: Changes) -> list[Looked]:
        """The tables that need not wait."""
        waiting, waits, found = self._failures.waiting(), dict[str, str](), list[Looked]()
        moment = self._reader.moment()
        for name, statement in self._tables().items():
            if statement.name not in waiting:
                with self._of_one_table(statement):
                    try:
                        sources = self._reader.look(statement, name, moment)
                        found.append(self._look_at(statement, sources, statement.name in moment[0], changes))
                    except Waits as wait:
                        waits[statement.name] = str(wait)
                        self._forget(statement.name)
        self._waits = waits
        waits_soon = waits and not self._states
        self.interval_s = min(self.statement.interval_s, WAITING_S) if waits_soon else self.statement.interval_s
        return found

    def _look_at(self, statement: Statement, sources: Sources, is_there: bool, changes: Changes) -> Looked:
        state = self._state(statement.name)
        if state is None or not state.digest or not is_there:
            return Looked(statement, sources)
        if (state.query, state.views, state.comment) != (statement.query, sources.views, statement.comment):
            return Looked(statement, sources)
        cursor = self._writer(statement).cursor(statement.name)
        if state.mode != "recompute":
            # Without the lock: in a bucket each is a request. Files of later units are too young to be removed.
            new = (key for one in sources.silver for key in changes.files(one, max(cursor, state.unit)))
            state = state if all(map(self._opened.lake.storage.exists, new)) else None
        return Looked(statement, sources, state, cursor)

    def _run_of(self, looked: Looked, units: Units, changes: Changes) -> Run | None:
        """The run of a table, if its sources or its statement have changed."""
        statement, state, sources = looked.statement, looked.state, self._reader.pin(looked.sources)
        silver, new, known = sources.silver.keys(), None, self._analysed.get(statement.name)
        if state is not None and state.unit >= units.gone:
            begun = silver - state.sources.keys()
            both = (state.sources, sources.versions)
            before, now = ({one: own[one] for one in own.keys() - silver} for own in both)
            if before == now and not begun and not any(changes.touches(one, state.unit) for one in silver):
                if state.sources != sources.versions:  # compaction: the rows are the same
                    self._store(replace(state, sources=sources.versions))
                return None
            after = max(looked.cursor, state.unit)
            is_whole = state.mode == "recompute" or not state.sources.keys() <= sources.versions.keys()
            is_whole |= bool(begun) and looked.cursor > state.unit
            if not is_whole and not any(changes.replaces(one, after) for one in silver):
                files = {one: changes.files(one, after) for one in silver}
                new = sources.adding(files | {one: self._reader.silver_files(one) for one in begun})
        if new is not None and known is not None and known.suits(sources):
            return Run(statement, units.upto, new, None)
        return Run(statement, units.upto, new, self._reader.files_of(sources))  # the plan may be another one now

    def _analyse(self, statement: Statement, sources: Sources) -> Analysed:
        """The plan of a query; as long as the columns of its sources are the same it is."""
        known = self._analysed.get(statement.name)
        if known is None or not known.suits(sources):
            self._reader.register(sources.adding({}))
            plan = plan_of(self._session.sql(statement.query), sources.names, sources.growing)
            parts = [statement.query, sources.views, str(plan.columns), self._reader.mixed(sources)]
            digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
            known = self._analysed[statement.name] = Analysed(sources.columns, sources.references, digest, plan)
        return known

    def _run(self, run: Run) -> int:
        """Run the query; returns the number of rows of the table."""
        began, one, lake = time.monotonic(), run.statement, self._opened.lake
        self._refuse_strangers(one)
        before = self._state(one.name)
        with self._limited(one.name):
            analysed = self._analyse(one, run.whole or run.new or Sources())
            plan, is_same = analysed.plan, before is not None and before.digest == analysed.digest
            sources = run.new if is_same and run.new is not None else run.whole
            assert sources is not None
            count, writer = before.rows if before else 0, self._writer(one, plan)
            if sources is run.new and not writer.is_there(one.name):
                raise DeltaError(f"table {one.name} was removed")
            if before is not None and not is_same:
                self._store(replace(before, is_changing=True))  # who may see its rows is decided by what is known
            self._reader.register(sources)
            rows = self._session.sql(one.query)
            if plan.mode == "fold" and sources is run.new:
                part = rows.toArrow()
                count = writer.merge(one.name, part, run.upto) if part.num_rows else count
            else:
                compression = self._opened.settings.lake.compression
                entries = write_rows(rows, plan.columns, lake.storage, lake.table(one.name), compression)
                if sources is run.whole:
                    count = writer.replace_by_files(one.name, plan.columns, entries, run.upto)
                else:
                    count = writer.append_files(one.name, entries, run.upto) if entries else count
        writer.sync()  # first: a power cut must not leave a table that lacks units of its file
        state = SqlTable(
            table=one.name,
            statement=self.statement.name,
            file=one.file,
            line=one.line,
            query=one.query,
            comment=one.comment,
            views=sources.views,
            interval_s=one.interval_s,
            mode=plan.mode,
            why=plan.why,
            digest=analysed.digest,
            sources=sources.versions,
            unit=run.upto,
            version=writer.version(one.name),
            rows=count,
            seconds=round(time.monotonic() - began, 3),
            at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            key=list(plan.key),
        )
        self._store(state)
        return count

    def _refuse_strangers(self, statement: Statement) -> None:
        table = statement.name
        is_known = self._state(table) is not None or not self._opened.lake.has_table(table)
        if not is_known and not self._writer(statement).cursor(table):
            raise Refused(f"the lake has a table {table} that no statement made: take another name, or drop that table")

    def _writer(self, statement: Statement, plan: Plan | None = None) -> GoldTables:
        known = self._writers.get(statement.name)
        if known is None or plan not in (None, known[0]):
            comment = statement.comment or f"Made by {statement.file}"
            spec = OfSql(plan.key if plan else (), "", plan.aggregates if plan else {}, comment=comment)
            known = self._writers[statement.name] = plan, GoldTables(self._opened, spec, statement.name)
        return known[1]

    def _state(self, table: str) -> SqlTable | None:
        if table not in self._states and (found := sql_tables.read(self._opened.lake, table)):
            self._states[table] = found
        return self._states.get(table)

    def _store(self, state: SqlTable) -> None:
        if self._states.get(state.table) != state:
            sql_tables.store(self._opened.lake, state)
            self._states[state.table] = state

    @contextlib.contextmanager
    def _of_one_table(self, statement: Statement) -> Iterator[None]:
        """Keep an error of a table from the others, and compute the whole table after it.

        Raises:
            Exception: the disk is full, or Spark has ended.
        """
        try:
            yield
        except OF_ONE_TABLE as error:
            if is_full(error) or not jvm.jvm_lives():
                raise
            if self._stop.is_set():
                return
            self._writers.pop(statement.name, None)
            self._analysed.pop(statement.name, None)
            why = f"{statement.where}: {last_message_line(error)}"
            self._failures.add(statement.name, statement.name, RuntimeError(why))
            self._forget(statement.name, last_message_line(error))

    def _forget(self, table: str, why: str = "") -> None:
        """Let the next run be of the whole table."""
        if (state := self._state(table)) is not None:
            self._store(replace(state, digest="", failed=why))

    @contextlib.contextmanager
    def _limited(self, table: str) -> Iterator[None]:
        """End the Spark jobs within, if they take too long or the app stops.

        Raises:
            TimedOut: they were ended.
        """
        context, limit = self._spark.sparkContext, self._opened.settings.tables.sql_timeout_s
        deadline, over, ended = time.monotonic() + limit, threading.Event(), threading.Event()
        context.setJobGroup(f"sql {table}", f"table {table}", interruptOnCancel=True)

        def watch() -> None:
            while not over.wait(0.2):
                if self._stop.is_set() or time.monotonic() > deadline:
                    ended.set()
                    context.cancelJobGroup(f"sql {table}")

        watcher = threading.Thread(target=watch, name=f"limit {table}", daemon=True)
        watcher.start()
        try:
            yield
        except (PySparkException, Py4JError) as error:
            if ended.is_set():
                what = f"the run took longer than tables.sql_timeout_s = {limit:g}"
                raise TimedOut("the app stops" if self._stop.is_set() else what) from error
            raise
        finally:
            over.set()
            watcher.join()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


class Changes:
    """What units have done to tables."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        # Table -> (unit, keys of added files, whether other rows went), in the order of the units.
        self._of_table: dict[str, list[tuple[int, list[str], bool]]] = {}

    def add(self, units: Units) -> None:
        for unit in units:
            for table, change in unit.tables.items():
                keys = [f"{self._lake.table(table)}/{entry.path}" for entry in change.adds]
                went = unit.kind == "rebuild" or unit.replaces(table) or bool(change.removes)
                self._of_table.setdefault(table, []).append((unit.sequence, keys, went))

    def touches(self, table: str, after: int) -> bool:
        return any(unit > after for unit, *_ in self._of_table.get(table, ()))

    def files(self, table: str, after: int) -> list[str]:
        return [key for unit, keys, _ in self._of_table.get(table, ()) if unit > after for key in keys]

    def replaces(self, table: str, after: int) -> bool:
        return any(went for unit, _, went in self._of_table.get(table, ()) if unit > after)


def _session_of(spark: SparkSession) -> SparkSession:
    """A session with views of its own. It leaves a core to ingest: each step has fewer tasks than there are cores."""
    session = spark.newSession()
    tasks = str(max(1, spark.sparkContext.defaultParallelism - 1))
    session.conf.set("spark.sql.shuffle.partitions", tasks)
    session.conf.set("spark.sql.files.maxPartitionNum", tasks)
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    return session
