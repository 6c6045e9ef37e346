"""What happens in a lake, as the table of events tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

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
