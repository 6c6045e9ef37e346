"""A Delta table as its log says it is, read by hand, its files by DuckDB: a second opinion on what delta-rs wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass
class State:
    """The files of the newest version and the transactions it knows: application id -> version."""

    files: set[str] = field(default_factory=set)
    transactions: dict[str, int] = field(default_factory=dict)

    def apply(self, action: dict[str, Any]) -> None:
        if action.get("add"):
            self.files.add(unquote(action["add"]["path"]))
        if action.get("remove"):
            self.files.discard(unquote(action["remove"]["path"]))
        if action.get("txn"):
            self.transactions[action["txn"]["appId"]] = action["txn"]["version"]


def replay(table: Path) -> State:
    """From the last checkpoint, if there is one, to the newest commit."""
    state = State()
    for action in _actions(table / "_delta_log"):
        state.apply(action)
    return state


def _actions(log: Path) -> Iterator[dict[str, Any]]:
    pointer = log / "_last_checkpoint"
    version = json.loads(pointer.read_text())["version"] if pointer.exists() else -1
    if version >= 0:
        yield from pq.read_table(log / f"{version:020d}.checkpoint.parquet").to_pylist()
    commits = sorted(path for path in log.glob("*.json") if path.stem.isdigit() and int(path.stem) > version)
    assert [int(path.stem) for path in commits] == list(range(version + 1, version + 1 + len(commits)))
    for path in commits:
        yield from map(json.loads, path.read_bytes().splitlines())


def read_rows(table: Path, state: State) -> pa.Table:
    return duckdb.read_parquet([str(table / name) for name in sorted(state.files)]).to_arrow_table()
