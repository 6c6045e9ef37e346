"""Asks for schemas and compiles them, beside the batches.

protoc is judged by its CPU. On a busy machine the clock may run out first: then the schema is tried again, later and
with twice as much time, until protoc is done or has had its seconds of CPU. Such tries have a lane of their own, so a
schema that is dear to compile keeps others waiting once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from spark_app.model.catalog import SchemaKey
from spark_app.schemas.descriptors import CompileTimedOut
from spark_app.schemas.limits import SchemaLimits
from spark_app.schemas.registry import Registry, RegistryUnreachable
from spark_app.schemas.resolution import Resolved, resolve

RESOLVERS = 2  # schemas asked for and compiled side by side
MOST_CLOCKS = 48.0  # seconds on the clock for each of CPU, at last
PAUSE = 4.0  # seconds before the next try for each that the last one took: a fifth of one resolver is all that one gets


@dataclass(frozen=True)
class Answer:
    """A schema that compiles. `subjects` is `Registry.subjects_of`; None where the registry did not say."""

    resolved: Resolved
    subjects: Mapping[str, int] | None


class ResolverPool:
    """One answer for each schema that is asked for."""

    def __init__(self, registry: Registry, caps: SchemaLimits):
        self._registry = registry
        self._caps = caps
        self._first = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")
        self._again = ThreadPoolExecutor(1, thread_name_prefix="resolve-again")
        self._asked: dict[SchemaKey, Future[Answer]] = {}
        self._asking = threading.Lock()  # two threads may ask, but only one at a time settles
        self._clocks: dict[SchemaKey, float] = {}  # of the last try, where they ran out

    def resolve(self, key: SchemaKey) -> Resolved:
        """See `resolution.resolve`. For a schema that compiled before: nobody else waits for it."""
        return resolve(self._registry, key, self._caps)

    def ask(self, key: SchemaKey) -> Future[Answer]:
        """The answer, or the one that is under way; see `resolve` for what it raises."""
        with self._asking:
            answer = self._asked.get(key)  # which another thread may take at any moment
            if answer is None:
                lane = self._again if key in self._clocks else self._first
                answer = self._asked[key] = lane.submit(self._resolve, key)
            return answer

    def is_asked(self, key: SchemaKey) -> bool:
        return key in self._asked

    def take(self, key: SchemaKey) -> Answer:
        """The answer that is there; the next question is a new one."""
        return self._asked.pop(key).result()

    def forget(self, key: SchemaKey) -> None:
        """Nobody takes the answer; the next question is a new one."""
        self._asked.pop(key, None)

    def pause(self, key: SchemaKey) -> float:
        """Seconds that the next question must wait, because of the last one's cost."""
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
        return Answer(resolved, self._subjects(key))

    def _subjects(self, key: SchemaKey) -> Mapping[str, int] | None:
        try:
            return self._registry.subjects_of(key)
        except RegistryUnreachable:
            return None
