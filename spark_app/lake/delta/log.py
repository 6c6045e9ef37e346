"""A table's log as files: makes entries durable, finds entries torn by a power cut, and writes entries directly.

delta-rs fsyncs nothing: the kernel may hold a commit, a checkpoint, or merged files for half a minute, and write them
in any order. Files of units are durable before the unit is committed; this module makes everything else durable.

The app writes itself a unit's commit, the creation of a table, new columns, a compaction, or an overwrite. For each
commit delta-rs reads all entries since the last checkpoint, and again before the next: 5 ms of CPU after 15 entries, 40
ms after 90, for each of a thousand tables. A single writer that knows the version can write the entry in a tenth of a
millisecond. Creating a table takes delta-rs 2 ms: with 200 tables longer than the job over their first records.
delta-rs cannot add columns and set comments in one commit. It still makes all other changes to a table (properties,
checkpoints).

The reasons: docs/decisions/commit.md.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from spark_app.lake.delta.manifest import Manifest
from spark_app.lake.delta.table_schema import commented, extended, renewed, table_comment
from spark_app.lake.files.state_files import read_json
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import NO_COMMENTS, Comments
from spark_app.model.errors import ContractError
from spark_app.model.reports import FileEntry

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


# The protocol for which an entry with only files is correct: no identity columns, row ids, mapped names and the like.
LAST_WRITER = 4
FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
ZONELESS = re.compile(r'[tT]ype":"timestamp_ntz"')  # matches the type in a schema as JSON, not a field of that name

Lines = Iterable[dict[str, Any]]
Mode = Literal["Append", "Overwrite"]  # what an entry says of itself


def create_table_actions(
    columns: pa.Schema,
    configuration: Mapping[str, str | None],
    comments: Comments = NO_COMMENTS,
    identity: uuid.UUID | None = None,
    at: int | None = None,
) -> Lines:
    """The actions that create a table, in the lowest protocol version.

    Args:
        identity: the table's id; None = a new one.
        at: when it was created, in milliseconds since 1970; None = now.

    Raises:
        ContractError: that protocol does not have the type of a column.
    """
    schema = Schema.from_arrow(columns).to_json()
    _refuse_zoneless(schema)
    kept: dict[str, Any] = {"id": str(identity or uuid.uuid4()), "format": {"provider": "parquet", "options": {}}}
    kept |= {"schemaString": commented(schema, comments), "partitionColumns": [], "configuration": configuration}
    kept |= _description(table_comment(None, comments))
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": kept | {"createdTime": int(time.time() * 1000) if at is None else at}},
    ]


def _refuse_zoneless(schema: str) -> None:
    if ZONELESS.search(schema):
        raise ContractError("a timestamp without a time zone needs a newer Delta protocol than the tables have")


def _changed(
    table: DeltaTable, schema: str, comments: Comments, configuration: Mapping[str, str | None] = MappingProxyType({})
) -> dict[str, Any]:
    """The action that gives a table another schema. Everything else that describes the table stays."""
    before = table.metadata()
    kept: dict[str, Any] = {"id": before.id, "format": {"provider": "parquet", "options": {}}}
    kept |= {"schemaString": schema, "partitionColumns": before.partition_columns}
    kept |= {"configuration": {**before.configuration, **configuration}, "createdTime": before.created_time}
    kept |= {"name": before.name} if before.name is not None else {}
    return {"metaData": kept | _description(table_comment(before.description, comments))}


def _description(comment: str | None) -> dict[str, Any]:
    return {} if comment is None else {"description": comment}


def append(storage: Storage, table: str, version: int, manifest: Manifest, app: str, begins: Lines = ()) -> None:
    """Write the unit's commit to the table: atomic, but not durable yet.

    Args:
        table: the table's folder, as a key.
        app: the application id of the transaction.
        begins: `create_table_actions` for version 0.

    Raises:
        FileExistsError: another writer has made this version.
        FileNotFoundError: the log does not have the version before.
    """
    _write(storage, table, version, _lines_of_unit(table, manifest, app, begins))


def extend(
    storage: Storage, folder: str, table: DeltaTable, columns: pa.Schema, comments: Comments, epoch: int = 0
) -> None:
    """As `append`, for new columns and comments, after the handle's version. Nothing else of the table changes.

    Args:
        columns: all columns of the table, the new ones too.
        epoch: of the lease in a bucket.

    Raises:
        ContractError: the table's protocol does not have the type of a column.
    """
    _refuse_zoneless(Schema.from_arrow(columns).to_json())
    _write(storage, folder, table.version() + 1, _lines_of_columns(table, columns, comments, epoch))


def rewrite(
    storage: Storage, table: str, version: int, adds: Collection[FileEntry], removes: Collection[str], epoch: int = 0
) -> None:
    """As `extend`, for the same rows in other files, or for other statistics of the same files."""
    _write(storage, table, version, _lines_of_rewrite(adds, removes, epoch))


def new_schema(
    table: DeltaTable, columns: pa.Schema, comments: Comments, configuration: Mapping[str, str | None]
) -> Lines:
    """The actions that give a table other columns, whose files all go.

    Raises:
        ContractError: the lowest protocol version does not have the type of a column.
    """
    _refuse_zoneless(Schema.from_arrow(columns).to_json())
    return [_changed(table, renewed(table, columns, comments), comments, configuration)]


def write_rows(
    storage: Storage,
    table: str,
    version: int,
    adds: Collection[FileEntry],
    removes: Collection[str],
    transactions: Sequence[tuple[str, int]],
    begins: Lines = (),
    mode: Mode = "Append",
) -> None:
    """As `append`, for rows that belong to no single unit, and for files whose rows have expired or are replaced.

    Args:
        transactions: (application id, version); the last one is that of the units.
        begins: `create_table_actions` for version 0, `new_schema` for other columns.
    """
    info, now = {SEQUENCE: transactions[-1][1]}, int(time.time() * 1000)
    _write(storage, table, version, _lines(adds, removes, transactions, begins, mode, info, now))


def _write(storage: Storage, table: str, version: int, lines: Lines) -> None:
    if storage.is_local and version and not storage.exists(entry_key(table, version - 1)):
        raise FileNotFoundError(f"{storage.uri(entry_key(table, version - 1))} is missing")
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)  # not escaped, as in `stats`
    storage.put_if_absent(entry_key(table, version), text.encode())


def renew(
    storage: Storage,
    folder: str,
    version: int,
    manifest: Manifest,
    app: str,
    table: DeltaTable,
    columns: pa.Schema,
    configuration: Mapping[str, str | None],
    comments: Comments,
) -> None:
    """As `append`, for files that replace all files of the table, and its columns.

    Args:
        table: the table at the version before; its id, comment and other properties stay.
        columns, configuration, comments: as for `create_table_actions`.

    Raises:
        ContractError: the lowest protocol version does not have the type of a column.
    """
    begins = new_schema(table, columns, comments, configuration)
    replaced = table.get_add_actions()["path"].to_pylist()
    _write(storage, folder, version, _lines_of_unit(folder, manifest, app, begins, replaced))


def unit_metadata(manifest: Manifest) -> dict[str, Any]:
    """The metadata that identifies a unit's commits."""
    return {SEQUENCE: manifest.sequence, UNIT: manifest.digest}


