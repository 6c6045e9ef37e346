"""A check of a lake that shares no code with the app and none with its audit: a read_committed consumer, against the
tables as delta-rs reads them.

It compares identities, (topic, partition, offset) and content, never counts: two errors can cancel in a sum.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.read_back import Identity, digest, identities, read, tables, wrong_gold


@dataclass
class Verdict:
    """Empty when the promise held."""

    lost: list[Identity] = field(default_factory=list)
    doubled: list[Identity] = field(default_factory=list)
    phantom: list[Identity] = field(default_factory=list)
    altered: list[Identity] = field(default_factory=list)
    misplaced: list[Identity] = field(default_factory=list)
    gold: list[str] = field(default_factory=list)

    def faults(self) -> dict[str, object]:
        return {name: (len(found), found[:3]) for name, found in vars(self).items() if found}


def verify(lake: Path, truth: dict[Identity, str], with_gold: bool = True) -> Verdict:
    """Every record in bronze once with its bytes; once in silver or open quarantine, or waiting, or a tombstone."""
    verdict = Verdict()
    bronze = read(lake, "bronze_events", ["topic", "partition", "offset", "value"])
    landed = identities(bronze)
    _compare(verdict, Counter(landed), truth)
    for identity, value in zip(landed, bronze["value"].to_pylist(), strict=True):
        if identity in truth and digest(value) != truth[identity]:
            verdict.altered.append(identity)
    placed: Counter[Identity] = Counter()
    for name in tables(lake, "silver_"):
        rows = read(lake, name, ["game_name", "_topic", "_partition", "_offset"])
        found = identities(rows, "_")
        placed.update(found)
        owners = rows["game_name"].to_pylist()
        verdict.misplaced += [i for i, owner in zip(found, owners, strict=True) if f"silver_{owner}_events" != name]
    for name in ("quarantine_events", "deferred_events"):
        placed.update(identities(read(lake, name, ["topic", "partition", "offset"])))
    resolved = Counter(identities(read(lake, "resolved_events", ["topic", "partition", "offset"])))
    refused = Counter(identities(read(lake, "quarantine_events", ["topic", "partition", "offset"])))
    verdict.phantom += list((resolved - refused).keys())  # resolved twice, or without having been in quarantine
    placed -= resolved
    _compare(verdict, placed, {i: v for i, v in truth.items() if v})
    if with_gold:
        verdict.gold = wrong_gold(lake)
    return verdict


def _compare(verdict: Verdict, found: Counter[Identity], truth: dict[Identity, str]) -> None:
    verdict.lost += [i for i in truth if i not in found]
    verdict.doubled += [i for i, count in found.items() if count > 1]
    verdict.phantom += [i for i in found if i not in truth]
