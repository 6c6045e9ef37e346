"""A table's log as files: makes entries durable, and finds entries torn by a power cut.

delta-rs fsyncs nothing: the kernel may hold a commit, a checkpoint, or merged files for half a minute, and write them
in any order. Files of units are durable before the unit is committed; this module makes everything else durable.
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

SEQUENCE = "protolake.sequence"  # in the metadata of the app's commits: the unit, or the last unit merged into gold
UNIT = "protolake.digest"  # in a unit's commits only: the manifest's digest
POINTER = "_last_checkpoint"
NAME = re.compile(r"(\d{20})(\.json|\.checkpoint\.parquet)")


@dataclass(frozen=True)
class Entry:
    """A complete commit.

    Attributes:
        adds: added files that were not fsynced before the commit.
        unit: the commit's unit; None if it is not a commit of a unit.
    """

    version: int
    adds: frozenset[str]
    removes: frozenset[str]
    unit: int | None


def folder(table: Path) -> Path:
    """The folder of a table's log."""
    return table / "_delta_log"


def versions(log: Path, kind: str = ".json") -> dict[int, Path]:
    """Version -> file of the entries, or of the checkpoints (kind ".checkpoint.parquet")."""
    found = ((NAME.fullmatch(path.name), path) for path in log.iterdir()) if log.is_dir() else ()
    return {int(match[1]): path for match, path in found if match and match[2] == kind}


def entry_name(version: int) -> str:
    """The file name of a log entry."""
    return f"{version:020d}.json"


def entry_path(log: Path, version: int) -> Path:
    return log / entry_name(version)


def checkpoint_path(log: Path, version: int) -> Path:
    return log / f"{version:020d}.checkpoint.parquet"


def read_entry(log: Path, version: int) -> Entry | None:
    """The entry; None if it is missing or incomplete."""
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
    """True if no line is missing: an entry may be cut at the end of a line. The app's entries end with the transaction,
    and a compaction contains its numbers of files."""
    operation = info.get("operation", "")
    if SEQUENCE in info:
        return "txn" in actions[-1]
    if operation == "OPTIMIZE":
        metrics = info["operationMetrics"]
        return (added, removed) == (metrics["numFilesAdded"], metrics["numFilesRemoved"])
    return len(actions) > 1 or operation.startswith("VACUUM")


def sync(table: Path, after: int | None) -> int | None:
    """Make durable the commits after a version (None = all) and the checkpoints from that version on.

    Returns the newest durable version; None if there is no table.
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
    """Fsync a file, unless it is gone: log entries expire, and files may have been replaced and removed."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _before_first(log: Path) -> int:
    """The version before the first entry, if a checkpoint replaces the expired entries; otherwise -1."""
    first = min(versions(log), default=0)
    return first - 1 if min(versions(log, ".checkpoint.parquet"), default=first + 1) <= first else -1


def _whole_after(log: Path, after: int) -> list[Entry]:
    """The unbroken sequence of complete entries after the version."""
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
    """The incomplete part of a log.

    Attributes:
        files: files to remove, so that the log ends with its last complete entry.
        lost: number of entries among them.
        left: True if the rest is a table or empty; False if the rest is no readable table.
    """

    files: list[Path]
    lost: int
    left: bool


def find_torn(table: Path, after: int | None) -> TornLog:
    """Check everything after the version `after`, which is durable (None = check all)."""
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
    """Read the whole file: it may have its length and its footer, but no content."""
    try:
        with pq.ParquetFile(path) as file:
            return bool(sum(batch.num_rows for batch in file.iter_batches()) == file.metadata.num_rows)
    except (OSError, pa.ArrowException):
        return False


def _pointer_is_right(log: Path, checkpoints: Iterable[int]) -> bool:
    """An existing pointer must name an existing checkpoint: otherwise delta-rs cannot open the table."""
    if not (log / POINTER).exists():
        return True
    pointer = read_json(log / POINTER)
    return isinstance(pointer, dict) and pointer.get("version") in set(checkpoints)


def _is_table(last: int, entries: Iterable[int], checkpoints: Iterable[int]) -> bool:
    """True if the entries up to the last one are complete, from the first entry or from a checkpoint on."""
    base = max((version for version in checkpoints if version <= last), default=-1)
    return set(range(base + 1, last + 1)) <= set(entries)
