"""Finds rows that belong to no audited record: rows of a deleted topic, and rows without any record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_app.audit.snapshot import COORDINATES, Snapshot, Table
from spark_app.audit.verdict import PHANTOM, Verdict
from spark_app.model.offsets import Span

OTHER_TOPIC = "rows belong to a topic that was deleted and recreated, or that is no longer read"


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
