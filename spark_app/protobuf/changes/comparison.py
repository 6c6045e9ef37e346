"""Compares each schema with the version before it in its subject, once, beside the batches: no batch waits for it.

A schema with several subjects is compared in one of them, the first of `Subjects.kept`. The version before is the
newest earlier one of that subject that compiles, whenever its own records came. If the ledger does not have it, the
registry is queried in a thread; one that does not answer is queried again later, also after a restart.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_app.lake.delta.merged_columns import type_at
from spark_app.model.catalog import Decodable, SchemaKey
from spark_app.model.log import log
from spark_app.model.schema_changes import Comparison
from spark_app.protobuf.changes.differences import Change, Version, differences
from spark_app.protobuf.changes.outcomes import Judgement, schema_changes_of
from spark_app.protobuf.schemas.descriptors import CompileUnavailable
from spark_app.protobuf.schemas.ledger import Entry, Ledger, message_schemas, message_types
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import Registry, RegistryUnreachable, SchemaNotFound, Subjects
from spark_app.protobuf.schemas.resolution import resolve

MOST_FINDINGS = 40  # of a schema that are kept and logged
MOST_AT_ONCE = 100  # schemas of a step
ENTER_S = 1.0  # seconds for which a step has the lock, plus one schema
MOST_LOOKUPS = 4  # schemas whose version before is looked up meanwhile, one after another
MOST_EARLIER = 100  # earlier versions that are looked at
WAIT_S = 1.0  # for the registry, because the caller has other work
RETRY_S = 60.0  # until the version before a schema is looked up again


@dataclass(frozen=True)
class Before:
    """The version before a schema; without descriptor sets the schema is the first version or has no subject."""

    subject: str = ""
    version: int | None = None
    before_version: int | None = None
    registered: bytes = b""
    decoded: bytes = b""


class SchemaComparer:
    """Enters the comparisons in the ledger, and logs their warnings."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        caps: SchemaLimits,
        subjects: Subjects,
        judgement: Judgement,
    ):
        self._ledger = ledger
        self._registry = registry
        self._caps = caps
        self._subjects = subjects
        self._judgement = judgement
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compare")
        self._lookups: dict[SchemaKey, Future[Before]] = {}
        self._next_try: dict[SchemaKey, float] = {}

    def step(self, unit_lock: AbstractContextManager[object]) -> None:
        """Compare the schemas that are not compared yet. Comparisons are entered under `unit_lock`, which is free
        during the wait for the registry."""
        now = time.monotonic()
        due = (entry for entry in self._ledger.uncompared() if self._next_try.get(entry.key, 0) <= now)
        found: dict[SchemaKey, Before] = {}
        for entry in itertools.islice(due, MOST_AT_ONCE):
            before = self._known(entry) or self._looked_up(entry, max(0.0, now + WAIT_S - time.monotonic()))
            if before is not None:
                found[entry.key] = before
                self._lookups.pop(entry.key, None)
        if found:
            with unit_lock:
                entered = self._enter_all(found)
            for key, comparison in entered.items():
                if self._ledger.entries[key].outcome == "decodable":
                    _log(key, comparison)

    def _known(self, entry: Entry) -> Before | None:
        """The version before by the ledger; None if it does not say."""
        if not entry.subjects:
            return None
        subject, version = next(iter(entry.subjects.items()))
        if version == 1:
            return Before(subject, version)
        for other in list(self._ledger.entries.values()):
            if other.outcome == "decodable" and other.subjects.get(subject) == version - 1:
                before = self._ledger.version(other)
                return Before(subject, version, version - 1, before.registered, before.decoded)
        return None

    def _looked_up(self, entry: Entry, wait_s: float) -> Before | None:
        """The version before by the registry; None if it does not answer within the time."""
        key = entry.key
        if key not in self._lookups:
            if len(self._lookups) >= MOST_LOOKUPS:
                return None
            self._lookups[key] = self._thread.submit(self._look_up, key, entry.subjects)
        wait([self._lookups[key]], wait_s)
        if not self._lookups[key].done():
            return None
        try:
            return self._lookups.pop(key).result()
        except (RegistryUnreachable, CompileUnavailable):
            self._next_try[key] = time.monotonic() + RETRY_S
            return None

    def _look_up(self, key: SchemaKey, known: Mapping[str, int]) -> Before:
        """
        Raises:
            RegistryUnreachable, CompileUnavailable
        """
        subjects = known or self._subjects.kept(self._registry.subjects_of(key))
        if not subjects:
            return Before()
        subject, version = next(iter(subjects.items()))
        for before, schema_id in itertools.islice(self._registry.versions_before(subject, version), MOST_EARLIER):
            found = self._version(schema_id)
            if found is not None:
                return Before(subject, version, before, found.registered, found.decoded)
        return Before(subject, version)

    def _version(self, schema_id: int) -> Version | None:
        """The compiled schema; None if it is refused."""
        entry = self._ledger.entries.get(schema_id)
        if entry is not None and entry.outcome == "refused":
            return None
        if entry is not None and entry.outcome == "decodable":
            return self._ledger.version(entry)
        try:
            found = resolve(self._registry, schema_id, self._caps).descriptor_set
        except (SchemaInvalid, SchemaNotFound):
            return None
        return Version(found, found)

    def _enter_all(self, found: Mapping[SchemaKey, Before]) -> dict[SchemaKey, Comparison]:
        """Enter as many as there is time for; the others are found again in the next step."""
        deadline = time.monotonic() + ENTER_S
        entered: dict[SchemaKey, Comparison] = {}
        for key, before in found.items():
            if entered and time.monotonic() > deadline:
                break
            entered[key] = self._enter(self._ledger.entries[key], before)
        self._ledger.save()
        return entered

    def _enter(self, entry: Entry, before: Before) -> Comparison:
        comparison = Comparison(before.subject, before.version)
        if before.registered:
            try:
                comparison = self._compare(entry, before)
            except Exception as error:  # one schema must not stop the app at every start
                reason = f"{type(error).__name__}: {error}"
                log.warning(
                    "a schema could not be compared with the version before it", schema=entry.key, reason=reason
                )
        self._ledger.set_comparison(entry.key, comparison)
        return comparison

    def _compare(self, entry: Entry, before: Before) -> Comparison:
        catalog = self._ledger.catalog()
        older = range(1, before.before_version or 1)
        earlier = [
            catalog.decodable[other.key].descriptor_set
            for other in self._ledger.entries.values()
            if other.key in catalog.decodable and other.subjects.get(before.subject) in older
        ]
        own = self._ledger.version(entry)
        changes = differences(Version(before.registered, before.decoded), own)
        changes = mark_readded(changes, earlier[-MOST_EARLIER:])
        of_keys = self._subjects.is_of_keys(before.subject)
        columns = catalog.columns
        if entry.key not in catalog.decodable:
            new = Decodable(entry.key, own.decoded, entry.digest)
            columns, _ = message_types([*catalog.decodable.values(), new])
        policy = entry.accepted
        if entry.is_stopped:  # it stays so whatever the settings say today
            policy = "pause" if entry.is_paused else "quarantine"
        found = schema_changes_of(changes, columns, self._judgement.accepting(policy, entry.stopped_by), of_keys)
        return Comparison(
            before.subject,
            before.version,
            before.before_version,
            self._ledger.keep(before.registered),
            tuple(found[:MOST_FINDINGS]),
            max(0, len(found) - MOST_FINDINGS),
        )


def mark_readded(changes: Iterable[Change], earlier: Iterable[bytes]) -> list[Change]:
    """The changes, with those of the kind `readded` that add a field whose column a version before had. `earlier`: the
    descriptor sets of the versions that are older than the one before."""
    known = [message_schemas(descriptor_set) for descriptor_set in earlier]
    return [replace(change, kind="readded") if _was_there(change, known) else change for change in changes]


def _was_there(change: Change, known: list[dict[str, pa.Schema]]) -> bool:
    if change.kind != "added" or change.after is None:
        return False
    return any(
        type_at(schemas[change.was], change.after.path) is not None for schemas in known if change.was in schemas
    )


def _log(key: SchemaKey, comparison: Comparison) -> None:
    where = {"schema": key, "subject": comparison.subject, "version": comparison.version}
    for change in comparison.warnings:
        log.warning(
            "a schema version changes its tables",
            **where,
            before=comparison.before_version,
            message=change.message,
            kind=change.kind,
            said=change.said,
        )
    if comparison.left_out:
        log.warning("more differences of a schema version are not kept", **where, left_out=comparison.left_out)
