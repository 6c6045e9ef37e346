"""A table's log as files: which of its entries are on the disk itself, and which a power cut tore.

delta-rs fsyncs nothing: the kernel may hold a commit, a checkpoint, or the files of a merge for half a minute, and
write them in any order. Files of units are durable before the unit is decided; all else is made so here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from spark_app.storage.lake import read_json, sync_folder

SEQUENCE = "protolake.sequence"  # in the metadata of each commit of ours: the unit, or the last unit folded
UNIT = "protolake.digest"  # of a unit's commits only: of its manifest
POINTER = "_last_checkpoint"
NAME = re.compile(r"(\d{20})(\.json|\.checkpoint\.parquet)")


@dataclass(frozen=True)
class Entry:
    """A commit that is whole.

    Attributes:
        adds: files that nobody made durable before they were committed.
        unit: the unit that it is the commit of, if it is one's.
    """

    version: int
    adds: frozenset[str]
    removes: frozenset[str]
    unit: int | None


def folder(table: Path) -> Path:
    return table / "_delta_log"


def versions(log: Path, kind: str = ".json") -> dict[int, Path]:
    """Version -> file of the entries, or of the checkpoints: ".checkpoint.parquet"."""
    found = ((NAME.fullmatch(path.name), path) for path in log.iterdir()) if log.is_dir() else ()
    return {int(match[1]): path for match, path in found if match and match[2] == kind}


def entry_name(version: int) -> str:
    return f"{version:020d}.json"


def entry_path(log: Path, version: int) -> Path:
    return log / entry_name(version)


def checkpoint_path(log: Path, version: int) -> Path:
    return log / f"{version:020d}.checkpoint.parquet"


def read_entry(log: Path, version: int) -> Entry | None:
    """None when it is not there or not whole."""
    try:
        lines = entry_path(log, version).read_bytes().splitlines()
        actions: list[dict[str, Any]] = [json.loads(line) for line in lines]
        info = actions[0].get("commitInfo", {})
        added, removed = (_paths(actions, kind) for kind in ("add", "remove"))
        whole = _is_complete(actions, info, len(added), len(removed))
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None
    unit = info.get(SEQUENCE) if UNIT in info else None
    return Entry(version, frozenset() if unit else added, removed, unit) if whole else None


def _paths(actions: list[dict[str, Any]], kind: str) -> frozenset[str]:
    return frozenset(unquote(action[kind]["path"]) for action in actions if kind in action)


def _is_complete(actions: list[dict[str, Any]], info: dict[str, Any], added: int, removed: int) -> bool:
    """An entry may be cut where a line ends. Ours end with the transaction, and a compaction says what it holds."""
    operation = info.get("operation", "")
    if SEQUENCE in info:
        return "txn" in actions[-1]
    if operation == "OPTIMIZE":
        metrics = info["operationMetrics"]
        return (added, removed) == (metrics["numFilesAdded"], metrics["numFilesRemoved"])
    return len(actions) > 1 or operation.startswith("VACUUM")


def sync(table: Path, after: int | None) -> int | None:
    """Make durable what was committed after a version, or all there is, and the checkpoints from that version on.

    Returns the newest version that is durable; None when there is no table.
    """
    log = folder(table)
    known = _before_first(log) if after is None else after
    entries = _whole_after(log, known)
    newest = known + len(entries)
    if newest < 0 or not log.is_dir():
        return None
    files = _live(entries)
    for name in files:
        _sync_file(table / name)
    for entry in entries:
        _sync_file(entry_path(log, entry.version))
    for version in range(max(known, 0), newest + 1):
        _sync_file(checkpoint_path(log, version))
    _sync_file(log / POINTER)
    sync_folder(log)
    if files or after is None:
        sync_folder(table)
    return newest


def _sync_file(path: Path) -> None:
    """It may be gone: log entries expire, and files that were replaced meanwhile are removed."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _before_first(log: Path) -> int:
    """The version before the first entry, where a checkpoint stands for what has expired; else that of no table."""
    first = min(versions(log), default=0)
    return first - 1 if min(versions(log, ".checkpoint.parquet"), default=first + 1) <= first else -1


def _whole_after(log: Path, after: int) -> list[Entry]:
    """The row of whole entries that follows the version."""
    entries: list[Entry] = []
    while (entry := read_entry(log, after + 1 + len(entries))) is not None:
        entries.append(entry)
    return entries


def _live(entries: Iterable[Entry]) -> set[str]:
    files: set[str] = set()
    for entry in entries:
        files |= entry.adds
        files -= entry.removes
    return files


@dataclass(frozen=True)
class TornLog:
    """What of a log is not whole.

    Attributes:
        files: what has to leave, for the log to end with its last whole entry.
        lost: entries among them.
        left: whether what remains is a table, or nothing at all; False when too little would be left.
    """

    files: list[Path]
    lost: int
    left: bool


def find_torn(table: Path, after: int | None) -> TornLog:
    """Look at everything that came after the version, which is known to be durable, or at all there is."""
    log = folder(table)
    entries, checkpoints = versions(log), versions(log, ".checkpoint.parquet")
    known = _before_first(log) if after is None else after
    last = _last_whole(table, known)
    lost = [path for version, path in entries.items() if version > last]
    broken = {v for v, path in checkpoints.items() if v > last or (v >= known and not _is_readable(path))}
    whole = checkpoints.keys() - broken
    torn = lost + [checkpoints[version] for version in broken]
    if not _pointer_is_right(log, whole):
        torn.append(log / POINTER)
    return TornLog(torn, len(lost), _is_table(last, entries.keys(), whole))


def _last_whole(table: Path, known: int) -> int:
    entries = _whole_after(folder(table), known)
    readable: dict[str, bool] = {}
    while entries and not all(
        readable[name] if name in readable else readable.setdefault(name, _is_readable(table / name))
        for name in _live(entries)
    ):
        entries.pop()
    return known + len(entries)


def _is_readable(path: Path) -> bool:
    """All of it: a file may have its length and its footer, and no content."""
    try:
        with pq.ParquetFile(path) as file:
            return bool(sum(batch.num_rows for batch in file.iter_batches()) == file.metadata.num_rows)
    except (OSError, pa.ArrowException):
        return False


def _pointer_is_right(log: Path, checkpoints: Iterable[int]) -> bool:
    """Where there is one, it must name a checkpoint that is there: delta-rs refuses the table otherwise."""
    if not (log / POINTER).exists():
        return True
    pointer = read_json(log / POINTER)
    return isinstance(pointer, dict) and pointer.get("version") in set(checkpoints)


def _is_table(last: int, entries: Iterable[int], checkpoints: Iterable[int]) -> bool:
    """Entries up to the last one, from the first or from a checkpoint on."""
    base = max((version for version in checkpoints if version <= last), default=-1)
    return set(range(base + 1, last + 1)) <= set(entries)
