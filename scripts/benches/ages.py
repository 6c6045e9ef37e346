"""Measures record age: from Kafka's timestamp to the log entry of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

STAMP = "_kafka_timestamp"


class Ages:
    """The ages of the silver rows of one lake. Call `look` often: replaced files and old log entries are removed.

    Attributes:
        seconds: an array for each `look` with new rows, with the time of that call.
    """

    def __init__(self, lake: Path):
        self._lake = lake
        self._seen: dict[Path, int] = {}  # table -> its last version that was read
        self.seconds: list[tuple[float, np.ndarray]] = []

    def look(self, now: float) -> int:
        """Read the new rows; returns their number."""
        found = [ages for table in self._lake.glob("silver_*") for ages in self._new(table)]
        if found:
            self.seconds.append((now, np.concatenate(found)))
        return sum(map(len, found))

    def _new(self, table: Path) -> list[np.ndarray]:
        found = []
        while (entry := table / "_delta_log" / f"{self._seen.get(table, -1) + 1:020}.json").exists():
            self._seen[table] = self._seen.get(table, -1) + 1
            visible = entry.stat().st_mtime
            found += [visible - _stamps(table / add["path"]) for add in _adds(entry)]
        return found

    def rows(self) -> int:
        return sum(len(ages) for _, ages in self.seconds)

    def between(self, start: float, end: float) -> np.ndarray:
        """The ages that were read between these times."""
        parts = [ages for moment, ages in self.seconds if start <= moment < end]
        return np.concatenate(parts) if parts else np.array([])


def _adds(entry: Path) -> list[dict[str, Any]]:
    """Files with new rows; files of a compaction are not new."""
    actions = map(json.loads, entry.read_bytes().splitlines())
    return [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]


def _stamps(path: Path) -> np.ndarray:
    """Seconds since 1970."""
    column = pq.read_table(path, columns=[STAMP], partitioning=None).column(0)
    return np.asarray(column.cast("int64")) / 1e6
