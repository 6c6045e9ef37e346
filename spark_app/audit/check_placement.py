"""Checks that a record with a value is exactly once in silver, open in quarantine, deferred or dropped, and that no
tombstone is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spark_app.audit.check_silver import Absent
from spark_app.audit.chunk import Chunk
from spark_app.audit.verdict import DOUBLED, LOST, PHANTOM


def check_placed(chunk: Chunk, absent: Absent) -> None:
    """Report records in no table or in too many, and rows of `resolved_events` without a quarantined record."""
    layout = chunk.snapshot.layout
    counts = {
        name: chunk.counts(name) for name in (layout.quarantine, layout.deferred, layout.dropped, layout.resolved)
    }
    kept_out = counts[layout.quarantine] + counts[layout.dropped]
    placed = kept_out + counts[layout.deferred] - counts[layout.resolved]
    for found in chunk.silver:
        placed += chunk.counts(found.table.name)
    due = np.zeros(chunk.slots.count, bool)
    due[chunk.slot_of] = chunk.has_value
    due &= ~chunk.given_up
    _add_lost(chunk, np.flatnonzero(due & (placed < 1)), absent)
    _add_surplus(chunk, np.flatnonzero(placed > due), due, counts)
    odd = counts[layout.resolved] > kept_out
    chunk.add(PHANTOM, layout.resolved, np.flatnonzero(odd), "neither in quarantine nor dropped, or resolved twice")


def _add_lost(chunk: Chunk, lost: np.ndarray, absent: Absent) -> None:
    """Report each lost record for the table that should have it."""
    quarantine = chunk.snapshot.layout.quarantine
    where = np.array([absent.belongs.get(int(record), quarantine) for record in chunk.record_at[lost]], object)
    for name in sorted(set(where)):
        chunk.add(LOST, name, lost[where == name])


def _add_surplus(chunk: Chunk, surplus: np.ndarray, due: np.ndarray, counts: Mapping[str, np.ndarray]) -> None:
    """Report each surplus record with the tables that have it."""
    for slot in surplus:
        tables = [found.table.name for found in chunk.silver if slot in found.slots]
        tables += [name for name, count in counts.items() if count[slot] and name != chunk.snapshot.layout.resolved]
        kind = DOUBLED if due[slot] else PHANTOM
        chunk.add(kind, tables[-1], np.array([slot]), f"in {', '.join(tables)}" if len(tables) > 1 else "")
