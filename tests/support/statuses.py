"""Statuses as an app would have written them, with as many tables as wanted."""

import datetime
from typing import Any

from spark_app.lake.files.state_files import write_quickly
from spark_app.lake.lake import Lake

EVERYTHING: dict[str, Any] = {  # what the status of most lakes lacks
    "followers": {"gold": {"unit": 5, "lag": 3, "paused": None}},
    "paused": {"t0": {"rule": "r", "record": "t/0/1", "rows": 11, "let_in": False}},
    "references": {"players": {"rows": 8, "version": "3", "refused": None}},
    "source": {"kind": "files", "path": "/in", "taken": 5, "waiting": 2, "broken": 1, "named": {}},
    "executors": {"now": 1, "wanted": 2},
}


def status_of(tables: int = 1, at: float = 1_000_000.0, **values: Any) -> dict[str, Any]:
    """The status of a running app at a moment, with the tables t0, t1 ... that have more rows the later they come."""
    written = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="milliseconds")
    made: dict[str, Any] = {
        "state": "running",
        "reason": None,
        "pid": 1,
        "started_at": written,
        "updated_at": written,
        "starts": 3,
        "bumps": 1,
        "batch": {"sequence": 7, "records": 100, "seconds": 0.25, "steps": {"read": 0.1}, "at": written},
        "rate": 100.0,
        "age_s": 0.5,
        "lag": 0,
        "held_back": {},
        "quiet_s": 0,
        "bronze": 1000,
        "deferred": 4,
        "quarantine": {"frame_short": 2},
        "quarantined": {"frame_short": 5},
        "dropped": 6,
        "expectations": {"sane_time": [90, 10]},
        "paused": {},
        "schema_warnings": {"count": 2, "newest": []},
        "references": {},
        "lost": {"ranges": 1, "offsets": 9},
        "gold_failed": {},
        "tables": {f"t{n}": {"silver": n + 1, "gold": n, "schema_ids": {"1": n}, "failed": {}} for n in range(tables)},
        "versions": {"1": 1},
    }
    return made | values


def write_status(lake: Lake, **values: Any) -> dict[str, Any]:
    """Write such a status into a lake; returns it."""
    made = status_of(**values)
    write_quickly(lake.storage, lake.status, made, None)
    return made
