"""What happens in a lake, as the table of events tells it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

RUN_ID = uuid.uuid4().hex[:12]  # the name of this process in manifests and events


Level = Literal["INFO", "WARN", "ERROR"]


@dataclass(frozen=True)
class Event:
    """One event. It never has the value of a column: rows are named by table, rule, cause and coordinates.

    Attributes:
        kind: one word of those that docs/events.md explains. Kinds are stored in lakes and never change.
        message: one sentence.
        table: the table that the event is about; None = no single one.
        details: values that fit into JSON.
    """

    kind: str
    message: str
    level: Level = "INFO"
    table: str | None = None
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "details": dict(self.details)}


@dataclass(frozen=True)
class EventRow:
    """
    Attributes:
        id: names the event for ever; no two rows have the same.
        happened_at: microseconds since 1970; None = not known.
        run: the process that made the event.
        unit: number of the unit, or of the last of several units, that the event is about.
        details: JSON.
    """

    id: str
    happened_at: int | None
    kind: str
    level: str
    run: str | None
    unit: int | None
    table: str | None
    message: str
    details: str

    @staticmethod
    def of(event: Event, id: str, happened_at: int | None, run: str | None, unit: int | None) -> EventRow:
        details = json.dumps(dict(event.details), ensure_ascii=False)
        return EventRow(id, happened_at, event.kind, event.level, run, unit, event.table, event.message, details)
