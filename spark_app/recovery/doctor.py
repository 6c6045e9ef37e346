"""`doctor` checks all parts of a lake, also while the app runs, and makes the repairs that are safe without a person.

Id, manifests, fixed settings, ledger and table names come first; the `CHECKS` run only if these are intact, because
they depend on them. Only unreferenced files are deleted; all other files are moved to `_protolake/aside`.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from posixpath import basename

import pyarrow.parquet as pq

from spark_app.lake.delta import durability, inventory
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.log import log_key, versions
from spark_app.lake.delta.manifest import MOVING, Manifest, Manifests, follows, read_manifest
from spark_app.lake.delta.problems import Problem
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.lake.lake import IDENTITY, Lake
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.recovery import file_checks, requests
from spark_app.recovery.requests import Request
from spark_app.settings.models import Settings
from spark_app.sources.kafka.broker_access import one_listens
from spark_app.sources.kafka.topics import UNANSWERED, BrokerUnreachable, Topics
from spark_app.tables.admission import TableAdmission
from spark_app.tables.comments import TableComments
from spark_app.tables.fixed_settings import (
    check_fixed_settings,
    numbering_of,
    only_numbering_differs,
    write_fixed_settings,
)
from spark_app.units.driver import loss
from spark_app.units.spark import checkpoint

MOST_LOOKS = 10  # at the checkpoint, which a running app changes
MOST_ROUNDS = 5  # of checks and repairs: a repaired fault may have hidden another one
RACE_REMEDY = (
    "Stop the app, and copy the lake to an object store that keeps If-None-Match and If-Match of requests at one moment"
)


@dataclass(frozen=True)
class LakeUnderCheck:
    """A lake whose id and manifests are intact."""

    lake: Lake
    settings: Settings
    manifests: Manifests
    committer: TableCommitter


def examine(lake: Lake, settings: Settings) -> list[Problem]:
    """All problems."""
    return [*_examine_lake(lake, settings), *race_store(lake)]


def _examine_lake(lake: Lake, settings: Settings) -> list[Problem]:
    found = [
        *_identity(lake, settings),
        *_manifests(lake),
        *_fixed_settings(lake, settings),
        *_ledger(lake),
        *_names(lake),
    ]
    found += [] if any(problem.fatal for problem in found) else _power(lake, settings)
    if any(problem.fatal or problem.repair for problem in found):
        return found
    manifests = Manifests(lake)
    patient = LakeUnderCheck(lake, settings, manifests, TableCommitter(lake, manifests, settings.lake, settings.layout))
    return found + [problem for examiner in CHECKS for problem in examiner(patient)]


def repair(lake: Lake, settings: Settings) -> Iterator[str]:
    """Make all possible repairs; yields a description of each. The caller holds the lake's lock and ends the Spark
    session, which only a rebuild starts."""
    for _ in range(MOST_ROUNDS):
        repairs = [problem.repair for problem in _examine_lake(lake, settings) if problem.repair]
        if not repairs:
            return
        for make_repair in repairs:
            lake.lease.check()
            yield make_repair()
        pending = requests.pending(lake)
        if pending:
            from spark_app.recovery.executor import execute

            result = execute(settings, lake, pending[-1])
            yield f"executed the pending requests: {result.get('error', 'done')}"


def _identity(lake: Lake, settings: Settings) -> list[Problem]:
    try:
        lake.identity()
    except ContractError as error:
        found = _find_id(lake, lake.table(settings.tables.bronze))
        remedy = f"`doctor --repair` restores the id {found} from bronze" if found else "Restore it from a backup"
        return [Problem(error.what, remedy, repair=(lambda: _restore_id(lake, found)) if found else None)]
    return []


def _manifests(lake: Lake) -> list[Problem]:
    """Each manifest must be readable and unaltered, and start where the one before ended."""
    problems, whole = [], []
    for key in (key for key in lake.storage.list(lake.manifests) if key.endswith(".json")):
        try:
            whole.append(read_manifest(lake.storage, key))
        except ContractError as error:
            if lake.storage.exists(key):  # else the running app has just removed it
                problems.append(Problem(error.what, "Restore it from a backup of the lake"))
    return problems + _breaks(whole)


def _breaks(whole: list[Manifest]) -> list[Problem]:
    there = {manifest.sequence for manifest in whole}
    moving = [manifest for manifest in whole if manifest.kind in MOVING]
    return [
        Problem(
            f"unit {two.sequence} starts at {two.source['start']}, but unit {one.sequence} ended at "
            f"{one.source['end']}: the records between were lost, or ingested twice",
            "Restore the manifests between them; `audit` lists the affected records",
            fatal=there.issuperset(range(one.sequence, two.sequence)),
        )
        for one, two in itertools.pairwise(moving)
        if not follows(two.source["start"], one.source["end"])
    ]


def _fixed_settings(lake: Lake, settings: Settings) -> list[Problem]:
    if not lake.tables():
        return []
    try:
        check_fixed_settings(lake, settings)
    except ConfigurationError as error:
        if only_numbering_differs(lake, settings):
            remedy = "After that, run `replay --cause schema_index`; `rebuild` lists rows of the old setting"
            return [Problem(str(error), remedy, repair=lambda: write_fixed_settings(lake, settings))]
        return [Problem(str(error), "Use the settings that the lake was created with")]
    except ContractError as error:
        remedy = "Restore it from a backup, or run `doctor --repair` with the lake's settings"
        return [Problem(error.what, remedy, repair=lambda: write_fixed_settings(lake, settings))]
    return []


def _ledger(lake: Lake) -> list[Problem]:
    """The ledger, and the compiled schemas with which records are decoded, must be readable."""
    try:
        Ledger(lake).catalog()
    except (ContractError, TypeError, KeyError, OSError) as error:
        if is_store_error(error):
            raise
        what = error.what if isinstance(error, ContractError) else str(error)
        return [Problem(what, inventory.LOST_LEDGER, repair=lambda: inventory.begin_ledger(lake))]
    return []


def _power(lake: Lake, settings: Settings) -> list[Problem]:
    """The durability mark, and the log entries after it, which a power cut may have torn."""
    try:
        synced = DurabilityMark(lake)
    except ContractError as error:
        remedy = "`doctor --repair` moves it aside; the next start then checks every commit"
        return [Problem(error.what, remedy, repair=lambda: lake.set_aside(lake.synced))]
    found = durability.look(lake, synced, settings.layout)
    if not found or any(problem.fatal for problem in found):
        return found
    what, remedy = "; ".join(problem.what for problem in found), "The app repairs it, at its next start if it is down"
    return [Problem(what, remedy, fatal=False, repair=lambda: _finish_units(lake, settings))]


def _finish_units(lake: Lake, settings: Settings) -> str:
    """Apply committed units as a start of the app does; returns a description.

    Raises:
        ContractError: they cannot be applied.
    """
    manifests = Manifests(lake)
    layout = settings.layout
    comments = TableComments(Ledger(lake), TableAdmission(lake, settings.event, settings.tables), layout)
    committer = TableCommitter(lake, manifests, settings.lake, comments=comments.of)
    durability.mend(lake, committer.synced, layout)
    return f"moved torn log files aside, if there were any, and applied {committer.redo()} units"


def _names(lake: Lake) -> list[Problem]:
    found = []
    for key in (lake.admitted, lake.field_ids):
        try:
            read_durable(lake.storage, key)
        except ContractError as error:
            found.append(Problem(error.what, "Restore it from a backup of the lake"))
    return found


def _inventory(patient: LakeUnderCheck) -> list[Problem]:
    layout = patient.settings.layout
    return inventory.examine(
        patient.lake,
        patient.manifests,
        patient.committer,
        layout,
        most_bytes=sys.maxsize,
        rebuild=lambda name: _request_rebuild(patient.lake, name),
    )


def _request_rebuild(lake: Lake, name: str) -> str:
    requests.submit(lake, Request("rebuild", {"names": [name] if name else []}))
    return f"requested a rebuild of {name or 'every table'}"


def _checkpoint(patient: LakeUnderCheck) -> list[Problem]:
    """Compare Spark's checkpoint with the manifests; again if a running app has committed a unit meanwhile."""
    manifests, found = patient.manifests, list[Problem]()
    for _ in range(MOST_LOOKS):
        found = checkpoint.examine(patient.lake, manifests.last_ingest)
        newer = Manifests(patient.lake)
        if not found or newer.last == manifests.last:
            break
        manifests = newer
    return found


