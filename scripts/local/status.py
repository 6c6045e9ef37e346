"""Reads the app's `status.json`; missing fields are empty."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spark_app.app.text import notes, rows_by_version, table_rows
from spark_app.lake.lake import Lake
from spark_app.model.errors import ProtolakeError

COUNTS = ("bronze", "deferred", "dropped", "lost", "quarantine", "tables", "versions")
KEPT = (*COUNTS, "paused", "schema_warnings")  # of an earlier run


@dataclass(frozen=True)
class Table:
    """Rows of one game; `versions` maps schema version (or `id 7`) to rows, `failed` the action of rules to the rows
    that failed them."""

    silver: int
    gold: int
    versions: dict[str, int]
    failed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """`updated_at` is Unix time; `rate` rows per second; `age` seconds; `lag` records; `lost` offsets; `notes` and
    `rows` are those of `protolake status`; `found` is what it was read from."""

    state: str = "starting"
    reason: str | None = None
    updated_at: float = 0.0
    rate: float = 0.0
    age: float | None = None
    lag: int | None = None
    bronze: int = 0
    deferred: int = 0
    dropped: int = 0
    lost: int = 0
    quarantine: dict[str, int] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        return notes(self.found)

    @property
    def rows(self) -> list[list[str]]:
        return table_rows(self.found)

    @property
    def silver(self) -> int:
        return sum(table.silver for table in self.tables.values())

    @property
    def quarantined(self) -> int:
        return sum(self.quarantine.values())


def read(lake: Lake) -> Status:
    """The current status; an empty one if there is none, or it cannot be read."""
    try:
        found = json.loads(lake.storage.get(lake.status))
    except (OSError, ValueError, ProtolakeError):
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
        lost=(found.get("lost") or {}).get("offsets") or 0,
        quarantine=found.get("quarantine") or {},
        tables={
            name: Table(
                table.get("silver") or 0,
                table.get("gold") or 0,
                rows_by_version(found, name),
                table.get("failed") or {},
            )
            for name, table in (found.get("tables") or {}).items()
        },
        found=found,
    )


def _moment(text: str | None) -> float:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def stale(status: Status) -> Status:
    """The status of an earlier run: only its row counts and what a person decides about are kept."""
    return parse({key: value for key, value in status.found.items() if key in KEPT})