def _lines_of_unit(
    name: str, manifest: Manifest, app: str, begins: Lines, replaced: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Whoever applies a unit to a table writes the same bytes."""
    change, now = manifest.tables[name], manifest.at // 1000 or int(time.time() * 1000)
    removes, transactions = [*change.removes, *replaced], [(app, manifest.sequence)]
    mode: Mode = "Overwrite" if replaced else "Append"
    return _lines(change.adds, removes, transactions, begins, mode, unit_metadata(manifest), now)


def _lines(
    adds: Collection[FileEntry],
    removes: Collection[str],
    transactions: Sequence[tuple[str, int]],
    begins: Lines,
    mode: Mode,
    info: Mapping[str, Any],
    now: int,
) -> Iterator[dict[str, Any]]:
    """The transaction with the unit comes last: `delta_log` takes it as proof that the entry is complete."""
    operation = {"operation": "WRITE", "operationParameters": {"mode": mode, "partitionBy": "[]"}}
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake", **info}}
    yield from begins
    yield from ({"add": _added(entry, now)} for entry in adds)
    for path in removes:
        yield {"remove": {"path": quote(path), "dataChange": True, "deletionTimestamp": now}}
    for app, number in transactions:
        yield {"txn": {"appId": app, "version": number}}


def _lines_of_columns(
    table: DeltaTable, columns: pa.Schema, comments: Comments, epoch: int
) -> Iterator[dict[str, Any]]:
    operation = {"operation": "ADD COLUMN", "operationParameters": {}} | _of_lease(epoch)
    yield {"commitInfo": {"timestamp": int(time.time() * 1000), **operation, "engineInfo": "protolake"}}
    yield _changed(table, extended(table, columns, comments), comments)


def _lines_of_rewrite(adds: Collection[FileEntry], removes: Collection[str], epoch: int) -> Iterator[dict[str, Any]]:
    """The metrics let `delta_log` check that the entry is complete."""
    now = int(time.time() * 1000)
    metrics = {"numFilesAdded": len(adds), "numFilesRemoved": len(removes)}
    operation = {"operation": "OPTIMIZE", "operationParameters": {}, "operationMetrics": metrics} | _of_lease(epoch)
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake"}}
    yield from ({"add": _added(entry, now) | {"dataChange": False}} for entry in adds)
    for path in removes:
        yield {"remove": {"path": quote(path), "dataChange": False, "deletionTimestamp": now}}


def _of_lease(epoch: int) -> dict[str, Any]:
    """Which process wrote an entry that belongs to no unit."""
    return {"protolake.epoch": epoch} if epoch else {}


def _added(entry: FileEntry, now: int) -> dict[str, Any]:
    kept = {"path": quote(entry.path), "partitionValues": {}, "size": entry.size, "stats": entry.stats}
    return kept | {"modificationTime": now, "dataChange": True}


def check(name: str, table: DeltaTable) -> None:
    """
    Raises:
        ContractError: the table needs writer features that these entries do not support.
    """
    wanted = unsupported_features(table)
    if wanted:
        raise ContractError(
            f"table {name} has {', '.join(wanted)}, which the app does not support: remove that, or restore the table"
        )


def unsupported_features(table: DeltaTable) -> list[str]:
    """The writer features of the table that these entries do not support."""
    protocol = table.protocol()
    version, features = protocol.min_writer_version, set(protocol.writer_features or ())
    wanted = sorted(features - FEATURES) or [f"writer version {version}"] * (LAST_WRITER < version < 7)
    return wanted + [key for key in table.metadata().configuration if key.startswith("delta.constraints.")]
