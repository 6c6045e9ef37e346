"""One gold run: plan, compute, and write all changed tables in parallel.

A table that fails does not affect the others: a later run recomputes it, after a growing pause.

The reasons: docs/decisions/gold.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from spark_app.followers.follower import Follower, Units
from spark_app.followers.gold.compute import AggregateComputer
from spark_app.followers.gold.plan import GoldPlan, Planner
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.tables import GoldTables
from spark_app.lake.delta.commit import THREADS
from spark_app.lake.files.disk import is_full
from spark_app.model.errors import ContractError, last_message_line
from spark_app.model.log import log
from spark_app.units.driver.open_lake import OpenLake

OF_ONE_TABLE = (DeltaError, pa.ArrowException)  # errors of a write that concern only its table
PAUSES_S = (0.0, 10.0, 60.0, 600.0)  # after the first failure in a row, the second, and so on


GoldDone = Callable[[str, dict[str, int], dict[str, str]], None]  # see `Aggregator`


class Aggregator(Follower):
    """Updates the gold tables of one kind. If it is too far behind, it recomputes them.

    The cursor in the lake says which units all tables include. A table whose transaction has a later unit skips the
    units up to that one.

    Attributes:
        planner: knows which fields of the settings a silver table lacks.
    """

    recomputes = True

    def __init__(
        self,
        spec: GoldSpec,
        calculator: AggregateComputer,
        opened: OpenLake,
        unit_lock: AbstractContextManager[object],
        done: GoldDone = lambda kind, rows, failed: None,
        rests: Callable[[], bool] = lambda: False,
    ):
        """
        Args:
            unit_lock: the lock under which units are built.
            done: called after `follow` with the kind, routing name -> rows of each changed gold table, and what
                `failed` returns.
            rests: whether a request is pending that will compute gold.
        """
        self.name = spec.follower
        self.interval_s = spec.interval_s
        self._done = done
        self._rests = rests
        self._opened = opened
        self._calculator = calculator
        self._unit_lock = unit_lock
        self._gold_of = partial(opened.settings.layout.gold_of, kind=spec.kind)
        self._spec = spec
        self._tables = GoldTables(opened, self._spec)
        self.planner = Planner(opened, self._spec, self._tables)
        self._folded = 0  # the last unit that all tables include
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=spec.follower)
        self._running = threading.Lock()  # `follow` and `renew` must not overlap
        self._failures = TableFailures()

    def begin(self, stored: int | None, newest: int) -> int:
        self._folded = stored or 0
        return self._folded

    def rests(self) -> bool:
        return self._rests()

    def follow(self, units: Units) -> int:
        """Update gold up to the last applied unit. A table that fails keeps its rows and is recomputed: immediately,
        then by later calls."""
        rows = self._run(units)
        rows |= self._run(units) if self._failures.any_due() else {}
        self._done(self._spec.kind, rows, self.failed())
        return max(self._folded, units.after)

    def flush(self) -> None:
        """Make gold durable, so that the next start need not merge units again."""
        with self._running:
            self._tables.sync()

    def failed(self) -> dict[str, str]:
        """Gold table -> the error because of which it is out of date."""
        return {self._gold_of(name): reason for name, reason in self._failures.reasons().items()}

    def _run(self, units: Units) -> dict[str, int]:
        with self._running:
            with self._unit_lock:
                work = self.planner.plan(units.now())
            if work is None:
                return {}
            work.leave_out(self._failures.waiting())
            return self._carry_out(work)

    def renew(self, names: set[str], dry_run: bool) -> dict[str, dict[str, Any]]:
        """Recompute gold of the routing names from silver and replace tables that differ, unless `dry_run`.

        New silver files are merged first, so that a table that is only out of date does not count as differing. Missing
        tables, and tables whose silver was rebuilt, are not merged first.

        Returns:
            Gold table -> its differences, as `GoldTables.compare` returns them.

        Raises:
            ContractError: a unit is committed but not applied.
        """
        with self._running:
            with self._unit_lock:
                work = self.planner.plan(Units.since(self._opened.lake, self._opened.units.manifests, self._folded))
                if work is None:
                    raise ContractError("a committed unit is not in all tables yet: run the command again")
                files = {name: self.planner.snapshot(name) for name in work.fields if name in names}
            first = {name for name in files if self._tables.get(name) is None}
            first |= set() if dry_run else work.rebuilt & files.keys()
            found = self._check({name: files.pop(name) for name in first}, work, replace=not dry_run)
            for name in first:
                work.whole.pop(name, None)
            self._carry_out(work)
            return found | self._check(files, work, replace=not dry_run)

    def _check(self, files: dict[str, list[str]], work: GoldPlan, replace: bool) -> dict[str, dict[str, Any]]:
        """Compare gold with aggregates of the silver files. With `replace`, tables whose silver was rebuilt are always
        replaced, because their transaction has to advance."""
        found = {}
        computed = self._calculator.of_files(files, work.fields)
        for error in computed.failed.values():
            raise error
        for name, part in computed.parts.items():
            found[self._gold_of(name)] = difference = self._tables.compare(name, part)
            if replace and (difference["differing"] or name in work.rebuilt):
                self._tables.replace(name, part, work.upto)
                self._failures.clear([name])
        return found

    def _carry_out(self, work: GoldPlan) -> dict[str, int]:
        if self._spec.is_incremental:
            gold = {name: self._tables.files_of(name) for name in work.fold if self._spec.sketched}
            parts, failed = self._calculator.of_files(work.fold, work.fields, gold)
        else:
            parts, failed = self._calculator.of_touched_keys(work.fold, work.rows, work.fields)
        whole, failed_whole = self._calculator.of_files(work.whole, work.fields)
        parts = {name: part for name, part in parts.items() if part.num_rows}
        jobs = self._submit(self._tables.merge, parts, work) | self._submit(self._tables.replace, whole, work)
        wait(jobs.values())  # for all, also after an error: the next run must not merge files that a job still merges
        rows, failed_jobs = _results(jobs)
        self._set_apart(failed | failed_whole | failed_jobs, work)
        self._failures.clear(rows)
        self._finish(work)
        return rows

    def _submit(self, write: Callable[..., int], parts: dict[str, pa.Table], work: GoldPlan) -> dict[str, Future[int]]:
        return {name: self._pool.submit(write, name, part, work.upto) for name, part in parts.items()}

    def _set_apart(self, failed: dict[str, Exception], work: GoldPlan) -> None:
        """Remove the failed tables' specs, so that a later run recomputes them from all silver files."""
        if failed:
            work.leave_out(failed)
            known = self.planner.specs()
            self.planner.store_specs({name: digest for name, digest in known.items() if name not in failed})
        for name, error in failed.items():
            self._failures.add(name, self._gold_of(name), error)

    def _finish(self, work: GoldPlan) -> None:
        self._folded = max(work.upto, self._folded)
        if self.planner.specs() != work.specs:
            self._tables.sync()
            self.planner.store_specs(work.specs)