def _scratch(patient: LakeUnderCheck) -> list[Problem]:
    pending = {request.id for request in requests.pending(patient.lake)}
    storage, folder = patient.lake.storage, patient.lake.rebuild
    there = (key for key in storage.list(folder) if storage.exists(key))  # some object stores list empty folders
    left = [
        key for key in there if not {basename(key), basename(key).rpartition("-")[0]} & pending
    ]  # "<request>-<epoch>"
    what = f"{storage.uri(folder)} has {len(left)} folders of ended rebuilds"
    problem = Problem(what, "`doctor --repair` removes them", fatal=False, repair=lambda: _remove(storage, left))
    return [problem] if left else []


def _remove(storage: Storage, folders: list[str]) -> str:
    for folder in folders:
        storage.delete_all(folder)
    return f"removed {len(folders)} folders of ended rebuilds"


def _open_units(patient: LakeUnderCheck) -> list[Problem]:
    finished, last = patient.manifests.applied(), patient.manifests.last
    what, remedy = (
        f"unit {last} is committed, but not in all tables",
        "The app completes it, at its next start if it is down",
    )
    apply_units = partial(_finish_units, patient.lake, patient.settings)
    return [Problem(what, remedy, fatal=False, repair=apply_units)] if finished < last else []


def _numbering(patient: LakeUnderCheck) -> list[Problem]:
    """Schemas whose message indexes depend on the writer, if the lake has no setting for them."""
    if numbering_of(patient.lake) is not None:
        return []
    keys = ", ".join(str(schema.key) for schema in Ledger(patient.lake).depending())
    what = f"the lake has no setting for message indexes, which depend on the writer in the schemas {keys}"
    return [Problem(what, "Set decode.message_index, see docs/decoding.md", fatal=False)] if keys else []


