"""Compares the files in the folders of the tables with the tables' logs, and the ledger of ingested files with the
manifests."""

from __future__ import annotations

from collections.abc import Callable
from posixpath import basename

from deltalake import DeltaTable

from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.maintenance import sweep
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.delta.problems import Problem
from spark_app.lake.delta.table_schema import open_table
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.lake.sql_tables import derived_state
from spark_app.model.errors import ContractError
from spark_app.model.table_names import TableNames
from spark_app.sources.files.ingested import REMEDY, IngestedFiles, files_of

MOST_NAMED = 5
MOST_LOOKS = 3  # at the ledger, whose segments a running app may merge meanwhile


def torn(lake: Lake, committer: TableCommitter, layout: TableNames, rebuild: Callable[[str], str]) -> list[Problem]:
    """Files that a table names, and that are gone or do not have their size.

    Args:
        rebuild: submits a rebuild of a routing name; returns a description of it.
    """
    found = {name: _torn(lake, committer, name) for name in lake.tables()}
    return [_broken(lake, layout, name, paths, rebuild) for name, paths in found.items() if paths]


def _torn(lake: Lake, committer: TableCommitter, name: str) -> list[str]:
    """Check twice: a running app may have compacted and removed a file since the table was opened."""
    torn: set[str] = set()
    for look in range(2):
        committer.forget(name)
        table = committer.tables.get(name)
        sizes = _sizes(name, table) if table else {}
        now = {key for key, size in sizes.items() if lake.storage.size(key) != size}
        torn = now if look == 0 else torn & now
        if not torn:
            break
    return sorted(torn)


def _sizes(name: str, table: DeltaTable) -> dict[str, int]:
    actions = table.get_add_actions()
    paths, sizes = (actions[name].to_pylist() for name in ("path", "size_bytes"))
    return {f"{name}/{path}": size for path, size in zip(paths, sizes, strict=True)}


def _broken(lake: Lake, layout: TableNames, name: str, keys: list[str], rebuild: Callable[[str], str]) -> Problem:
    some = ", ".join(basename(key) for key in keys[:MOST_NAMED])
    what = f"{name}: {len(keys)} of its files are missing or have the wrong size ({some})"
    if layout.is_silver(name):
        remedy = "`doctor --repair` removes them from the table, and `rebuild` adds their rows from bronze"
        return Problem(what, remedy, repair=lambda: f"{_drop_files(lake, name, keys)}; {rebuild(layout.name_of(name))}")
    if (state := derived_state(lake, layout, name)) is not None:
        remedy = "`doctor --repair` moves the table aside; the app recomputes it"
        return Problem(what, remedy, repair=lambda: _renew(lake, state, name))
    if name == layout.events:
        remedy = "`doctor --repair` removes them from the table: their events are lost, and no records"
        return Problem(what, remedy, repair=lambda: _drop_files(lake, name, keys))
    return Problem(what, "Restore them from a backup of the lake")


def _drop_files(lake: Lake, name: str, keys: list[str]) -> str:
    for key in keys:
        if lake.storage.exists(key):
            lake.set_aside(key)
    lake.lease.check()
    open_table(lake, name).repair()
    return f"removed {len(keys)} files from {name}"


def _renew(lake: Lake, state: str, name: str) -> str:
    done = [lake.set_aside(state)] if lake.storage.exists(state) else []  # first: a table without it is recomputed
    return "; ".join([*done, lake.set_aside(lake.table(name))])


def orphans(lake: Lake, manifests: Manifests, committer: TableCommitter) -> list[Problem]:
    """Find files that no version of a table within its retention names. Nothing is checked while a committed unit is
    not applied: only its manifest names its files."""
    if manifests.applied() < manifests.last:
        return []
    problems = []
    for name in lake.tables():
        table = committer.tables.get(name)
        files = sweep(lake, name, table, dry_run=True) if table else []
        if files:
            problems.append(_left(lake, name, len(files)))
    return problems


def _left(lake: Lake, name: str, files: int) -> Problem:
    what = f"{name}: no version within the retention needs {files} of its files"
    remedy = "Maintenance removes them later; `doctor --repair` removes them now"
    return Problem(what, remedy, fatal=False, repair=lambda: _sweep(lake, name))


def _sweep(lake: Lake, name: str) -> str:
    if lake.lease.took_over:  # nothing keeps that process yet from committing a unit, which may name the files
        return f"left the files of {name} to the app: the process before has not given back the right to write the lake"
    removed = sweep(lake, name, open_table(lake, name))
    return f"removed {len(removed)} files of {name}"


def ingested(lake: Lake) -> list[Problem]:
    """Segments that are damaged or missing, and where a Delta table began. A lake of topics has none."""
    found = list[Problem]()
    for _ in range(MOST_LOOKS):
        try:
            _check_ingested(lake, Manifests(lake))
            return []
        except ContractError as error:
            found = [Problem(error.what, f"{REMEDY[0].upper()}{REMEDY[1:]}")]
    return found


def _check_ingested(lake: Lake, manifests: Manifests) -> None:
    """
    Raises:
        ContractError: a start of the app would refuse the ledger.
    """
    last = manifests.last_ingest
    if last is None or "files" not in last.source:
        return
    read_durable(lake.storage, f"{lake.ingested}/began.json")
    ledger = IngestedFiles(lake.storage, lake.ingested, tidy=False)
    open_units = (manifests.read(number) for number in manifests.numbers() if number > ledger.unit)
    later = [file for unit in open_units if unit.kind == "ingest" for file in files_of(unit.source)]
    ((end,),) = (numbers.values() for numbers in last.source["end"].values())
    ledger.check(int(end), later)
