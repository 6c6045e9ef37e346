"""Records which commits are durable. The next start checks later commits again.

    _protolake/synced.json    {"unit": 42, "versions": {"bronze_events": 57, ...}, "boot": "..."}

The file is written after everything that it names is durable: it may be behind, but is never ahead.

After a power cut a log ends with its last intact entry. The missing commits are applied again from the manifests, and
gold is merged again.

The reasons: docs/decisions/durability.md.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from posixpath import basename

from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta.problems import Problem
from spark_app.lake.files import failpoints
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.lake.sql_tables import derived_state
from spark_app.model.errors import ContractError, UnreachableError
from spark_app.model.log import log
from spark_app.model.table_names import TableNames

THREADS = 8
BOOT = Path("/proc/sys/kernel/random/boot_id")
REMEDY = "restore _protolake and the tables from the same backup; `doctor --repair` moves this file aside"


class DurabilityMark:
    """The last durable unit and table versions. Thread-safe; if a table is created anew during `sync`, the version of
    the old table is dropped.

    Attributes:
        unit: all commits of the units up to this one are durable.
        folded: the cursor of gold that 0.2.0 had here; `lake/cursors` reads it until gold has stored its own.
        versions: table -> its durable version.
        rebooted: the machine has started since the last run, so a power cut is possible.
    """

    def __init__(self, lake: Lake):
        self._lake = lake
        self._storage = lake.storage
        stored = read_durable(self._storage, lake.synced) or {}
        self.unit: int = stored.get("unit", 0)
        self.folded: int = stored.get("folded", 0)
        self.versions: dict[str, int] = stored.get("versions", {})
        self.rebooted = stored.get("boot", _boot()) != _boot()
        self._refused = ""
        self._began_anew: Counter[str] = Counter()  # table -> times that `forget` was called for it
        self._writing = threading.Lock()

    def sync(self, tables: Iterable[str], unit: int = 0) -> None:
        """Make all commits of the tables durable, then store the mark: everything up to `unit` is durable then.

        Raises:
            UnreachableError: fsync failed, so written data may be lost; only a restart can find out.
            OSError: no space for the mark, which then stays behind.
        """
        if self._refused:
            raise UnreachableError(self._refused)
        began = self._began_anew.copy()
        try:
            found = self._sync(list(tables))
        except OSError as error:
            # The kernel reports the error once: another fsync would succeed although the data is lost.
            self._refused = f"the disk of {self._lake.uri} could not store written data ({error}): check it"
            raise UnreachableError(self._refused) from None
        with self._writing:
            same = {n: version for n, version in found.items() if self._began_anew[n] == began[n]}
            newer = {name: max(version, self.versions.get(name, 0)) for name, version in same.items()}
            self._write(max(unit, self.unit), self.versions | newer)

    def _sync(self, names: list[str]) -> dict[str, int]:
        if not self._storage.is_local:
            return {}  # what the store has accepted is durable
        if any(name not in self.versions for name in names):
            self._storage.make_durable("")
        with ThreadPoolExecutor(THREADS, thread_name_prefix="sync") as pool:
            found = pool.map(lambda name: delta_log.sync(self._storage, name, self.versions.get(name)), names)
            return {name: version for name, version in zip(names, found, strict=True) if version is not None}

    def begin(self) -> None:
        """Store the current boot id."""
        with self._writing:
            self._write(self.unit, self.versions)

    def forget(self, name: str) -> None:
        """Drop the durable version of a table that does not exist; a new table of this name starts again."""
        with self._writing:
            self._began_anew[name] += 1
            if name in self.versions:
                self._write(self.unit, {n: v for n, v in self.versions.items() if n != name})

    def check(self, last: int) -> None:
        """
        Raises:
            ContractError: durable units are missing from the manifests, which end at `last`.
        """
        if self.is_ahead(last):
            raise ContractError(f"{self.units_without_manifest(last)}: {REMEDY}")

    def is_ahead(self, last: int) -> bool:
        """True if the mark is ahead of the manifests, which end at `last`."""
        return max(self.unit, self.folded) > last

    def units_without_manifest(self, last: int) -> str:
        """The message for a mark that is ahead of the manifests."""
        unit = max(self.unit, self.folded)
        path = self._storage.uri(self._lake.synced)
        return f"{path} has unit {unit}, but the newest manifest is {last}: manifests were removed or are older"

    def _write(self, unit: int, versions: dict[str, int]) -> None:
        value = {"unit": unit, "versions": versions, "boot": _boot()} | ({"folded": self.folded} if self.folded else {})
        write_durably(self._storage, self._lake.synced, json.dumps(value), "synced")
        self.unit, self.versions = unit, versions


def _boot() -> str:
    """The id of this start of the machine; "" if the system has none."""
    return BOOT.read_text().strip() if BOOT.exists() else ""


def mend(lake: Lake, synced: DurabilityMark, layout: TableNames) -> None:
    """Repair torn logs; call it before any table is opened.

    Raises:
        ContractError: a table cannot be repaired.
    """
    for problem in look(lake, synced, layout):
        if problem.repair is None:
            raise ContractError(f"{problem.what}. {problem.remedy}")
        log.warning(problem.what, done=problem.repair())


def look(lake: Lake, synced: DurabilityMark, layout: TableNames) -> list[Problem]:
    """Find torn logs, and logs that end before their durable version. An object store tears nothing."""
    if not lake.storage.is_local:
        return []
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(partial(_look_at, lake, synced, layout), lake.tables())
    return [problem for problem in found if problem is not None]


def _look_at(lake: Lake, synced: DurabilityMark, layout: TableNames, name: str) -> Problem | None:
    known = synced.versions.get(name)
    newest = max(delta_log.versions(lake.storage, name), default=-1)
    if known is not None and newest < known:
        return _older(lake, synced, layout, name, f"table {name} is at version {newest}, but was at {known}")
    torn = delta_log.find_torn(lake.storage, name, known)
    if not torn.files:
        return None
    what = f"table {name}: the machine lost power, {len(torn.files)} log files are torn, {torn.lost} of them commits"
    if not torn.left:
        return _beyond_repair(lake, synced, layout, name, what)
    return Problem(
        what, "Start the app, which repairs the log", fatal=False, repair=partial(_set_aside, lake, name, torn.files)
    )


def _set_aside(lake: Lake, name: str, files: list[str]) -> str:
    """Move the files, the newest first, so that the rest is a shorter but intact log at any time."""
    folder = f"{lake.torn}/{name}"
    with failpoints.around("mend"):
        for key in sorted(files, reverse=True):
            lake.storage.move(key, f"{folder}/{basename(key)}")
    return f"moved them to {lake.storage.uri(folder)}; the app commits the missing units again"


def _older(lake: Lake, synced: DurabilityMark, layout: TableNames, name: str, what: str) -> Problem:
    """The table is a copy, or its disk lost data after an fsync. `inventory` reports missing units; the durable version
    of the earlier table does not apply to this one."""
    if derived_state(lake, layout, name) is not None:
        return _beyond_repair(lake, synced, layout, name, what)
    remedy = "Check where this copy of the table comes from"
    return Problem(what, remedy, fatal=False, repair=partial(_forget, synced, name))


def _forget(synced: DurabilityMark, name: str) -> str:
    synced.forget(name)
    return "all of its commits are checked"


def _beyond_repair(lake: Lake, synced: DurabilityMark, layout: TableNames, name: str, what: str) -> Problem:
    if (state := derived_state(lake, layout, name)) is not None:
        remedy = "Start the app: it computes the table anew"
        return Problem(what, remedy, fatal=False, repair=partial(_renew, lake, synced, name, state))
    remedy = "Restore the table from a backup"
    if name in layout.spooled:
        return Problem(what, f"{remedy}, or remove it: the app begins it again")
    return Problem(what, remedy if name == layout.bronze else f"{remedy}, or remove it and run `rebuild`")


def _renew(lake: Lake, synced: DurabilityMark, name: str, state: str) -> str:
    lake.storage.delete(state)  # a table without it is computed anew
    lake.storage.make_durable(lake.state)
    synced.forget(name)
    lake.storage.delete_all(lake.table(name))
    return "removed the table; the app computes it anew"
