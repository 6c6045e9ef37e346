"""Reads the app's `status.json`; missing fields are empty."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of one game; `versions` maps schema version (or `id 7`) to rows, `failed` the action of rules to the rows
    that failed them."""

    silver: int
    gold: int
    versions: dict[str, int]
    failed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """A paused table: so many rows wait because of a rule, or are let in now."""

    rule: str
    rows: int
    let_in: bool


@dataclass(frozen=True)
class Status:
    """`updated_at` is Unix time; `rate` rows per second; `age` seconds; `lag` records; `kept_out` the schemas that a
    person decides about, with what they change."""

    state: str = "starting"
    reason: str | None = None
    updated_at: float = 0.0
    rate: float = 0.0
    age: float | None = None
    lag: int | None = None
    bronze: int = 0
    deferred: int = 0
    dropped: int = 0
    quarantine: dict[str, int] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    paused: dict[str, Pause] = field(default_factory=dict)
    kept_out: dict[str, str] = field(default_factory=dict)

    @property
    def silver(self) -> int:
        return sum(table.silver for table in self.tables.values())

    @property
    def quarantined(self) -> int:
        return sum(self.quarantine.values())


def read(lake: Path) -> Status:
    """The current status; an empty one if there is none."""
    try:
        found = json.loads((lake / "_protolake" / "status.json").read_text())
    except (OSError, ValueError):
        return Status()
    return parse(found) if isinstance(found, dict) else Status()


def parse(found: dict[str, Any]) -> Status:
    return Status(
        state=found.get("state", "starting"),
        reason=found.get("reason"),
        updated_at=_moment(found.get("updated_at")),
        rate=found.get("rate") or 0.0,
        age=found.get("age_s"),
        lag=found.get("lag"),
        bronze=found.get("bronze") or 0,
        deferred=found.get("deferred") or 0,
        dropped=found.get("dropped") or 0,
        quarantine=found.get("quarantine") or {},
        tables={
            name: _table(table, found.get("versions") or {}) for name, table in (found.get("tables") or {}).items()
        },
        paused={
            name: Pause(pause["rule"], pause["rows"], pause["let_in"])
            for name, pause in (found.get("paused") or {}).items()
        },
        kept_out=(found.get("schema_warnings") or {}).get("stopped") or {},
    )


def _table(found: dict[str, Any], versions: dict[str, int]) -> Table:
    rows = found.get("schema_ids") or {}
    named = {f"v{versions[one]}" if one in versions else f"id {one}": count for one, count in rows.items()}
    return Table(found.get("silver") or 0, found.get("gold") or 0, named, found.get("failed") or {})


def _moment(text: str | None) -> float:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def stale(status: Status) -> Status:
    """The status of an earlier run: only its row counts and what a person decides about are kept."""
    return Status(
        bronze=status.bronze,
        deferred=status.deferred,
        dropped=status.dropped,
        quarantine=status.quarantine,
        tables=status.tables,
        paused=status.paused,
        kept_out=status.kept_out,
    )
