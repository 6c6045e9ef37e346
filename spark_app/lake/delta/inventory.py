"""Checks that the tables, the state files and the manifests belong to the same lake and the same point in time.

Each table's log has its last unit. If that unit is newer than the manifests, manifests are missing. If it is older than
the manifests say, the table is an older copy or was removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from spark_app.lake import cursors
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.durability import REMEDY, DurabilityMark
from spark_app.lake.delta.manifest import MOST_SCANNED, Manifests
from spark_app.lake.delta.problems import Problem
from spark_app.lake.files.state_files import write_durably
from spark_app.lake.lake import Lake
from spark_app.lake.sql_tables import derived_state
from spark_app.model.errors import ContractError
from spark_app.model.table_names import TableNames, gold_kind_of

MOST_NAMED = 10
Seen = Mapping[str, int | None]  # table -> its last unit; 0 = no unit of this lake, None = no such table

LOST_LEDGER = (
    "Restore it from a backup, or run `doctor --repair`: the app then fetches all schemas again, and `schemas.changes` "
    "of the present settings decides about their columns"
)


def examine(
    lake: Lake,
    manifests: Manifests,
    committer: TableCommitter,
    layout: TableNames,
    most_bytes: int = MOST_SCANNED,
    rebuild: Callable[[str], str] = lambda name: "",
) -> list[Problem]:
    """Compare tables, state files and manifests, after every committed unit is applied.

    It may run beside the app: values that only grow are read in an order in which this does no harm.

    Args:
        most_bytes: of manifests to read for tables that no recent unit changes.
        rebuild: requests a rebuild of a routing name ("" = all), and returns one line about it.
    """
    finished = manifests.applied()
    named = manifests.named_until(finished, most_bytes)
    derived = (name for name in lake.tables() if derived_state(lake, layout, name) is not None)
    gold = {name: committer.seen(name, "/gold") for name in derived}
    seen = {name: committer.seen(name) for name in {*lake.tables(), *named} - gold.keys()}
    events = {layout.events: committer.seen(layout.events, "/events")}
    synced, followed = committer.synced, _read_cursors(lake)
    of_gold = min(unit if isinstance(unit, int) else 0 for name, unit in followed.items() if gold_kind_of(name))
    last = max(manifests.numbers(), default=0)
    return [
        *units_without_manifest(seen, last),
        *units_without_manifest(gold | events, last),
        *_behind(lake, seen, named, layout, rebuild),
        *_gaps(manifests, min(synced.unit, of_gold)),
        *_cursors(lake, followed, last),
        *_state_files(lake, layout, last, bool(named), synced),
    ]


def units_without_manifest(seen: Seen, last: int) -> list[Problem]:
    """Tables with units that have no manifest; `last` is the newest manifest."""
    found = {name: unit for name, unit in seen.items() if unit is not None and unit > last}
    if not found:
        return []
    what = f"{_names(found)} has unit {max(found.values())}, but the newest manifest is {last}"
    return [Problem(what, "Restore _protolake from a backup that is not older than the tables; nothing was removed")]


def _behind(
    lake: Lake, seen: Seen, named: Mapping[str, int], layout: TableNames, rebuild: Callable[[str], str]
) -> list[Problem]:
    found = sorted(name for name, unit in named.items() if (seen.get(name) or 0) < unit)
    return [_older(lake, name, seen.get(name), named[name], layout, rebuild) for name in found]


def _older(
    lake: Lake, name: str, seen: int | None, unit: int, layout: TableNames, rebuild: Callable[[str], str]
) -> Problem:
    what = f"{name} is missing" if seen is None else f"{name} is an older copy, its last unit is {seen}"
    what += f", but unit {unit} wrote to it"
    if name in (layout.bronze, layout.resolved, layout.lost):
        new = ", or start a new lake" if name == layout.bronze else ""
        return Problem(what, f"Restore it from a backup that is not older than _protolake{new}")
    remedy = "`rebuild` adds the missing rows from bronze"
    if layout.is_silver(name):
        return Problem(what, remedy, fatal=seen is not None, repair=lambda: rebuild(layout.name_of(name)))
    if seen is None:
        return Problem(what, remedy, fatal=False, repair=lambda: rebuild(""))
    remedy = f"`doctor --repair` moves it aside; {remedy}"
    return Problem(what, remedy, repair=lambda: f"{lake.set_aside(lake.table(name))}; {rebuild('')}")


def _gaps(manifests: Manifests, needed: int) -> list[Problem]:
    """Manifests that are missing between others. `Manifests.forget` removes the oldest, except those that stay."""
    numbers = sorted({*manifests.numbers(), *manifests.numbers()})  # a manifest may be added while the folder is listed
    pairs = itertools.dropwhile(lambda pair: manifests.stays(pair[0]), itertools.pairwise(numbers))
    return [
        Problem(
            f"manifests {one + 1} to {next_one - 1} are missing",
            "Restore them from a backup of the lake",
            fatal=next_one - 1 > needed,
        )
        for one, next_one in pairs
        if next_one != one + 1
    ]


def _state_files(lake: Lake, layout: TableNames, last: int, has_units: bool, synced: DurabilityMark) -> list[Problem]:
    """State files that a lake with such tables must have. Damaged files are reported where they are read.

    Args:
        has_units: a unit has changed tables; before that the ledger may not exist yet.
    """
    problems = []
    storage = lake.storage
    if synced.is_ahead(last):
        problems.append(
            Problem(
                synced.units_without_manifest(last), REMEDY.capitalize(), repair=lambda: lake.set_aside(lake.synced)
            )
        )
    compiled = any(key.endswith(".fds") for key in storage.list(lake.schemas))
    if has_units and not storage.exists(lake.ledger) and compiled:
        problems.append(
            Problem(f"{storage.uri(lake.ledger)} is missing", LOST_LEDGER, repair=lambda: begin_ledger(lake))
        )
    if not storage.exists(lake.admitted) and any(layout.is_silver(name) for name in lake.tables()):
        problems.append(Problem(f"{storage.uri(lake.admitted)} is missing", "Restore it from a backup of the lake"))
    return problems


def _read_cursors(lake: Lake) -> dict[str, int | ContractError]:
    """Follower -> its cursor, or why it cannot be read. Gold's is one of them."""
    found: dict[str, int | ContractError] = {}
    for name in {*cursors.names(lake), "gold"}:
        try:
            found[name] = cursors.read(lake, name) or 0
        except ContractError as error:
            found[name] = error
    return found


def _cursors(lake: Lake, found: Mapping[str, int | ContractError], last: int) -> list[Problem]:
    """Cursors that cannot be read, or that are ahead of the manifests: the next units would never be the follower's.
    Behind one that is moved aside, gold and the events look into their tables."""
    problems = []
    for name, unit in found.items():
        key = cursors.key_of(lake, name)
        if lake.storage.exists(key) and (isinstance(unit, ContractError) or unit > last):
            what = f"{lake.storage.uri(key)} has unit {unit}, but the newest manifest is {last}"
            what = unit.what if isinstance(unit, ContractError) else what
            problems.append(Problem(what, REMEDY.capitalize(), repair=partial(lake.set_aside, key)))
    return problems


def begin_ledger(lake: Lake) -> str:
    """Write an empty ledger in place of a lost one; an old one is kept aside. Returns what was done."""
    done = f"{lake.set_aside(lake.ledger)}, and " if lake.storage.exists(lake.ledger) else ""
    write_durably(lake.storage, lake.ledger, "[]", "ledger")
    return f"{done}created an empty {lake.storage.uri(lake.ledger)}: the app fetches every schema again"


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return f"{', '.join(ordered[:MOST_NAMED])}{more}"
