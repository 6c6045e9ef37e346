"""Writes Delta log entries directly: a unit's commit, the creation of a table, new columns, a compaction, or an
overwrite.

For each commit delta-rs reads all entries since the last checkpoint, and again before the next: 5 ms of CPU after 15
entries, 40 ms after 90, for each of a thousand tables. A single writer that knows the version can write the entry in a
tenth of a millisecond. Creating a table takes delta-rs 2 ms: with 200 tables longer than the job over their first
records. delta-rs cannot add columns and set comments in one commit. It still makes all other changes to a table
(properties, checkpoints).
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import DeltaTable, Schema

from spark_app.lake.delta.log import SEQUENCE, UNIT, entry_key
from spark_app.lake.delta.manifest import Manifest
from spark_app.lake.delta.table_schema import commented, extended, renewed, table_comment
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import NO_COMMENTS, Comments
from spark_app.model.errors import ContractError
from spark_app.model.reports import FileEntry

# The protocol for which an entry with only files is correct: no identity columns, row ids, mapped names and the like.
LAST_WRITER = 4
FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
ZONELESS = re.compile(r'[tT]ype":"timestamp_ntz"')  # matches the type in a schema as JSON, not a field of that name

Lines = Iterable[dict[str, Any]]


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
    _write(storage, table, version, _lines(table, manifest, app, begins))


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


def overwrite(
    storage: Storage,
    table: str,
    version: int,
    add: FileEntry,
    removes: Collection[str],
    upto: int,
    app: str,
    begins: Lines = (),
) -> None:
    """As `append`, for a file that replaces all files of the table.

    Args:
        upto: the last unit that the file includes; it becomes the transaction version of `app`.
    """
    _write(storage, table, version, _lines_of_overwrite(add, removes, upto, app, begins))


def append_rows(
    storage: Storage,
    table: str,
    version: int,
    adds: Collection[FileEntry],
    removes: Collection[str],
    transactions: Sequence[tuple[str, int]],
    begins: Lines = (),
) -> None:
    """As `append`, for rows that belong to no single unit, and for files whose rows have expired.

    Args:
        transactions: (application id, version); the last one is that of the units.
    """
    _write(storage, table, version, _lines_of_rows(adds, removes, transactions, begins))


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
    _refuse_zoneless(Schema.from_arrow(columns).to_json())
    metadata = _changed(table, renewed(table, columns, comments), comments, configuration)
    replaced = table.get_add_actions()["path"].to_pylist()
    _write(storage, folder, version, _lines(folder, manifest, app, [metadata], replaced))


def unit_metadata(manifest: Manifest) -> dict[str, Any]:
    """The metadata that identifies a unit's commits."""
    return {SEQUENCE: manifest.sequence, UNIT: manifest.digest}


def _lines(
    name: str, manifest: Manifest, app: str, begins: Lines, replaced: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """The transaction comes last: `delta_log` takes it as proof that the entry is complete. Whoever applies a unit to a
    table writes the same bytes."""
    change, now = manifest.tables[name], manifest.at // 1000 or int(time.time() * 1000)
    mode = "Overwrite" if replaced else "Append"
    operation = {"operation": "WRITE", "operationParameters": {"mode": mode, "partitionBy": "[]"}}
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake", **unit_metadata(manifest)}}
    yield from begins
    yield from ({"add": _added(entry, now)} for entry in change.adds)
    for path in (*change.removes, *replaced):
        yield {"remove": {"path": quote(path), "dataChange": True, "deletionTimestamp": now}}
    yield {"txn": {"appId": app, "version": manifest.sequence}}


def _lines_of_overwrite(
    add: FileEntry, removes: Collection[str], upto: int, app: str, begins: Lines
) -> Iterator[dict[str, Any]]:
    """The transaction comes last, as in `_lines`."""
    now = int(time.time() * 1000)
    operation = {"operation": "WRITE", "operationParameters": {"mode": "Overwrite", "partitionBy": "[]"}}
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake", SEQUENCE: upto}}
    yield from begins
    yield {"add": _added(add, now)}
    for path in removes:
        yield {"remove": {"path": quote(path), "dataChange": True, "deletionTimestamp": now}}
    yield {"txn": {"appId": app, "version": upto}}


def _lines_of_rows(
    adds: Collection[FileEntry], removes: Collection[str], transactions: Sequence[tuple[str, int]], begins: Lines
) -> Iterator[dict[str, Any]]:
    """The transaction with the unit comes last, as in `_lines`."""
    now, upto = int(time.time() * 1000), transactions[-1][1]
    operation = {"operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[]"}}
    yield {"commitInfo": {"timestamp": now, **operation, "engineInfo": "protolake", SEQUENCE: upto}}
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
