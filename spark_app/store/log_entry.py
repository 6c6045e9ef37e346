"""An entry of a table's log, written by ourselves: what one unit does to one table, a rewrite of its files, or other
rows in place of all that it has.

delta-rs reads all entries since the last checkpoint for a commit, and once more before the next: 5 ms of CPU after 15
entries, 40 after 90, of each of a thousand tables. Whoever is the only writer and knows the version writes a file, in
a tenth of a millisecond. Everything else that changes a table (columns, properties, checkpoints) is delta-rs's.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deltalake import DeltaTable

from spark_app.errors import ContractError
from spark_app.records import FileEntry
from spark_app.store.delta_log import SEQUENCE, UNIT, entry_name, folder
from spark_app.store.manifest import Manifest

# What an entry with nothing but files is right for: it serves no identity columns, row ids, mapped names and the like.
LAST_WRITER = 4
FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}


def append(table: Path, version: int, manifest: Manifest, app: str) -> None:
    """The commit of the unit to the table, seen whole or not at all; not durable yet.

    Args:
        app: the id of its transactions.

    Raises:
        FileExistsError: somebody else has made this version.
        FileNotFoundError: the log does not have the version before.
    """
    _write(table, version, _lines(table.name, manifest, app))


def rewrite(table: Path, version: int, adds: Collection[FileEntry], removes: Collection[str]) -> None:
    """As `append`, for the same rows in other files, or for other statistics of the same files."""
    _write(table, version, _lines_of_rewrite(adds, removes))


def overwrite(table: Path, version: int, add: FileEntry, removes: Collection[str], upto: int, app: str) -> None:
    """As `append`, for a file in place of all that the table has.

    Args:
        upto: the last unit that is in the file, and so the transaction of `app`.
    """
    _write(table, version, _lines_of_overwrite(add, removes, upto, app))


def _write(table: Path, version: int, lines: Iterable[dict[str, Any]]) -> None:
    log = folder(table)
    entry, temporary = f"{log}/{entry_name(version)}", f"{log}/.{entry_name(version)}.tmp"
    os.stat(f"{log}/{entry_name(version - 1)}")
    _remove(temporary)  # what a kill left may be another name of an entry
    try:
        with open(temporary, "wb") as file:
            file.write("\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode())  # as in `stats`
        os.link(temporary, entry)
    finally:
        _remove(temporary)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def unit_metadata(manifest: Manifest) -> dict[str, Any]:
    """By which the commits of a unit are known."""
    return {SEQUENCE: manifest.sequence, UNIT: manifest.digest}


def _lines(name: str, manifest: Manifest, app: str) -> Iterator[dict[str, Any]]:
    """The transaction is the last: `delta_log` knows by it that the entry is whole."""
    change, now = manifest.tables[name], int(time.time() * 1000)
    operation = {"operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[]"}}
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake", **unit_metadata(manifest)}}
    yield from ({"add": _added(entry, now)} for entry in change.adds)
    for path in change.removes:
        yield {"remove": {"path": quote(path), "dataChange": True, "deletionTimestamp": now}}
    yield {"txn": {"appId": app, "version": manifest.sequence}}


def _lines_of_overwrite(add: FileEntry, removes: Collection[str], upto: int, app: str) -> Iterator[dict[str, Any]]:
    """The transaction is the last, as of a unit."""
    now = int(time.time() * 1000)
    operation = {"operation": "WRITE", "operationParameters": {"mode": "Overwrite", "partitionBy": "[]"}}
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake", SEQUENCE: upto}}
    yield {"add": _added(add, now)}
    for path in removes:
        yield {"remove": {"path": quote(path), "dataChange": True, "deletionTimestamp": now}}
    yield {"txn": {"appId": app, "version": upto}}


def _lines_of_rewrite(adds: Collection[FileEntry], removes: Collection[str]) -> Iterator[dict[str, Any]]:
    """The numbers are by what `delta_log` knows that the entry is whole."""
    now = int(time.time() * 1000)
    metrics = {"numFilesAdded": len(adds), "numFilesRemoved": len(removes)}
    operation = {"operation": "OPTIMIZE", "operationParameters": {}, "operationMetrics": metrics}
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake"}}
    yield from ({"add": _added(entry, now) | {"dataChange": False}} for entry in adds)
    for path in removes:
        yield {"remove": {"path": quote(path), "dataChange": False, "deletionTimestamp": now}}


def _added(entry: FileEntry, now: int) -> dict[str, Any]:
    kept = {"path": quote(entry.path), "partitionValues": {}, "size": entry.size, "stats": entry.stats}
    return kept | {"modificationTime": now, "dataChange": True}


def check(name: str, table: DeltaTable) -> None:
    """
    Raises:
        ContractError: the table wants more of a writer than `append` does.
    """
    wanted = demands(table)
    if wanted:
        raise ContractError(f"table {name} has {', '.join(wanted)}: drop it, or restore the table as it was")


def demands(table: DeltaTable) -> list[str]:
    """What the table wants of a writer that the entries written here do not do."""
    protocol = table.protocol()
    version, features = protocol.min_writer_version, set(protocol.writer_features or ())
    wanted = sorted(features - FEATURES) or [f"writer version {version}"] * (LAST_WRITER < version < 7)
    return wanted + [key for key in table.metadata().configuration if key.startswith("delta.constraints.")]
