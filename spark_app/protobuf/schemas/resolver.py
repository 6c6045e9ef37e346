"""Resolves schema ids that a job saw for the first time, and retries those that wait.

A new schema id (or GUID) of the topics' own subjects is a bump: it is entered in the ledger, the batch is not
committed, and the app exits (or continues, on a lake without tables or with `schemas.on_bump = in-place`). A schema of
another subject is entered without a restart. An id that cannot be resolved never causes a restart: its records are
deferred. So neither a corrupt frame nor a foreign schema restarts the app, and each schema id causes at most one
restart.

Schemas are fetched and compiled in threads beside the batches. The limit on protoc is CPU time. On a busy machine the
wall-clock limit may be reached first; then the schema is tried again later with twice the time, until protoc ends or
has used its CPU time. Retries run in a thread of their own, so an expensive schema delays others only once.

The reasons: docs/decisions/bump.md.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Literal

from spark_app.model.catalog import SchemaKey
from spark_app.model.causes import Cause
from spark_app.model.log import log
from spark_app.protobuf.changes.comparison import MOST_EARLIER, SchemaComparer
from spark_app.protobuf.changes.decisions import Decision, SchemaDecider
from spark_app.protobuf.changes.declarations import other_names, with_comments
from spark_app.protobuf.changes.outcomes import BY_OUTCOME, Judgement
from spark_app.protobuf.columns.types import clash_in
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import depends_on_writer
from spark_app.protobuf.schemas.descriptors import CompileTimedOut, CompileUnavailable
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import Registry, RegistryUnreachable, SchemaNotFound, Subjects
from spark_app.protobuf.schemas.resolution import Resolved, resolve
from spark_app.settings.connections import name_in_context
from spark_app.settings.models import Schemas, Settings

RESOLVERS = 2  # schemas fetched and compiled in parallel
MOST_CLOCKS = 48.0  # wall-clock seconds per CPU second, at most
FORBIDDEN = 403  # the HTTP status
PAUSE = 4.0  # wait before the next attempt, as a multiple of the last one's time: a schema gets a fifth of a thread


@dataclass(frozen=True)
class Lookup:
    """A schema that compiled.

    Attributes:
        subjects: `Registry.subjects_of`; None if the registry did not respond to that request, or forbids it.
        before: the version before it, if there is one and somebody wants to know.
    """

    resolved: Resolved
    subjects: Mapping[str, int] | None
    before: SchemaKey | None = None


class ResolverPool:
    """Runs at most one lookup per schema at a time."""

    def __init__(self, registry: Registry, caps: SchemaLimits, decider: SchemaDecider | None = None):
        """
        Args:
            decider: finds the version before a schema. Until it is known the schema is not resolved.
        """
        self._registry = registry
        self._caps = caps
        self._decider = decider
        self._first = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")
        self._again = ThreadPoolExecutor(1, thread_name_prefix="resolve-again")
        self._lookups: dict[SchemaKey, Future[Lookup]] = {}
        self._starting = threading.Lock()  # two threads may start lookups
        self._clocks: dict[SchemaKey, float] = {}  # wall-clock factor of the last attempt, if it timed out

    def resolve(self, key: SchemaKey) -> Resolved:
        """See `resolution.resolve`. It runs in the calling thread, for schemas that have compiled before."""
        return resolve(self._registry, key, self._caps)

    def look_up(self, key: SchemaKey) -> Future[Lookup]:
        """Start a lookup, or return the running one; see `resolve` for the errors of its result."""
        with self._starting:
            lookup = self._lookups.get(key)  # another thread may remove it at any time
            if lookup is None:
                lane = self._again if key in self._clocks else self._first
                lookup = self._lookups[key] = lane.submit(self._resolve, key)
            return lookup

    def has_lookup(self, key: SchemaKey) -> bool:
        """True if there is a running or finished lookup."""
        return key in self._lookups

    def pop_result(self, key: SchemaKey) -> Lookup:
        """The result of a finished lookup; the next `look_up` starts a new one."""
        return self._lookups.pop(key).result()

    def forget(self, key: SchemaKey) -> None:
        """Drop the result; the next `look_up` starts a new lookup."""
        self._lookups.pop(key, None)

    def pause(self, key: SchemaKey) -> float:
        """Seconds until the next lookup of this schema may start, because of the last one's cost."""
        clocks = self._clocks.get(key, 0.0)
        return PAUSE * replace(self._caps, clocks=clocks).compile_clock_s if clocks else 0.0

    def _resolve(self, key: SchemaKey) -> Lookup:
        last = self._clocks.pop(key, None)
        clocks = self._caps.clocks if last is None else min(2 * last, MOST_CLOCKS)
        try:
            resolved = resolve(self._registry, key, replace(self._caps, clocks=clocks))
        except CompileTimedOut:
            self._clocks[key] = clocks
            raise
        if self._decider is None or not self._decider.needs_before(key):
            return Lookup(resolved, self._subjects(key))
        try:
            subjects = self._registry.subjects_of(key)
            return Lookup(resolved, subjects, self._decider.find_before(key, subjects))
        except RegistryUnreachable as error:
            if error.status != FORBIDDEN or self._decider.must_compare(key):
                raise
            text = "the registry forbids to list versions: a schema is decoded as it is registered"
            log.warning(text, schema=key, reason=str(error))
            return Lookup(resolved, None)

    def _subjects(self, key: SchemaKey) -> Mapping[str, int] | None:
        try:
            return self._registry.subjects_of(key)
        except RegistryUnreachable:
            return None