def _paused(patient: LakeUnderCheck) -> list[Problem]:
    """Tables whose rows wait because of an expectation."""
    return [
        Problem(
            f"the table {name} is paused: {pause.record} fails the expectation {pause.rule}, "
            f"and {pause.rows:,} rows wait",
            f"Change the expectation and restart the app, or decide: `resume {name} --failing quarantine|land`",
            fatal=False,
        )
        for name, pause in sorted(patient.manifests.pauses.items())
        if not pause.failing
    ]


def _topics(patient: LakeUnderCheck) -> list[Problem]:
    """Records that Kafka has lost. `doctor` cannot repair this; `run --accept-loss` accepts the loss."""
    if patient.settings.source.kind == "files":
        return []
    brokers = patient.settings.kafka.brokers
    try:
        if not one_listens(patient.settings.kafka):
            raise BrokerUnreachable("no broker accepts a connection")
        now = loss.search(patient.manifests.last_ingest, Topics(patient.settings.kafka))
    except UNANSWERED as error:
        return [Problem(f"the topics could not be compared with the lake: {error}", f"Is {brokers} up?", fatal=False)]
    if moved := loss.moved_partition(patient.manifests.last_ingest, now, patient.settings.kafka):
        return [Problem("the settings do not fit the lake", moved)]
    gaps = loss.find_gaps(patient.manifests.last_ingest, now)
    return [Problem(loss.describe(gaps), 'See "Records that Kafka lost" in docs/operations.md')] if gaps else []


CHECKS: list[Callable[[LakeUnderCheck], list[Problem]]] = [
    _inventory,
    _open_units,
    _checkpoint,
    lambda p: file_checks.torn(p.lake, p.committer, p.settings.layout, lambda name: _request_rebuild(p.lake, name)),
    lambda p: file_checks.orphans(p.lake, p.manifests, p.committer),
    lambda p: file_checks.ingested(p.lake),
    _scratch,
    _numbering,
    _paused,
    _topics,
]


def _find_id(lake: Lake, bronze: str) -> str | None:
    """The id in the newest transaction of bronze; None if its log has none."""
    return next((app for app in _applications(lake, bronze) if IDENTITY.fullmatch(app)), None)


def _restore_id(lake: Lake, found: str) -> str:
    """Write the id file again; returns a description."""
    done = f"{lake.set_aside(lake.id)}, and " if lake.storage.exists(lake.id) else ""
    write_durably(lake.storage, lake.id, f"{found}\n", "identity")
    return f"{done}wrote {found} to {lake.storage.uri(lake.id)}"


def _applications(lake: Lake, table: str) -> Iterator[str]:
    """Application ids of the transactions: of the commits, newest first, then of the checkpoints."""
    for _, key in sorted(versions(lake.storage, table).items(), reverse=True):
        for line in lake.storage.get(key).splitlines():
            try:
                action = json.loads(line)
            except ValueError:
                continue
            if "txn" in action:
                yield str(action["txn"]["appId"])
    for key in reversed(lake.storage.list(log_key(table))):
        is_checkpoint = ".checkpoint" in key and key.endswith(".parquet")
        rows = pq.ParquetFile(lake.storage.open_input(key)).read(columns=["txn"]) if is_checkpoint else None
        for row in rows["txn"].to_pylist() if rows is not None else ():
            if row:
                yield str(row["appId"])


def race_store(lake: Lake) -> list[Problem]:
    """Race clients of the object store, with small objects that are removed again. A local disk has a lock instead."""
    if lake.storage.is_local:
        return []
    from spark_app.lake.files.objects import race  # loads the library of object stores

    try:
        faults = race(lake.address, lake.trial("race"))
    except PermissionError as error:
        what = f"whether the object store keeps conditional writes could not be tried: {error.strerror}"
        return [Problem(what, "Run doctor with keys that may write and delete", fatal=False)]
    what = f"the object store of {lake.uri} lets two processes write one lake: {faults[0]}" if faults else ""
    return [Problem(what, RACE_REMEDY)] if faults else []
