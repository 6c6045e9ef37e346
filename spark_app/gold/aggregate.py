"""One run of an interval: plan, compute, write all touched tables side by side.

A table that fails costs the others nothing: it is computed anew by a later run, after a pause that grows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from spark_app.driver.open_lake import OpenLake
from spark_app.gold.compute import AggregateComputer
from spark_app.gold.definition import Definition
from spark_app.gold.failures import TableFailures
from spark_app.gold.gold_tables import GoldTables
from spark_app.gold.plan import GoldPlan, Planner
from spark_app.model.errors import ContractError
from spark_app.storage.disk import is_full
from spark_app.store.commit import THREADS

SYNC_EVERY_S = 30.0
OF_ONE_TABLE = (DeltaError, pa.ArrowException)  # what a write raises for what is in its table


class Aggregator:
    """Keeps the gold tables.

    Args:
        between_units: the lock that a unit in the making holds.
    """

    def __init__(self, calculator: AggregateComputer, opened: OpenLake, unit_lock: AbstractContextManager[object]):
        self._calculator = calculator
        self._unit_lock = unit_lock
        self._layout = opened.settings.tables.layout
        self._definition = Definition.of(opened.settings)
        self._tables = GoldTables(opened, self._definition)
        self._planner = Planner(opened, self._definition, self._tables)
        self._synced = opened.units.committer.synced
        self._folded = self._synced.folded
        self._next_sync = time.monotonic() + SYNC_EVERY_S
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gold")
        self._running = threading.Lock()  # `run` and `renew` must not meet
        self._failures = TableFailures()

    def folded(self) -> int:
        """The last manifest that is in every gold table."""
        return self._folded

    def close(self) -> None:
        """Make gold durable; the next start then has nothing to fold again."""
        with self._running:
            self._sync()

    def failed(self) -> dict[str, str]:
        """Gold table -> why it is not what silver says."""
        return {self._layout.gold_of(name): reason for name, reason in self._failures.reasons().items()}

    def run(self) -> dict[str, int]:
        """Bring gold up to the last finished unit; returns routing name -> rows of each touched gold table.

        A table that fails is left as it was, and computed anew: at once, then by a later run.
        """
        rows = self._run()
        return rows | (self._run() if self._failures.any_due() else {})

    def _run(self) -> dict[str, int]:
        with self._running:
            with self._unit_lock:
                work = self._planner.plan(self._folded)
            if work is None:
                return {}
            work.leave_out(self._failures.waiting())
            return self._carry_out(work)

    def renew(self, names: set[str], dry_run: bool) -> dict[str, dict[str, Any]]:
        """Compute gold of the routing names from silver; returns per gold table what differed and was replaced, as
        `GoldTables.compare` has it.

        What is only behind does not differ: new files are folded first, but for tables that are gone, or whose silver
        was rebuilt.

        Raises:
            ContractError: a unit is not finished yet.
        """
        with self._running:
            with self._unit_lock:
                work = self._planner.plan(self._folded)
                if work is None:
                    raise ContractError("a committed unit is not in all tables yet: run the command again")
                files = {name: self._planner.snapshot(name) for name in work.fields if name in names}
            first = {name for name in files if self._tables.get(name) is None}
            first |= set() if dry_run else work.rebuilt & files.keys()
            found = self._check({name: files.pop(name) for name in first}, work, replace=not dry_run)
            for name in first:
                work.whole.pop(name, None)
            self._carry_out(work)
            return found | self._check(files, work, replace=not dry_run)

    def _check(self, files: dict[str, list[str]], work: GoldPlan, replace: bool) -> dict[str, dict[str, Any]]:
        """Compare gold with what the silver files say. Tables whose silver was rebuilt are replaced in any case: their
        transaction has to move on."""
        found = {}
        computed = self._calculator.of_files(files, work.fields)
        for error in computed.failed.values():
            raise error
        for name, part in computed.parts.items():
            found[self._layout.gold_of(name)] = difference = self._tables.compare(name, part)
            if replace and (difference["differing"] or name in work.rebuilt):
                self._tables.replace(name, part, work.upto)
                self._failures.clear([name])
        return found

    def _carry_out(self, work: GoldPlan) -> dict[str, int]:
        if self._definition.is_incremental:
            parts, failed = self._calculator.of_files(work.fold, work.fields)
        else:
            parts, failed = self._calculator.of_touched_keys(work.fold, work.rows, work.fields)
        whole, failed_whole = self._calculator.of_files(work.whole, work.fields)
        jobs = self._submit(self._tables.merge, parts, work) | self._submit(self._tables.replace, whole, work)
        wait(jobs.values())  # all: if one fails, the next run must not fold the same files beside those that go on
        rows, failed_jobs = _results(jobs)
        self._set_apart(failed | failed_whole | failed_jobs, work)
        self._failures.clear(rows)
        self._finish(work)
        return rows

    def _submit(self, write: Callable[..., int], parts: dict[str, pa.Table], work: GoldPlan) -> dict[str, Future[int]]:
        return {name: self._pool.submit(write, name, part, work.upto) for name, part in parts.items()}

    def _set_apart(self, failed: dict[str, Exception], work: GoldPlan) -> None:
        """Without a definition a table is computed anew: its new files need not be known any longer."""
        if failed:
            work.leave_out(failed)
            known = self._planner.definitions()
            self._planner.define({name: digest for name, digest in known.items() if name not in failed})
        for name, error in failed.items():
            self._failures.add(name, self._layout.gold_of(name), error)

    def _finish(self, work: GoldPlan) -> None:
        self._folded = max(work.upto, self._folded)
        changed = self._planner.definitions() != work.definitions
        if changed or (self._folded > self._synced.folded and time.monotonic() > self._next_sync):
            self._sync()
        if changed:
            self._planner.define(work.definitions)

    def _sync(self) -> None:
        self._tables.sync(self._folded)
        self._next_sync = time.monotonic() + SYNC_EVERY_S


def _results(jobs: dict[str, Future[int]]) -> tuple[dict[str, int], dict[str, Exception]]:
    """(rows of the tables written, what the others failed with).

    Raises:
        Exception: no table is to blame for it, as where the disk is full.
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
