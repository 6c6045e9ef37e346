"""How far the commits of the lake are on the disk itself. What came after is looked at again at start.

    _protolake/synced.json    {"unit": 42, "folded": 40, "versions": {"bronze_events": 57, ...}, "boot": "..."}

Written after everything that it speaks of: may be behind, never ahead.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spark_app.model.errors import ContractError, UnreachableError
from spark_app.storage.lake import Lake, read_durable, sync_folder, write_durably
from spark_app.store import delta_log

THREADS = 8
BOOT = Path("/proc/sys/kernel/random/boot_id")
REMEDY = "restore _protolake and the tables from the same backup; `doctor --repair` moves this file aside"


class DurabilityMark:
    """The mark. Threads may use it side by side; a table that begins anew under a sync keeps no version of the old one.

    Attributes:
        unit: all commits of the units up to it are durable.
        folded: every gold table durably has the units up to it.
        versions: table -> its version that is durable.
        rebooted: the machine has started since, so the power may have been cut.
    """

    def __init__(self, lake: Lake):
        self._lake = lake
        self._path = lake.synced
        stored = read_durable(self._path) or {}
        self.unit: int = stored.get("unit", 0)
        self.folded: int = stored.get("folded", 0)
        self.versions: dict[str, int] = stored.get("versions", {})
        self.rebooted = stored.get("boot", _boot()) != _boot()
        self._refused = ""
        self._began_anew: Counter[str] = Counter()  # table -> how often, in this process
        self._writing = threading.Lock()

    @property
    def oldest(self) -> int:
        """No manifest up to it is needed any more."""
        return min(self.unit, self.folded)

    def sync(self, tables: Iterable[str], unit: int = 0, folded: int = 0) -> None:
        """Make all commits of the tables durable, then the mark: with them everything up to `unit`, or all gold up to
        `folded`, is.

        Raises:
            UnreachableError: the disk refused to keep what it had taken. Only a new start knows again what is there.
            OSError: no space for the mark, which so stays behind.
        """
        if self._refused:
            raise UnreachableError(self._refused)
        began = self._began_anew.copy()
        try:
            found = self._sync(list(tables))
        except OSError as error:
            # The kernel says so once: another fsync would succeed, and the data would still be lost.
            self._refused = f"the disk of {self._lake.root} could not store written data ({error}): check it"
            raise UnreachableError(self._refused) from None
        with self._writing:
            same = {n: version for n, version in found.items() if self._began_anew[n] == began[n]}
            newer = {name: max(version, self.versions.get(name, 0)) for name, version in same.items()}
            self._write(max(unit, self.unit), max(folded, self.folded), self.versions | newer)

    def _sync(self, names: list[str]) -> dict[str, int]:
        if any(name not in self.versions for name in names):
            sync_folder(self._lake.root)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="sync") as pool:
            found = pool.map(lambda name: delta_log.sync(self._lake.table(name), self.versions.get(name)), names)
            return {name: version for name, version in zip(names, found, strict=True) if version is not None}

    def begin(self) -> None:
        """Write down that the lake is used since this start of the machine."""
        with self._writing:
            self._write(self.unit, self.folded, self.versions)

    def forget(self, name: str) -> None:
        """The table is not there: what is made under its name begins anew."""
        with self._writing:
            self._began_anew[name] += 1
            if name in self.versions:
                self._write(self.unit, self.folded, {n: v for n, v in self.versions.items() if n != name})

    def check(self, last: int) -> None:
        """
        Raises:
            ContractError: units that were decided and durable are not among the manifests up to `last`.
        """
        if self.is_ahead(last):
            raise ContractError(f"{self.units_without_manifest(last)}: {REMEDY}")

    def is_ahead(self, last: int) -> bool:
        return max(self.unit, self.folded) > last

    def units_without_manifest(self, last: int) -> str:
        """What is wrong when it is ahead of the manifests."""
        unit = max(self.unit, self.folded)
        return f"{self._path} has unit {unit}, but the newest manifest is {last}: manifests were removed or are older"

    def _write(self, unit: int, folded: int, versions: dict[str, int]) -> None:
        value = {"unit": unit, "folded": folded, "versions": versions, "boot": _boot()}
        write_durably(self._path, json.dumps(value), "synced")
        self.unit, self.folded, self.versions = unit, folded, versions


def _boot() -> str:
    """Of this start of the machine; the same one always where the machine does not say."""
    return BOOT.read_text().strip() if BOOT.exists() else ""
