"""Rewrites files with the same rows, with the same writer as the jobs, so that all statistics come from one writer.

Input: files that a log names. Output: new files, in one log entry. Change-data readers see nothing: `dataChange` is
false. This process merges small files; on a cluster the workers do it (`units/driver/worker_merger`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_app.lake.delta import parquet as files
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import NO_IDS, FieldIds
from spark_app.model.reports import FileEntry

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

FIRST_BYTES = 64 << 10  # the end of the first tier of sizes
TIER = 8
ROW_GROUP_BYTES = 64 << 20  # in memory; the rows are read and written in pieces of this size


def live(table: DeltaTable) -> list[tuple[str, int]]:
    """(path, bytes) of the table's files, oldest first."""
    actions = table.get_add_actions()
    columns = (actions[name].to_pylist() for name in ("modification_time", "path", "size_bytes"))
    return [(path, size) for _, path, size in sorted(zip(*columns, strict=True))]


def plan(found: Iterable[tuple[str, int]], target: int) -> list[list[str]]:
    """Groups of files to merge into one each: neighbours of similar size that fit together, so that each new file
    covers few offsets.

    Each tier of sizes ends at `TIER` times the end of the one before. The files of the first tier are merged always,
    those of another one once there are `TIER` of them: so a row is rewritten once per tier, however large its table is.

    Args:
        found: (path, bytes), oldest first.
        target: bytes of a merged file; larger files are left out.
    """
    tiers: dict[int, list[tuple[str, int]]] = {}
    for path, size in found:
        if size < target:
            number = 0
            while size >= FIRST_BYTES * TIER**number:
                number += 1
            tiers.setdefault(number, []).append((path, size))
    groups = [_fit(files, target) for number, files in tiers.items() if number == 0 or len(files) >= TIER]
    return [paths for group in groups for paths in group if len(paths) > 1]


def _fit(found: list[tuple[str, int]], target: int) -> list[list[str]]:
    bins: list[list[str]] = []
    room: list[int] = []
    for path, size in found:
        fitting = next((number for number, left in enumerate(room) if size <= left), len(bins))
        if fitting == len(bins):
            bins.append([])
            room.append(target)
        bins[fitting].append(path)
        room[fitting] -= size
    return bins


def merge(
    storage: Storage,
    table: str,
    paths: Sequence[str],
    columns: pa.Schema,
    compression: str,
    ids: FieldIds = NO_IDS,
) -> FileEntry:
    """Write the rows of the table's files, in order, into one new file; nothing is committed."""
    name = f"merged-{uuid.uuid4().hex}.parquet"
    keys = [f"{table}/{path}" for path in paths]
    nullable_texts = files.find_nullable_texts((_read_footer(storage, key) for key in keys), columns)
    rows = (piece for key in keys for piece in read(storage, key, columns))
    pieces = row_groups(rows)
    return files.write_row_groups(storage, table, name, columns, pieces, compression, nullable_texts, ids=ids)


def _read_footer(storage: Storage, key: str) -> pq.FileMetaData:
    with storage.open_input(key) as source:
        return pq.read_metadata(source)


def read(storage: Storage, key: str, columns: pa.Schema) -> Iterator[pa.Table]:
    """The file's row groups with all columns of the table; missing columns are NULL."""
    with storage.open_input(key) as source, pq.ParquetFile(source) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, use_threads=False)
            yield rows if rows.schema.equals(columns) else complete(rows, columns)


def complete(rows: Rows, columns: pa.Schema) -> Rows:
    """The rows with these columns and types; columns that the file lacks are NULL."""
    had = set(rows.schema.names)
    found = [
        rows.column(field.name).cast(field.type) if field.name in had else pa.nulls(len(rows), field.type)
        for field in columns
    ]
    completed: Rows = type(rows).from_arrays(found, schema=columns)
    return completed


def row_groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of about `ROW_GROUP_BYTES`."""
    group: list[pa.Table] = []
    size = 0
    for piece in pieces:
        if group and size + piece.nbytes > ROW_GROUP_BYTES:  # a large record gets its own row group
            yield pa.concat_tables(group)
            group, size = [], 0
        group.append(piece)
        size += piece.nbytes
    if group:
        yield pa.concat_tables(group)


AT_ONCE = 4  # tables per unit: a merge costs 50 ms plus 0.6 ms per file, so merging few files at a time costs more

Merged = FileEntry | str  # the new file, or the text of an error


@dataclass(frozen=True)
class Merge:
    """Files of a table that become one, and what any process needs for it.

    Attributes:
        paths: in the table's folder, in the order of their rows.
        columns: of the table.
    """

    table: str
    paths: list[str]
    columns: pa.Schema
    compression: str
    ids: FieldIds


class Merger(Protocol):
    """
    Attributes:
        at_once: tables whose files are merged after one unit, at most.
    """

    @property
    def at_once(self) -> int: ...

    def merge(self, wanted: Sequence[Merge], /) -> list[Merged]:
        """One result for each; nothing is committed.

        Raises:
            OSError: the disk is full.
        """


class LocalMerger:
    """One file after the other, until the disk is full."""

    at_once = AT_ONCE

    def __init__(self, storage: Storage):
        self._storage = storage

    def merge(self, wanted: Sequence[Merge]) -> list[Merged]:
        done: list[Merged] = []
        for one in wanted:
            done.append(merge_one(self._storage, one))
            refuse_if_full(self._storage, wanted, done)
        pa.default_memory_pool().release_unused()  # otherwise the driver keeps 100 MiB of merged data
        return done


def merge_one(storage: Storage, wanted: Merge) -> Merged:
    try:
        return merge(storage, wanted.table, wanted.paths, wanted.columns, wanted.compression, wanted.ids)
    except (OSError, pa.ArrowException) as error:
        return str(error)


def refuse_if_full(storage: Storage, wanted: Sequence[Merge], done: Sequence[Merged]) -> None:
    """If a full disk is among the errors, remove all new files: nothing else would soon, and they take the space.

    Raises:
        OSError: the disk is full.
    """
    full = next((one for one in done if isinstance(one, str) and is_full(one)), None)
    if full is not None:
        discard(storage, wanted, done)
        raise OSError(full)


def discard(storage: Storage, wanted: Sequence[Merge], done: Sequence[Merged]) -> None:
    """Remove new files that will not be committed."""
    pairs = zip(wanted, done, strict=False)
    storage.delete(*(f"{one.table}/{found.path}" for one, found in pairs if isinstance(found, FileEntry)))
