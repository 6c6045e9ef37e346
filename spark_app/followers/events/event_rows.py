"""The rows of the table of events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict

import pyarrow as pa

from spark_app.model.comments import Comments
from spark_app.model.events import EventRow

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("happened_at", TIME),
        ("kind", pa.string()),
        ("level", pa.string()),
        ("run", pa.string()),
        ("unit", pa.int64()),
        ("table", pa.string()),
        ("message", pa.string()),
        ("details", pa.string()),
        ("written_at", TIME),
    ]
)

COMMENTS = Comments(
    own={
        (): "What the app has done and met; docs/events.md explains the kinds",
        ("id",): "Names the event for ever",
        ("happened_at",): "When it happened, UTC",
        ("kind",): "What happened, in one word",
        ("level",): "INFO, WARN or ERROR",
        ("run",): "The process that it happened in",
        ("unit",): "Number of the unit, or of the last of several units, that it is about",
        ("table",): "The table that it is about",
        ("message",): "What happened, in one sentence",
        ("details",): "Values of its kind, as JSON",
        ("written_at",): "When the row was written to this table, UTC",
    }
)


def to_arrow(rows: Iterable[EventRow]) -> pa.Table:
    """Rows of `SCHEMA`, which are written now."""
    written_at = int(time.time() * 1e6)
    return pa.Table.from_pylist([{**asdict(row), "written_at": written_at} for row in rows], SCHEMA)
