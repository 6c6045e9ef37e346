"""Recovers a lost lake id from the commits of bronze, which all carry it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow.parquet as pq

from spark_app.lake.delta.log import log_key, versions
from spark_app.lake.files.state_files import write_durably
from spark_app.lake.lake import IDENTITY, Lake


def find(lake: Lake, bronze: str) -> str | None:
    """The id in the newest transaction of bronze; None if its log has none."""
    return next((app for app in _applications(lake, bronze) if IDENTITY.fullmatch(app)), None)


def restore(lake: Lake, found: str) -> str:
    """Write the id file again; returns a description."""
    done = f"{lake.set_aside(lake.id)}, and " if lake.storage.exists(lake.id) else ""
    write_durably(lake.storage, lake.id, f"{found}\n", "identity")
    return f"{done}wrote {found} to {lake.storage.uri(lake.id)}"


def _applications(lake: Lake, table: str) -> Iterator[str]:
    """Application ids of the transactions: of the commits, newest first, then of the checkpoints."""
    for _, key in sorted(versions(lake.storage, table).items(), reverse=True):
        for line in lake.storage.get(key).splitlines():
            try:
                action = json.loads(line)
            except ValueError:
                continue
            if "txn" in action:
                yield str(action["txn"]["appId"])
    for key in reversed(lake.storage.list(log_key(table))):
        is_checkpoint = ".checkpoint" in key and key.endswith(".parquet")
        rows = pq.ParquetFile(lake.storage.open_input(key)).read(columns=["txn"]) if is_checkpoint else None
        for row in rows["txn"].to_pylist() if rows is not None else ():
            if row:
                yield str(row["appId"])
