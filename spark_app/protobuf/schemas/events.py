"""Tells what becomes of schemas, by looking at the ledger from time to time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from spark_app.model.events import Event, Level
from spark_app.protobuf.schemas.ledger import Entry, Ledger

KINDS = {"decodable": "schema_resolved", "refused": "schema_refused", "waiting": "schema_waiting"}
MOST_FINDINGS = 20


class SchemaEvents:
    """Tells what has changed since it was made, or since the last `step`."""

    def __init__(self, ledger: Ledger, emit: Callable[[Event], None]):
        self._ledger = ledger
        self._emit = emit
        self._seen = {key: _state(entry) for key, entry in ledger.entries.items()}

    def step(self) -> None:
        for key, entry in list(self._ledger.entries.items()):
            *outcome, comparison = self._seen.get(key, ("", False, None))
            self._seen[key] = _state(entry)
            if [entry.outcome, entry.is_stopped] != outcome:
                self._emit(_outcome(entry))
            if entry.comparison and entry.comparison != comparison:
                self._emit_comparison(entry)

    def _emit_comparison(self, entry: Entry) -> None:
        found = self._ledger.comparison_of(entry)
        if found is None or not found.findings:
            return
        text = f"Schema {entry.key}, {found.where}, differs from the version before it"
        details = {"schema": entry.key, "findings": [asdict(change) for change in found.findings[:MOST_FINDINGS]]}
        self._emit(Event("schema_changed", text, "WARN" if found.warnings else "INFO", details=details))


def _state(entry: Entry) -> tuple[str, bool, str | None]:
    return entry.outcome, entry.is_stopped, entry.comparison


def _outcome(entry: Entry) -> Event:
    text = {"decodable": "can be decoded", "refused": f"is refused: {entry.cause}", "waiting": "is waited for"}
    stopped = f"is kept out until a person decides: {entry.detail}" if entry.is_stopped else ""
    level: Level = "INFO" if entry.outcome == "decodable" else "WARN"
    names = ("cause", "version", "subjects", "stopped_by", "accepted")
    details = {"schema": entry.key, **{name: value for name in names if (value := getattr(entry, name))}}
    return Event(KINDS[entry.outcome], f"Schema {entry.key} {stopped or text[entry.outcome]}", level, details=details)
