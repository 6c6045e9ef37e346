"""Answers what a pass met outside its closed set: new schema ids and new routing values.

An id that resolves and was never met is a bump: it goes into the ledger, the batch is not decided, and the app leaves
(or, on an empty lake or by setting, goes on in place). An id that does not resolve is no reason to leave: its records
wait. So a corrupt frame cannot make the app restart, and no id can do it twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import fields

from spark_app.config import Schemas
from spark_app.lake import Lake, read_durable, write_durably
from spark_app.ops.events import log
from spark_app.records import Cause
from spark_app.schemas.caps import Caps, SchemaRefused
from spark_app.schemas.columns import find_clash, merge_columns
from spark_app.schemas.descriptors import CompileFailed
from spark_app.schemas.ledger import Ledger, message_schemas
from spark_app.schemas.registry import Registry, RegistryUnreachable, SchemaNotFound
from spark_app.schemas.resolution import resolve
from spark_app.worker.route import Routing, normalize


def caps_of(settings: Schemas) -> Caps:
    return Caps(**settings.model_dump(include={field.name for field in fields(Caps)}))


class SchemaDesk:
    """Settles schema ids."""

    def __init__(self, ledger: Ledger, registry: Registry, settings: Schemas):
        self.ledger = ledger
        self._registry = registry
        self._caps = caps_of(settings)
        self._settings = settings
        self._next_try: dict[int, float] = {}

    def learn_subject(self, subject: str) -> None:
        """Settle every version of the subject: before the first batch, so that known versions are no bump.

        Raises:
            RegistryUnreachable
        """
        for schema_id, version in self._registry.subject_versions(subject).items():
            entry = self.ledger.entries.get(schema_id)
            if entry is None or entry.outcome == "waiting":
                self.settle(schema_id)
            self.ledger.name_versions({schema_id: version})
        self.ledger.save()

    def ask_versions(self, subject: str) -> dict[int, int]:
        """schema id -> version of the subject; for people only, so that failures do not matter."""
        try:
            return self._registry.subject_versions(subject)
        except RegistryUnreachable:
            return {}

    def meet(self, new_ids: Iterable[int]) -> list[int]:
        """Settle ids that a pass met for the first time; returns those that turned out to be decodable."""
        fresh = [i for i in new_ids if i not in self.ledger.entries][: self._settings.lookups]
        for schema_id in fresh:
            self.settle(schema_id)
        if fresh:
            self.ledger.save()
        return [i for i in fresh if self.ledger.entries[i].outcome == "decodable"]

    def retry_waiting(self) -> bool:
        """Ask again for ids that wait, each at most every few seconds; True when one of them is settled now."""
        now = time.time()
        due = [e for e in self.ledger.waiting() if self._next_try.get(e.schema_id, 0) <= now]
        for entry in due[: self._settings.lookups]:
            self.settle(entry.schema_id)
            waited = now - entry.met_at
            self._next_try[entry.schema_id] = now + min(max(1.0, waited / 4), 60.0)
        settled = [e for e in due if self.ledger.entries[e.schema_id].outcome != "waiting"]
        if settled:
            self.ledger.save()
        return bool(settled)

    def settle(self, schema_id: int) -> None:
        """Ask the registry, compile, and enter the outcome."""
        old = self.ledger.entries.get(schema_id)
        met_at = old.met_at if old else time.time()
        try:
            descriptor_set = resolve(self._registry, schema_id, self._caps)
            self._refuse_clash(descriptor_set)
        except SchemaRefused as error:
            self.ledger.add_refused(schema_id, Cause.SCHEMA_INVALID, str(error), met_at)
            log.warning("schema refused", schema_id=schema_id, reason=str(error))
        except (RegistryUnreachable, CompileFailed) as error:
            self.ledger.add_waiting(schema_id, str(error), met_at)
            log.warning("schema cannot be settled now, records wait", schema_id=schema_id, reason=str(error))
        except SchemaNotFound as error:
            self._not_found(schema_id, str(error), met_at)
        else:
            self.ledger.add_decodable(schema_id, descriptor_set, met_at)
            log.info("schema settled", schema_id=schema_id)

    def _not_found(self, schema_id: int, detail: str, met_at: float) -> None:
        """A registry that is starting or has lost its store answers 404 for ids it knows: be patient."""
        waited = time.time() - met_at
        if waited < self._settings.patience_s:
            self.ledger.add_waiting(schema_id, detail, met_at)
            return
        self.ledger.add_refused(schema_id, Cause.SCHEMA_UNKNOWN, f"not in the registry for {waited:.0f} s", met_at)
        log.warning("schema id given up", schema_id=schema_id, waited_s=round(waited))

    def _refuse_clash(self, descriptor_set: bytes) -> None:
        clash = find_clash(merge_columns(self.ledger.catalog().columns, *message_schemas(descriptor_set).roots))
        if clash is not None:
            raise SchemaRefused(
                f"field {clash!r} clashes with another column that differs only by case, or with our own"
            )


class TableDesk:
    """Admits tables under the cap and remembers who owns which name."""

    def __init__(self, lake: Lake, field: str, allowed: Iterable[str], cap: int):
        self._path = lake.state / "tables.json"
        self._field = field
        self._allowed = frozenset(map(normalize, allowed))
        self._cap = cap
        self.admitted: dict[str, str] = read_durable(self._path) or {}  # routing value -> routing name

    def routing(self, final: bool = False) -> Routing:
        """The closed set for a pass; `final` when what is still new is over the cap."""
        room = len(self.admitted) < self._cap and not final
        return Routing(self._field, self.admitted, self._allowed, room)

    def admit(self, values: Iterable[str]) -> list[str]:
        """Give the values tables, in order, up to the cap; returns the names admitted."""
        admitted = []
        owned = set(self.admitted.values())
        for value in sorted(values, key=lambda v: (v != normalize(v), v)):  # the plain spelling owns the name
            name = normalize(value)
            if name in owned or len(owned) >= self._cap:
                continue
            self.admitted[value] = name
            owned.add(name)
            admitted.append(name)
        if admitted:
            self.admitted = dict(self.admitted)
            write_durably(self._path, json.dumps(self.admitted, indent=1))
            log.info("tables admitted", tables=admitted, total=len(owned))
        return admitted
