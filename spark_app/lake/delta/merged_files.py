"""Merges small files of tables, in this process. On a cluster the workers do it (`units/driver/worker_merger`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_app.lake.delta import rewrite
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import FieldIds
from spark_app.model.reports import FileEntry

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
        return rewrite.merge(storage, wanted.table, wanted.paths, wanted.columns, wanted.compression, wanted.ids)
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
