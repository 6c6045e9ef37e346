"""The result of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LOST, DOUBLED, PHANTOM, ALTERED, MISPLACED, GOLD, SQL = KINDS = (
    "lost",
    "doubled",
    "phantom",
    "altered",
    "misplaced",
    "gold",
    "sql",
)
MOST_NAMED = 1000


@dataclass(frozen=True)
class Discrepancy:
    """One record, or one key of gold, that differs from its expected state.

    Attributes:
        what: "topic/partition@offset", or the key.
        why: the reason; "" if the kind is the whole reason.
    """

    kind: str
    table: str
    what: str
    why: str = ""


@dataclass
class Verdict:
    """The result; `clean` if no record and no key of gold differs.

    Attributes:
        counts: (kind, table) -> number of records or keys.
        named: kind -> its first discrepancies, at most `MOST_NAMED`.
        rows: table -> rows in the snapshot.
        notes: text on records that could not be audited or compared -> their number.
        records: number of audited records.
        upto: the last audited unit.
        left: number of offsets in Kafka that no unit has ingested.
        seconds: duration of the audit.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    named: dict[str, list[Discrepancy]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    records: int = 0
    upto: int = 0
    left: int = 0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not self.counts

    def add(self, kind: str, table: str, whats: Iterable[str], why: str = "") -> None:
        """Count discrepancies and store the first ones; attributes as in `Discrepancy`."""
        kept = self.named.setdefault(kind, [])
        for what in whats:
            self.counts[kind, table] += 1
            if len(kept) < MOST_NAMED:
                kept.append(Discrepancy(kind, table, what, why))
        if not kept:
            del self.named[kind]

    def note(self, words: str, records: int = 1) -> None:
        """Count records that could not be audited or compared; `words` is printed with their number."""
        if records:
            self.notes[words] += records

    def faults(self) -> dict[str, object]:
        """Kind -> (number of discrepancies, the first three); empty if clean."""
        totals: Counter[str] = Counter()
        for (kind, _), count in self.counts.items():
            totals[kind] += count
        return {kind: (totals[kind], self.named[kind][:3]) for kind in KINDS if totals[kind]}

    def to_json(self) -> dict[str, Any]:
        tables: dict[str, dict[str, int]] = {name: {"rows": rows} for name, rows in sorted(self.rows.items())}
        for (kind, table), count in sorted(self.counts.items()):
            tables.setdefault(table, {"rows": 0})[kind] = count
        return {
            "clean": self.clean,
            "unit": self.upto,
            "records": self.records,
            "left": self.left,
            "seconds": round(self.seconds, 1),
            "tables": tables,
            "named": {kind: [vars(wrong) for wrong in found] for kind, found in self.named.items()},
            "notes": dict(self.notes),
        }
