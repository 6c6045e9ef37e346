"""Recovers a lost lake id from the commits of bronze, which all carry it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from spark_app.storage.lake import IDENTITY, Lake, write_durably


def find(bronze: Path) -> str | None:
    """The id in the newest transaction of bronze; None if its log has none."""
    return next((app for app in _applications(bronze / "_delta_log") if IDENTITY.fullmatch(app)), None)


def restore(lake: Lake, found: str) -> str:
    """Write the id file again; returns a description."""
    path = lake.state / "id"
    done = f"{lake.set_aside(path)}, and " if path.exists() else ""
    write_durably(path, f"{found}\n", "identity")
    return f"{done}wrote {found} to {path}"


def _applications(log: Path) -> Iterator[str]:
    """Application ids of the transactions: of the commits, newest first, then of the checkpoints."""
    for path in sorted(log.glob("[0-9]*.json"), reverse=True):
        for line in path.read_bytes().splitlines():
            try:
                action = json.loads(line)
            except ValueError:
                continue
            if "txn" in action:
                yield str(action["txn"]["appId"])
    for path in sorted(log.glob("*.checkpoint*.parquet"), reverse=True):
        for row in pq.read_table(path, columns=["txn"])["txn"].to_pylist():
            if row:
                yield str(row["appId"])
