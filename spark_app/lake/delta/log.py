"""A table's log as files: makes entries durable, and finds entries torn by a power cut.

delta-rs fsyncs nothing: the kernel may hold a commit, a checkpoint, or merged files for half a minute, and write them
in any order. Files of units are durable before the unit is committed; this module makes everything else durable.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from posixpath import basename
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from spark_app.lake.files.state_files import read_json
from spark_app.lake.files.storage import Storage

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


def log_key(table: str) -> str:
    """The folder of a table's log."""
    return f"{table}/_delta_log"


def entry_key(table: str, version: int) -> str:
    """A log entry."""
    return f"{log_key(table)}/{version:020d}.json"


def checkpoint_key(table: str, version: int) -> str:
    return f"{log_key(table)}/{version:020d}.checkpoint.parquet"


def pointer_key(table: str) -> str:
    """The file that names the newest checkpoint."""
    return f"{log_key(table)}/{POINTER}"


def versions(storage: Storage, table: str, kind: str = ".json") -> dict[int, str]:
    """Version -> key of the entries, or of the checkpoints (kind ".checkpoint.parquet")."""
    found = ((NAME.fullmatch(basename(key)), key) for key in storage.list(log_key(table)))
    return {int(match[1]): key for match, key in found if match and match[2] == kind}


def read_entry(storage: Storage, table: str, version: int) -> Entry | None:
    """The entry; None if it is missing or incomplete."""
    try:
        lines = storage.get(entry_key(table, version)).splitlines()
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
    """True if no line is missing: an entry may be cut at the end of a line. The app's entries end with the transaction
    of the unit, and a compaction contains its numbers of files."""
    operation = info.get("operation", "")
    if SEQUENCE in info:
        return bool(actions[-1].get("txn", {}).get("version") == int(info[SEQUENCE]))
    if operation == "OPTIMIZE":
        metrics = info["operationMetrics"]
        return (added, removed) == (metrics["numFilesAdded"], metrics["numFilesRemoved"])
    return len(actions) > 1 or operation.startswith("VACUUM")


def sync(storage: Storage, table: str, after: int | None) -> int | None:
    """Make durable the commits after a version (None = all) and the checkpoints from that version on.

    Returns the newest durable version; None if there is no table.
    """
    known = _before_first(storage, table) if after is None else after
    entries = _whole_after(storage, table, known)
    newest = known + len(entries)
    if newest < 0 or not storage.exists(log_key(table)):
        return None
    files = _live(entries)
    checkpoints = range(max(known, 0), newest + 1)
    _sync_files(storage, (f"{table}/{name}" for name in files))
    _sync_files(storage, (entry_key(table, entry.version) for entry in entries))
    _sync_files(storage, (checkpoint_key(table, version) for version in checkpoints))
    _sync_files(storage, [pointer_key(table)])
    storage.make_durable(log_key(table))
    if files or after is None:
        storage.make_durable(table)
    return newest


def _sync_files(storage: Storage, keys: Iterable[str]) -> None:
    """Fsync the files that are not gone: log entries expire, and files may have been replaced and removed."""
    for key in keys:
        with contextlib.suppress(FileNotFoundError):
            storage.make_durable(key)


def _before_first(storage: Storage, table: str) -> int:
    """The version before the first entry, if a checkpoint replaces the expired entries; otherwise -1."""
    first = min(versions(storage, table), default=0)
    return first - 1 if min(versions(storage, table, ".checkpoint.parquet"), default=first + 1) <= first else -1


def _whole_after(storage: Storage, table: str, after: int) -> list[Entry]:
    """The unbroken sequence of complete entries after the version."""
    entries: list[Entry] = []
    while (entry := read_entry(storage, table, after + 1 + len(entries))) is not None:
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
        files: keys of the files to remove, so that the log ends with its last complete entry.
        lost: number of entries among them.
        left: True if the rest is a table or empty; False if the rest is no readable table.
    """

    files: list[str]
    lost: int
    left: bool


def find_torn(storage: Storage, table: str, after: int | None) -> TornLog:
    """Check everything after the version `after`, which is durable (None = check all)."""
    entries, checkpoints = versions(storage, table), versions(storage, table, ".checkpoint.parquet")
    known = _before_first(storage, table) if after is None else after
    last = _last_whole(storage, table, known)
    lost = [key for version, key in entries.items() if version > last]
    broken = {v for v, key in checkpoints.items() if v > last or (v >= known and not _is_readable(storage, key))}
    whole = checkpoints.keys() - broken
    torn = lost + [checkpoints[version] for version in broken]
    if not _pointer_is_right(storage, table, whole):
        torn.append(pointer_key(table))
    return TornLog(torn, len(lost), _is_table(last, entries.keys(), whole))


def _last_whole(storage: Storage, table: str, known: int) -> int:
    entries = _whole_after(storage, table, known)
    is_readable = functools.cache(lambda name: _is_readable(storage, f"{table}/{name}"))
    while entries and not all(map(is_readable, _live(entries))):
        entries.pop()
    return known + len(entries)


def _is_readable(storage: Storage, key: str) -> bool:
    """Read the whole file: it may have its length and its footer, but no content."""
    try:
        with storage.open_input(key) as source, pq.ParquetFile(source) as file:
            return bool(sum(batch.num_rows for batch in file.iter_batches()) == file.metadata.num_rows)
    except (OSError, pa.ArrowException):
        return False


def _pointer_is_right(storage: Storage, table: str, checkpoints: Iterable[int]) -> bool:
    """An existing pointer must name an existing checkpoint: otherwise delta-rs cannot open the table."""
    if not storage.exists(pointer_key(table)):
        return True
    pointer = read_json(storage, pointer_key(table))
    return isinstance(pointer, dict) and pointer.get("version") in set(checkpoints)


def _is_table(last: int, entries: Iterable[int], checkpoints: Iterable[int]) -> bool:
    """True if the entries up to the last one are complete, from the first entry or from a checkpoint on."""
    base = max((version for version in checkpoints if version <= last), default=-1)
    return set(range(base + 1, last + 1)) <= set(entries)
