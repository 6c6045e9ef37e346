"""Checks the records that wait because their silver table is paused."""

from __future__ import annotations

from collections import Counter

import numpy as np

from spark_app.audit.check_silver import Absent
from spark_app.audit.chunk import Chunk
from spark_app.audit.snapshot import Snapshot
from spark_app.audit.verdict import ALTERED, MISPLACED, Verdict


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