def renew_all(gold: Iterable[Aggregator], names: set[str], dry_run: bool) -> dict[str, dict[str, Any]]:
    """As `Aggregator.renew`, of all kinds."""
    return {table: found for one in gold for table, found in one.renew(names, dry_run).items()}


def _results(jobs: dict[str, Future[int]]) -> tuple[dict[str, int], dict[str, Exception]]:
    """(routing name -> rows of each written table, routing name -> error of each failed one).

    Raises:
        Exception: the error does not concern a single table; for example, the disk is full.
    """
    rows: dict[str, int] = {}
    failed: dict[str, Exception] = {}
    for name, job in jobs.items():
        try:
            rows[name] = job.result()
        except OF_ONE_TABLE as error:
            if is_full(error):
                raise
            failed[name] = error
    return rows, failed


@dataclass(frozen=True)
class Failure:
    """The last error of a table.

    Attributes:
        times: number of consecutive failures.
        again_at: time of the next attempt in monotonic seconds.
    """

    reason: str
    times: int
    again_at: float


class TableFailures:
    """Failures by routing name, in memory only: after a restart all tables are attempted immediately."""

    def __init__(self) -> None:
        self._found: dict[str, Failure] = {}

    def add(self, name: str, table: str, error: Exception) -> None:
        """Store and log the failure of a table; the pause before the next attempt grows with each one."""
        times = self._found[name].times + 1 if name in self._found else 1
        pause = PAUSES_S[min(times, len(PAUSES_S)) - 1]
        self._found[name] = Failure(last_message_line(error), times, time.monotonic() + pause)
        log.error("gold table failed: it is recomputed later", table=table, reason=last_message_line(error), in_s=pause)

    def clear(self, names: Iterable[str]) -> None:
        """Remove tables that were written."""
        for name in names:
            self._found.pop(name, None)

    def any_due(self) -> bool:
        """Whether the pause of a failed table is over."""
        return len(self._found) > len(self.waiting())

    def waiting(self) -> set[str]:
        """The failed tables whose pause is not over."""
        now = time.monotonic()
        return {name for name, failure in self._found.items() if failure.again_at > now}

    def reasons(self) -> dict[str, str]:
        return {name: failure.reason for name, failure in self._found.items()}
