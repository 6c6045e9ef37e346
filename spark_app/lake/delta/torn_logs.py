"""Repairs Delta logs after a power cut: cuts them back to the last intact entry.

The missing commits are applied again from the manifests, and gold is merged again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from posixpath import basename

from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta.durability import THREADS, DurabilityMark
from spark_app.lake.delta.findings import Finding
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.model.log import log
from spark_app.model.table_names import TableNames


def mend(lake: Lake, synced: DurabilityMark, layout: TableNames) -> None:
    """Repair torn logs; call it before any table is opened.

    Raises:
        ContractError: a table cannot be repaired.
    """
    for finding in look(lake, synced, layout):
        if finding.repair is None:
            raise ContractError(f"{finding.what}. {finding.remedy}")
        log.warning(finding.what, done=finding.repair())


def look(lake: Lake, synced: DurabilityMark, layout: TableNames) -> list[Finding]:
    """Find torn logs, and logs that end before their durable version. An object store tears nothing."""
    if not lake.storage.is_local:
        return []
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(partial(_look_at, lake, synced, layout), lake.tables())
    return [finding for finding in found if finding is not None]


def _look_at(lake: Lake, synced: DurabilityMark, layout: TableNames, name: str) -> Finding | None:
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
    return Finding(
        what, "Start the app, which repairs the log", fatal=False, repair=partial(_set_aside, lake, name, torn.files)
    )


def _set_aside(lake: Lake, name: str, files: list[str]) -> str:
    """Move the files, the newest first, so that the rest is a shorter but intact log at any time."""
    folder = f"{lake.torn}/{name}"
    with failpoints.around("mend"):
        for key in sorted(files, reverse=True):
            lake.storage.move(key, f"{folder}/{basename(key)}")
    return f"moved them to {lake.storage.uri(folder)}; the app commits the missing units again"


def _older(lake: Lake, synced: DurabilityMark, layout: TableNames, name: str, what: str) -> Finding:
    """The table is a copy, or its disk lost data after an fsync. `inventory` reports missing units; the durable version
    of the earlier table does not apply to this one."""
    if layout.is_gold(name):
        return _beyond_repair(lake, synced, layout, name, what)
    remedy = "Check where this copy of the table comes from"
    return Finding(what, remedy, fatal=False, repair=partial(_forget, synced, name))


def _forget(synced: DurabilityMark, name: str) -> str:
    synced.forget(name)
    return "all of its commits are checked"


def _beyond_repair(lake: Lake, synced: DurabilityMark, layout: TableNames, name: str, what: str) -> Finding:
    if layout.is_gold(name):
        remedy = "Start the app: it recomputes gold"
        return Finding(what, remedy, fatal=False, repair=partial(_renew_gold, lake, synced, name))
    remedy = "Restore the table from a backup"
    if name == layout.events:
        return Finding(what, f"{remedy}, or remove it: the app begins it again")
    return Finding(what, remedy if name == layout.bronze else f"{remedy}, or remove it and run `rebuild`")


def _renew_gold(lake: Lake, synced: DurabilityMark, name: str) -> str:
    lake.storage.delete(lake.gold)  # gold without a stored definition is recomputed
    lake.storage.make_durable(lake.state)
    synced.forget(name)
    lake.storage.delete_all(lake.table(name))
    return "removed the table; the app recomputes gold"
