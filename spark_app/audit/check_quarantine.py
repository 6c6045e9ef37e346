"""Checks quarantine: the raw columns equal Kafka's, and the record's bytes allow its cause."""

from __future__ import annotations

import re

import numpy as np

from spark_app.audit.check_bronze import compare_raw
from spark_app.audit.check_silver import Absent
from spark_app.audit.chunk import OTHER_BARE, Chunk, Found
from spark_app.audit.verdict import ALTERED, MISPLACED
from spark_app.model.causes import BY_TABLES, NEVER_PROVEN, Cause

BARE = {Cause.FRAME_MAGIC, Cause.FRAME_SHORT}

LIMIT = re.compile(r"the most is (\d+)")  # in the detail of a record whose value was omitted

OTHER_LIMIT = "values were omitted although they are within batch.max_record_bytes, which may have been smaller"
OTHER_NAME = "records are quarantined as route_missing, although their routing field is found today: replay them"
NO_REASON = "records are quarantined as decode_type, but today's columns do not show why"


def check_quarantine(chunk: Chunk, absent: Absent) -> None:
    """Check raw columns and causes of the chunk's quarantined records."""
    found = chunk.tables.get(chunk.snapshot.layout.quarantine)
    if found is not None:
        compare_raw(chunk, found)
        _check_causes(chunk, found, absent)


def _check_causes(chunk: Chunk, found: Found, absent: Absent) -> None:
    name, records = found.table.name, chunk.record_at[found.slots]
    columns = (found.rows[column].to_pylist() for column in ("cause", "hop", "schema_id", "detail"))
    for slot, record, cause, hop, schema, detail in zip(found.slots, records, *columns, strict=True):
        if record < 0:
            continue
        if cause not in Cause.__members__.values() or hop != cause.split("_")[0]:
            chunk.add(ALTERED, name, np.array([slot]), "cause")
        elif cause == Cause.EXPECT_FAILED:  # with a definition, `check_expectations` compares it
            if int(record) not in chunk.claims:
                chunk.add(ALTERED, name, np.array([slot]), "definition")
        elif not _may_be(chunk, Cause(cause), int(record), schema is not None, absent):
            belongs = absent.belongs.get(int(record))
            why = f"belongs in {belongs}" if belongs else "cause"
            chunk.add(MISPLACED if belongs else ALTERED, name, np.array([slot]), why)
        elif cause == Cause.RECORD_SIZE and not _had_to_be_left_out(chunk, int(record), detail or ""):
            chunk.add(
                ALTERED, name, np.array([slot]), "value omitted, although it is within the limit that the row gives"
            )


def _had_to_be_left_out(chunk: Chunk, record: int, detail: str) -> bool:
    """Whether the value is larger than the limit in `detail`; the detail of a rebuilt row has no limit."""
    size, _ = chunk.records.omitted[record]
    limit = LIMIT.search(detail)
    if limit is not None and size <= int(limit[1]):
        return False
    if size <= chunk.snapshot.settings.batch.max_record_bytes:
        chunk.verdict.note(OTHER_LIMIT)
    return True


def _may_be(chunk: Chunk, cause: Cause, record: int, had_schema: bool, absent: Absent) -> bool:
    """Whether the record may be in quarantine with this cause. A cause that the bytes cannot prove is accepted: the
    settings, the ledger or the tables may have been different when the record was quarantined."""
    facts = chunk.facts
    proven = facts.causes.get(record, frozenset())
    if record in chunk.records.omitted:
        return cause == Cause.RECORD_SIZE
    if cause in proven or cause == Cause.DECODE_CRASH:
        return True
    if facts.bare[record] and (cause in BARE if chunk.expected.accepts_bare else had_schema):
        chunk.verdict.note(OTHER_BARE)
        return True
    if record in facts.unknown or cause in NEVER_PROVEN:
        named = facts.keys[record] is not None  # the schema may have been unknown at ingest, whatever the frame is
        return cause in NEVER_PROVEN and (named or not any(one.hop == "frame" for one in proven))
    if cause == Cause.DECODE_TYPE and not proven:
        if record not in absent.misfits:
            chunk.verdict.note(NO_REASON)
        return True
    if cause == Cause.ROUTE_MISSING and not proven and record in facts.found_since:
        chunk.verdict.note(OTHER_NAME)
        return True
    return cause in BY_TABLES and not proven