RETRY_S = 20.0  # longest wait between two lookups of a schema that is cheap to compile
RETRY_WAIT_S = 1.0  # longest wait for retried schemas, because the caller has other work
NO_LOCK = nullcontext()  # for callers with one thread


def limits_of(settings: Schemas) -> SchemaLimits:
    """The limits on schemas in the settings."""
    return SchemaLimits(**settings.model_dump(include={field.name for field in fields(SchemaLimits)}))


def subjects_of(settings: Settings) -> Subjects:
    """The topics' own subjects according to the settings."""
    return Subjects(tuple(settings.subjects), tuple(settings.topics), bool(settings.wrapper.payload))


class SchemaResolver:
    """Resolves schema ids of the registry and enters their outcomes in the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        settings: Schemas,
        subjects: Subjects,
        judgement: Judgement = BY_OUTCOME,
    ):
        self.ledger = ledger
        self.registry = registry
        self._settings = settings
        self._subjects = subjects
        self._next_try: dict[SchemaKey, float] = {}
        self._decider = SchemaDecider(ledger, registry, subjects, judgement)
        self._resolvers = ResolverPool(registry, limits_of(settings), self._decider)
        self._behind: list[SchemaKey] = []  # schemas that are resolved as soon as the version before is
        self.comparer = SchemaComparer(ledger, registry, limits_of(settings), subjects, judgement)
        self._found: dict[SchemaKey, Mapping[str, int]] = {}  # subjects of the schemas that this process resolved
        self._told_numbering = False
        self._unnamed = {e.key for e in ledger.entries.values() if e.outcome == "decodable" and e.version is None}
        self._newly_waiting = 0  # schemas that began to wait since the last retry

    def load_subject_versions(self) -> None:
        """Resolve every version of the configured subjects before the first batch, so that they are not bumps.

        Raises:
            RegistryUnreachable
        """
        for subject in self._subjects.configured:
            versions = self.registry.subject_versions(subject)
            self.ledger.set_versions(versions, name_in_context(subject))  # decisions about the new ones need them
            for schema_id in versions:
                self._resolve_if_open(schema_id)
            self.ledger.set_versions(versions, name_in_context(subject))
            self._unnamed.difference_update(versions)
            self.ledger.save()

    def load_schema(self, schema_id: int) -> None:
        """Resolve a schema that the settings name (0 = none) before the first batch."""
        if schema_id:
            self._resolve_if_open(schema_id)
            self.ledger.save()

    def fetch_missing_forms(self) -> None:
        """Fetch the registered form of schemas entered by an earlier release, if the lake's numbering needs it.

        Raises:
            RegistryUnreachable
        """
        for schema in self.ledger.depending(uncommitted=True):
            try:
                resolved = self._resolvers.resolve(schema.key)
            except (SchemaNotFound, SchemaInvalid, CompileUnavailable) as error:
                log.warning(
                    "the form in which a schema was registered is unknown", schema=schema.key, reason=str(error)
                )
            else:
                self.ledger.set_form(schema.key, resolved.descriptor_set, resolved.form)
        self.ledger.save()

    def _resolve_if_open(self, schema_id: int) -> None:
        """Resolve a schema that is unknown or waiting."""
        entry = self.ledger.entries.get(schema_id)
        if entry is None or entry.outcome == "waiting":
            self.resolve(schema_id)

    def fetch_missing_versions(self) -> dict[SchemaKey, int]:
        """Versions of schemas without one, because the registry did not answer when they were resolved; only for
        display. A few per call, and each until the registry has answered: a schema of other subjects never gets a
        version."""
        found: dict[SchemaKey, int] = {}
        for key in list(self._unnamed)[: self._settings.max_unknown_ids_per_batch]:
            try:
                version = self._subjects.version(self.registry.subjects_of(key))
            except RegistryUnreachable:
                break
            self._unnamed.discard(key)
            if version is not None:
                found[key] = version
        return found

    def bumps(self, keys: Iterable[SchemaKey], known: Iterable[str]) -> list[SchemaKey]:
        """Those of the newly resolved keys that belong to the topics' own subjects; `known` are the message types with
        rows in tables."""
        names = {message.rpartition("/")[2].partition("#")[0] for message in known}
        return [key for key in keys if self._is_own(key, names)]

    def _is_own(self, key: SchemaKey, known: set[str]) -> bool:
        return self._subjects.own(self._found.get(key, {}), self.ledger.message_names(key), known)

    def resolve_new(self, new: Iterable[SchemaKey]) -> list[SchemaKey]:
        """Resolve schemas that a job saw for the first time; returns the decodable ones.

        The batch waits at most `resolve_timeout_s` for all of them, because a schema may be a bomb; slower ones are
        deferred. After `max_unknown_ids_per_batch` failures the rest is left to the next job: corrupt frames can name
        any id.
        """
        decodable: list[SchemaKey] = []
        others = 0
        deadline = time.monotonic() + self._settings.resolve_timeout_s
        fresh = [key for key in new if key not in self.ledger.entries]
        for position, key in enumerate(fresh):
            if others >= self._settings.max_unknown_ids_per_batch or not self.ledger.can_add_waiting():
                break
            for keys_at_once in fresh[
                position : position + min(RESOLVERS, self._settings.max_unknown_ids_per_batch - others)
            ]:
                self._resolvers.look_up(keys_at_once)
            self.resolve(key, max(0.0, deadline - time.monotonic()))
            if self.ledger.entries[key].outcome == "decodable":
                decodable.append(key)
            else:
                others += 1
        self._newly_waiting += others
        if decodable or others:
            self.ledger.save()
        return decodable

    def retry_waiting(
        self,
        wait_s: float | None = RETRY_WAIT_S,
        unmet: Iterable[SchemaKey] = (),
        unit_lock: AbstractContextManager[object] = NO_LOCK,
    ) -> bool:
        """Retry waiting schemas, each at most every few seconds; True if one of them is resolved now, or an unmet one
        is entered.

        Args:
            wait_s: seconds to wait for all answers; None = without limit.
            unmet: schemas that records wait for and that are not in the ledger.
            unit_lock: results are entered under it; it is free during the wait for them.
        """
        now = time.monotonic()
        deadline = None if wait_s is None else now + wait_s
        with unit_lock:
            due = [*self._due(now), *self._new(unmet)]
        for first in range(0, len(due), RESOLVERS):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            wait([self._resolvers.look_up(key) for key in due[first : first + RESOLVERS]], left)
        with unit_lock:
            return self._enter_results(due, now)

    def _due(self, now: float) -> list[SchemaKey]:
        """Schemas to retry: expired ones alternate with those that were retried longest ago. The number is twice that
        of newly waiting schemas plus `max_unknown_ids_per_batch`, so that the list shrinks."""
        due = [
            e
            for e in self.ledger.waiting()
            if not e.is_paused and (self._resolvers.has_lookup(e.key) or self._next_try.get(e.key, 0) <= now)
        ]
        limit, self._newly_waiting = self._settings.max_unknown_ids_per_batch + 2 * self._newly_waiting, 0
        since = time.time() - self._settings.unknown_id_grace_s
        over = [entry.key for entry in due if entry.met_at <= since]
        young = [entry.key for entry in due if entry.met_at > since]
        turns = itertools.chain.from_iterable(itertools.zip_longest(over, young))
        return list(itertools.islice((key for key in turns if key is not None), limit))

    def _new(self, unmet: Iterable[SchemaKey]) -> list[SchemaKey]:
        new = itertools.islice(
            (key for key in unmet if key not in self.ledger.entries), self._settings.max_unknown_ids_per_batch
        )
        return list(new) if self.ledger.can_add_waiting() else []

    def _enter_results(self, due: list[SchemaKey], now: float) -> bool:
        """Enter the results of the lookups; schemas without a result continue to wait."""
        moved = False
        for key in due:
            if not self._resolvers.has_lookup(key):  # the time was over, or a batch has resolved it meanwhile
                continue
            old = self.ledger.entries.get(key)
            if old is not None and old.outcome != "waiting":  # a batch has resolved it
                self._resolvers.forget(key)
                continue
            self.resolve(key, 0)
            entry = self.ledger.entries[key]
            moved |= old is None or entry.outcome != "waiting"
            if entry.outcome == "waiting":
                waited = time.time() - entry.met_at
                pause = min(max(1.0, waited / 4), RETRY_S)
                self._next_try[key] = now + max(pause, self._resolvers.pause(key))
            else:
                self._next_try.pop(key, None)
        if moved:
            self.ledger.save()
        return moved

    def resolve(self, key: SchemaKey, wait_s: float | None = None) -> None:
        """Fetch and compile a schema, and enter the outcome. After `wait_s` seconds (None = without limit) the lookup
        continues in its thread, and the schema is entered as waiting."""
        deadline = None if wait_s is None else time.monotonic() + wait_s
        old = self.ledger.entries.get(key)
        if old is not None and old.is_stopped:
            return None
        met_at = min(old.met_at, time.time()) if old else time.time()  # the clock may have been set back
        lookup = self._resolvers.look_up(key)
        wait([lookup], wait_s)
        if not lookup.done():
            return self._wait(key, "fetching or compiling it takes long", met_at)
        try:
            result = self._resolvers.pop_result(key)
        except SchemaInvalid as error:
            self.ledger.add_refused(key, Cause.SCHEMA_INVALID, str(error), met_at)
            log.warning("schema refused", schema=key, reason=str(error))
        except (RegistryUnreachable, CompileUnavailable) as error:
            self._wait(key, str(error), met_at)
        except SchemaNotFound as error:
            self._handle_not_found(key, str(error), met_at)
        else:
            if self._resolve_before(key, result.before, deadline):
                self._add_decodable(key, result, met_at)
            else:
                self._wait(key, f"the version before it, schema {result.before}, is not resolved yet", met_at)

    def _wait(self, key: SchemaKey, why: str, met_at: float) -> None:
        """Enter a schema that is not resolved now; the log has each reason once."""
        old = self.ledger.entries.get(key)
        if old is None or old.detail != why:
            log.warning("records wait for their schema", schema=key, reason=why)
        self.ledger.add_waiting(key, why, met_at)

    def _resolve_before(self, key: SchemaKey, before: SchemaKey | None, deadline: float | None) -> bool:
        """Resolve the version before a schema, whose columns go on. False if that is not possible now; when it is
        refused, the next attempt finds another version."""
        if before is None or before in self._behind or len(self._behind) >= MOST_EARLIER:
            return True
        entry = self.ledger.entries.get(before)
        if entry is None or entry.outcome == "waiting":
            self._behind.append(key)
            self.resolve(before, None if deadline is None else max(0.0, deadline - time.monotonic()))
            self._behind.pop()
        return self.ledger.entries[before].outcome == "decodable"

    def _add_decodable(self, key: SchemaKey, lookup: Lookup, met_at: float) -> None:
        self._found[key] = lookup.subjects or {}
        if lookup.subjects is None:
            self._unnamed.add(key)
        version, resolved = self._subjects.version(self._found[key]), lookup.resolved
        kept = self._subjects.kept(self._found[key])
        own = resolved.descriptor_set
        decision = self._decider.decide(key, own, self._found[key], lookup.before)
        if decision.stopped:
            return self._stop(key, decision, met_at, resolved)
        comments = with_comments(resolved.comments, other_names(own, decision.decoded))
        self.ledger.add_decodable(
            key, own, met_at, resolved.form, version, comments, kept, decision.decoded, resolved.encrypted
        )
        log.info("schema compiled", schema=key, subjects=sorted(self._found[key])[:10])
        if resolved.encrypted:
            effect = "what is encrypted lands as it was sent, or goes to quarantine"
            log.warning(
                "the rule set of a schema encrypts its records", schema=key, rule=resolved.encrypted, effect=effect
            )
        messages = load_files(own)[1]
        if clash := clash_in(message.file for message in messages):
            reason = f"{clash} differ in case and underscores only"
            log.warning("a schema is decoded by Google's parser alone, which is slower", schema=key, reason=reason)
        if depends_on_writer(messages) and not self._told_numbering:  # the next versions have it, too
            self._told_numbering = True
            log.warning(
                "the meaning of this schema's message indexes depends on the writer",
                schema=key,
                registered_as=resolved.form,
                message_index=self.ledger.numbering or "descriptor",
            )

    def _stop(self, key: SchemaKey, decision: Decision, met_at: float, resolved: Resolved) -> None:
        """Enter a schema about whose changes a person decides."""
        policy: Literal["pause", "quarantine"] = "pause" if decision.stopped == "pause" else "quarantine"
        compiled = resolved.descriptor_set, resolved.form
        self.ledger.add_stopped(key, policy, decision.reason, met_at, decision.stopped_by, *compiled)
        remedy = f"decide: protolake accept-schema {key} --as alias|new_column|warn|accept|quarantine"
        log.error(
            "records of a schema are kept out", schema=key, policy=decision.stopped, said=decision.reason, remedy=remedy
        )

    def _handle_not_found(self, key: SchemaKey, detail: str, met_at: float) -> None:
        """A registry that is starting answers 404 for ids that it knows, so wait before giving up."""
        waited = time.time() - met_at
        if waited < self._settings.unknown_id_grace_s:
            return self._wait(key, f"the registry says: {detail}", met_at)
        self.ledger.add_refused(key, Cause.SCHEMA_UNKNOWN, f"not in the registry for {waited:.0f} s: {detail}", met_at)
        log.warning("schema id not found, its records go to quarantine", schema=key, waited_s=round(waited))
        return None
