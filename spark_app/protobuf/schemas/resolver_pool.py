"""Fetches and compiles schemas in threads beside the batches.

The limit on protoc is CPU time. On a busy machine the wall-clock limit may be reached first; then the schema is tried
again later with twice the time, until protoc ends or has used its CPU time. Retries run in a thread of their own, so an
expensive schema delays others only once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from spark_app.model.catalog import SchemaKey
from spark_app.model.log import log
from spark_app.protobuf.changes.decisions import SchemaDecider
from spark_app.protobuf.schemas.descriptors import CompileTimedOut
from spark_app.protobuf.schemas.limits import SchemaLimits
from spark_app.protobuf.schemas.registry import Registry, RegistryUnreachable
from spark_app.protobuf.schemas.resolution import Resolved, resolve

RESOLVERS = 2  # schemas fetched and compiled in parallel
MOST_CLOCKS = 48.0  # wall-clock seconds per CPU second, at most
FORBIDDEN = 403  # the HTTP status
PAUSE = 4.0  # wait before the next attempt, as a multiple of the last one's time: a schema gets a fifth of a thread


@dataclass(frozen=True)
class Answer:
    """A schema that compiled.

    Attributes:
        subjects: `Registry.subjects_of`; None if the registry did not answer that request, or forbids it.
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
            decider: finds the version before a schema. Without an answer to this the schema is not resolved.
        """
        self._registry = registry
        self._caps = caps
        self._decider = decider
        self._first = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")
        self._again = ThreadPoolExecutor(1, thread_name_prefix="resolve-again")
        self._asked: dict[SchemaKey, Future[Answer]] = {}
        self._asking = threading.Lock()  # two threads may start lookups
        self._clocks: dict[SchemaKey, float] = {}  # wall-clock factor of the last attempt, if it timed out

    def resolve(self, key: SchemaKey) -> Resolved:
        """See `resolution.resolve`. It runs in the calling thread, for schemas that have compiled before."""
        return resolve(self._registry, key, self._caps)

    def ask(self, key: SchemaKey) -> Future[Answer]:
        """Start a lookup, or return the running one; see `resolve` for the errors of its result."""
        with self._asking:
            answer = self._asked.get(key)  # another thread may remove it at any time
            if answer is None:
                lane = self._again if key in self._clocks else self._first
                answer = self._asked[key] = lane.submit(self._resolve, key)
            return answer

    def is_asked(self, key: SchemaKey) -> bool:
        """True if there is a running or finished lookup."""
        return key in self._asked

    def pop_result(self, key: SchemaKey) -> Answer:
        """The result of a finished lookup; the next `ask` starts a new one."""
        return self._asked.pop(key).result()

    def forget(self, key: SchemaKey) -> None:
        """Drop the result; the next `ask` starts a new lookup."""
        self._asked.pop(key, None)

    def pause(self, key: SchemaKey) -> float:
        """Seconds until the next lookup of this schema may start, because of the last one's cost."""
        clocks = self._clocks.get(key, 0.0)
        return PAUSE * replace(self._caps, clocks=clocks).compile_clock_s if clocks else 0.0

    def _resolve(self, key: SchemaKey) -> Answer:
        last = self._clocks.pop(key, None)
        clocks = self._caps.clocks if last is None else min(2 * last, MOST_CLOCKS)
        try:
            resolved = resolve(self._registry, key, replace(self._caps, clocks=clocks))
        except CompileTimedOut:
            self._clocks[key] = clocks
            raise
        if self._decider is None or not self._decider.needs_before(key):
            return Answer(resolved, self._subjects(key))
        try:
            subjects = self._registry.subjects_of(key)
            return Answer(resolved, subjects, self._decider.find_before(key, subjects))
        except RegistryUnreachable as error:
            if error.status != FORBIDDEN or self._decider.must_compare(key):
                raise
            said = "the registry forbids to list versions: a schema is decoded as it is registered"
            log.warning(said, schema=key, reason=str(error))
            return Answer(resolved, None)

    def _subjects(self, key: SchemaKey) -> Mapping[str, int] | None:
        try:
            return self._registry.subjects_of(key)
        except RegistryUnreachable:
            return None
