"""One run of an interval: plan, compute, write all touched tables side by side."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any

from spark_app.driver.opened import OpenLake
from spark_app.errors import ContractError
from spark_app.gold.compute import Calculator
from spark_app.gold.definition import Definition
from spark_app.gold.plan import Planner, Work
from spark_app.gold.tables import GoldTables
from spark_app.store.commit import THREADS

SYNC_EVERY_S = 30.0


class Aggregator:
    """Keeps the gold tables.

    Args:
        between_units: the lock that a unit in the making holds.
    """

    def __init__(self, calculator: Calculator, opened: OpenLake, between_units: AbstractContextManager[object]):
        self._calculator = calculator
        self._between_units = between_units
        self._layout = opened.settings.tables.layout
        self._definition = Definition.of(opened.settings)
        self._tables = GoldTables(opened, self._definition)
        self._planner = Planner(opened, self._definition, self._tables)
        self._synced = opened.committer.synced
        self._folded = self._synced.folded
        self._next_sync = time.monotonic() + SYNC_EVERY_S
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gold")
        self._running = threading.Lock()  # `run` and `renew` must not meet

    def folded(self) -> int:
        """The last manifest that is in every gold table."""
        return self._folded

    def close(self) -> None:
        """Make gold durable; the next start then has nothing to fold again."""
        with self._running:
            self._sync()

    def run(self) -> dict[str, int]:
        """Bring gold up to the last finished unit; returns routing name -> rows of each touched gold table."""
        with self._running:
            with self._between_units:
                work = self._planner.plan(self._folded)
            return {} if work is None else self._carry_out(work)

    def renew(self, names: set[str], dry_run: bool) -> dict[str, dict[str, Any]]:
        """Compute gold of the routing names from silver; returns per gold table what differed and was replaced, as
        `GoldTables.compare` has it.

        What is only behind does not differ: new files are folded first, but for tables that are gone, or whose silver
        was rebuilt.

        Raises:
            ContractError: a unit is not finished yet.
        """
        with self._running:
            with self._between_units:
                work = self._planner.plan(self._folded)
                if work is None:
                    raise ContractError("a decided unit is not finished yet: ask again")
                files = {name: self._planner.snapshot(name) for name in work.fields if name in names}
            first = {name for name in files if self._tables.get(name) is None}
            first |= set() if dry_run else work.rebuilt & files.keys()
            found = self._check({name: files.pop(name) for name in first}, work, replace=not dry_run)
            for name in first:
                work.whole.pop(name, None)
            self._carry_out(work)
            return found | self._check(files, work, replace=not dry_run)

    def _check(self, files: dict[str, list[str]], work: Work, replace: bool) -> dict[str, dict[str, Any]]:
        """Compare gold with what the silver files say. Tables whose silver was rebuilt are replaced in any case: their
        transaction has to move on."""
        found = {}
        for name, part in self._calculator.of_files(files, work.fields).items():
            found[self._layout.gold_of(name)] = difference = self._tables.compare(name, part)
            if replace and (difference["differing"] or name in work.rebuilt):
                self._tables.replace(name, part, work.upto)
        return found

    def _carry_out(self, work: Work) -> dict[str, int]:
        if self._definition.foldable:
            parts = self._calculator.of_files(work.fold, work.fields)
        else:
            parts = self._calculator.of_touched_keys(work.fold, work.rows, work.fields)
        whole = self._calculator.of_files(work.whole, work.fields)
        jobs = {name: self._pool.submit(self._tables.merge, name, part, work.upto) for name, part in parts.items()}
        jobs |= {name: self._pool.submit(self._tables.replace, name, part, work.upto) for name, part in whole.items()}
        wait(jobs.values())  # all: if one fails, the next run must not fold the same files beside those that go on
        rows = {name: job.result() for name, job in jobs.items()}
        self._finish(work)
        return rows

    def _finish(self, work: Work) -> None:
        self._folded = max(work.upto, self._folded)
        changed = self._planner.definitions() != work.definitions
        if changed or (self._folded > self._synced.folded and time.monotonic() > self._next_sync):
            self._sync()
        if changed:
            self._planner.define(work.definitions)

    def _sync(self) -> None:
        self._tables.sync(self._folded)
        self._next_sync = time.monotonic() + SYNC_EVERY_S
