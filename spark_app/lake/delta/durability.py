"""Records which commits are durable. The next start checks later commits again.

    _protolake/synced.json    {"unit": 42, "versions": {"bronze_events": 57, ...}, "boot": "..."}

The file is written after everything that it names is durable: it may be behind, but is never ahead.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spark_app.lake.delta import log as delta_log
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, UnreachableError

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
            self._refused = f"the disk of {self._lake.address} could not store written data ({error}): check it"
            raise UnreachableError(self._refused) from None
        with self._writing:
            same = {n: version for n, version in found.items() if self._began_anew[n] == began[n]}
            newer = {name: max(version, self.versions.get(name, 0)) for name, version in same.items()}
            self._write(max(unit, self.unit), self.versions | newer)

    def _sync(self, names: list[str]) -> dict[str, int]:
        if not self._storage.is_local:
            return {}  # what the store has taken is durable
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
