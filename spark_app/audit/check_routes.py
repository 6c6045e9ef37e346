"""Checks where records are: one with a value is exactly once in silver, open in quarantine, deferred or dropped, and no
tombstone is; those that wait do so for a paused table; and no row belongs to no record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from spark_app.audit.check_silver import Absent
from spark_app.audit.chunk import Chunk
from spark_app.audit.snapshot import COORDINATES, Snapshot, Table
from spark_app.audit.verdict import ALTERED, DOUBLED, LOST, MISPLACED, PHANTOM, Verdict
from spark_app.model.offsets import Span

OTHER_TOPIC = "rows belong to a topic that was deleted and recreated, or that is no longer read"


def check_routed(chunk: Chunk, absent: Absent) -> None:
    """Report records in no table or in too many, and rows of `resolved_events` without a quarantined record."""
    layout = chunk.snapshot.layout
    counts = {
        name: chunk.counts(name) for name in (layout.quarantine, layout.deferred, layout.dropped, layout.resolved)
    }
    kept_out = counts[layout.quarantine] + counts[layout.dropped]
    found_rows = kept_out + counts[layout.deferred] - counts[layout.resolved]
    for found in chunk.silver:
        found_rows += chunk.counts(found.table.name)
    due = np.zeros(chunk.slots.count, bool)
    due[chunk.slot_of] = chunk.has_value
    due &= ~chunk.given_up
    _add_lost(chunk, np.flatnonzero(due & (found_rows < 1)), absent)
    _add_surplus(chunk, np.flatnonzero(found_rows > due), due, counts)
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


def check_waiting(chunk: Chunk, absent: Absent) -> None:
    """Check that each of these records belongs in the table that its row names."""
    deferred = chunk.tables.get(chunk.snapshot.layout.deferred)
    if deferred is None or "table" not in deferred.rows.column_names:
        return
    tables = deferred.rows["table"].to_pylist()
    for slot, record, table in zip(deferred.slots, chunk.record_at[deferred.slots].tolist(), tables, strict=True):
        if table is None or record < 0 or record in absent.misfits or absent.belongs.get(record) == table:
            continue
        excuse = "" if record in absent.belongs else chunk.excuse_unread(record)
        chunk.verdict.note(excuse, bool(excuse))
        if not excuse:
            belongs = absent.belongs.get(record, chunk.snapshot.layout.quarantine)
            chunk.add(MISPLACED, deferred.table.name, np.array([slot]), f"belongs in {belongs}, not in {table}")


def check_pauses(snapshot: Snapshot, verdict: Verdict) -> None:
    """Check that for each silver table as many rows wait as the last unit says."""
    name = snapshot.layout.deferred
    deferred, waiting = snapshot.tables.get(name), Counter[str]()
    if deferred is not None and "table" in deferred.schema.names:
        for batch in deferred.batches(["table"]):
            waiting.update(batch.column("table").drop_null().to_pylist())
    for table in sorted(waiting.keys() | snapshot.paused.keys()):
        due = snapshot.paused.get(table, 0)
        if waiting[table] != due:
            why = f"{waiting[table]} rows wait, but unit {snapshot.upto} says {due}"
            verdict.add(ALTERED, name, [f"rows of {table}"], why)


def check_outside(snapshot: Snapshot, spans: Iterable[Span], seen: Mapping[str, int], verdict: Verdict) -> None:
    """Check the tables that have more rows than the audited records.

    Args:
        spans: all audited offsets.
        seen: table -> rows of audited records.
    """
    own = {(span.topic, span.partition): span for span in spans}
    layout = snapshot.layout
    names = {layout.bronze, layout.quarantine, layout.deferred, layout.dropped, layout.resolved, *snapshot.silver()}
    for name in sorted(names & snapshot.tables.keys()):
        table = snapshot.tables[name]
        verdict.rows[name] = table.count()
        if verdict.rows[name] > seen.get(name, 0):
            _look(snapshot, table, own, verdict)


def _look(snapshot: Snapshot, table: Table, own: Mapping[tuple[str, int], Span], verdict: Verdict) -> None:
    columns = [f"{table.prefix}{name}" for name in COORDINATES]
    for batch in table.batches(columns):
        for topic, topic_id, partition, offset in zip(*(batch[c].to_pylist() for c in columns), strict=True):
            span = own.get((topic, partition))
            same = topic_id == snapshot.topic_ids.get(topic, topic_id)
            if not same and topic_id is not None:
                verdict.note(OTHER_TOPIC)
            elif _is_phantom(span, offset, same):
                verdict.add(PHANTOM, table.name, [f"{topic}/{partition}@{offset}"], "belongs to no audited record")


def _is_phantom(span: Span | None, offset: int | None, same: bool) -> bool:
    """Rows at or after the span's end are no phantoms: they were ingested after the audit began."""
    return span is None or offset is None or offset < span.start or (offset < span.end and not same)
