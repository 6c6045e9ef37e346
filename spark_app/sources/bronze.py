"""Bronze input of a task: the worker reads the Parquet files itself.

Input: row groups of files, and ranges of offsets if not all records are needed. Output: Arrow batches of
`BRONZE_SCHEMA`, plus those columns of `RARE_SCHEMA` that the file has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files.storage import Storage
from spark_app.model.offsets import Span
from spark_app.model.record_schemas import BRONZE_SCHEMA, COORDINATES, RARE_SCHEMA

if TYPE_CHECKING:
    from pyarrow.dataset import ParquetFileFormat

Partition = tuple[str, str | None, int]  # topic, topic id, partition
# Partition -> the ranges of offsets to read: rows of [first, end] with the end excluded, ascending and disjoint.
Ranges = Mapping[Partition, np.ndarray]


@dataclass(frozen=True)
class Piece:
    """A row group of a file. `bytes` is about its size in memory."""

    key: str
    group: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Share:
    """The part of a unit's input that one task reads.

    Attributes:
        storage: where the files are.
        ranges: the records to read; None = all.
        batch_records, batch_bytes: an Arrow batch has at most this number of records and about this number of bytes.
        limit: the task ends after this number of records; None = it reads all.
    """

    storage: Storage
    pieces: tuple[Piece, ...]
    ranges: Ranges | None
    batch_records: int
    batch_bytes: int
    limit: int | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans read from Kafka: none."""
        return ()

    def limited(self, most: int) -> Share:
        return replace(self, limit=most)

    def read(self) -> Iterator[pa.RecordBatch]:
        return first_records(self._batches(), self.limit)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        lake = self.storage.arrow()
        for piece in self.pieces:
            fragment = _format().make_fragment(piece.key, lake, row_groups=[piece.group])
            fitting = piece.rows * self.batch_bytes // max(piece.bytes, 1)
            size = max(1, min(self.batch_records, fitting))
            there = fragment.physical_schema.names
            schema = pa.schema([*BRONZE_SCHEMA, *(field for field in RARE_SCHEMA if field.name in there)])
            for batch in fragment.to_batches(schema, batch_size=size, batch_readahead=1, use_threads=False):
                yield batch if self.ranges is None else batch.filter(within(batch, self.ranges))


def first_records(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The batches of the first `limit` records; None = all."""
    left = limit
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        if left is not None and left <= 0:
            return


@functools.cache
def _format() -> ParquetFileFormat:
    from pyarrow.dataset import ParquetFileFormat  # imports pandas, which a worker has blocked by now

    shared = {field.name for field in BRONZE_SCHEMA if pa.types.is_dictionary(field.type)}
    int96 = "us"  # other writers store timestamps as int96
    return ParquetFileFormat(dictionary_columns=shared, coerce_int96_timestamp_unit=int96)


def find_row_groups(storage: Storage, keys: Iterable[str], ranges: Ranges | None) -> list[Piece]:
    """The row groups of the files. Those whose statistics exclude the ranges are left out."""
    wanted = None
    if ranges is not None:
        first, last = bounds(ranges)
        wanted = (pc.field("offset") >= first) & (pc.field("offset") <= last)
    lake = storage.arrow()
    files = (_format().make_fragment(key, lake) for key in keys)
    groups = (group for file in files for group in file.split_by_row_group(wanted, BRONZE_SCHEMA))
    rows = ((group.path, group.row_groups[0]) for group in groups)
    return [Piece(key, row_group.id, row_group.num_rows, row_group.total_byte_size) for key, row_group in rows]


def bounds(ranges: Ranges) -> tuple[int, int]:
    """The smallest and the largest offset in the ranges of all partitions."""
    return min(int(r[0, 0]) for r in ranges.values()), max(int(r[-1, 1]) for r in ranges.values()) - 1


def split_among_tasks(pieces: Iterable[Piece], tasks: int) -> list[tuple[Piece, ...]]:
    """About the same number of rows for each task; a task without rows is left out.

    The files are in the order of their units, with which their names begin, so that newer columns are seen later.
    """
    shares: list[list[Piece]] = [[] for _ in range(tasks)]
    for piece in sorted(pieces, key=lambda piece: (piece.key, piece.group)):
        min(shares, key=lambda share: sum(p.rows for p in share)).append(piece)
    return [tuple(share) for share in shares if share]


def ranges_of(coordinates: pa.Table) -> dict[Partition, np.ndarray]:
    """Partition -> runs of consecutive offsets among the coordinates, with the end excluded."""
    return {partition: runs(np.unique(offsets)) for partition, offsets in offsets_of(coordinates).items()}


def offsets_of(coordinates: pa.Table) -> dict[Partition, np.ndarray]:
    """Partition -> the offsets among the coordinates, int64."""
    *partition, offset = COORDINATES
    found = coordinates.group_by(partition).aggregate([(offset, "list")])
    keys = found.select(partition).to_pylist()
    lists = (one.values.to_numpy() for one in found[f"{offset}_list"])
    return {tuple(key.values()): offsets for key, offsets in zip(keys, lists, strict=True)}


def runs(offsets: np.ndarray) -> np.ndarray:
    """Runs of consecutive offsets, with the end excluded: int64 of the shape [runs, 2].

    Args:
        offsets: at least one; ascending and distinct.
    """
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    return np.column_stack([offsets[np.r_[0, breaks + 1]], offsets[np.r_[breaks, -1]] + 1])


def within(batch: pa.RecordBatch, ranges: Ranges) -> pa.Array:
    """Boolean array: whether each record is in one of the ranges."""
    offsets = batch.column("offset").to_numpy()
    found = np.zeros(len(offsets), bool)
    for (topic, topic_id, partition), limits in ranges.items():
        nearest = np.searchsorted(limits[:, 0], offsets, "right") - 1  # -1 = before all ranges
        inside = (nearest >= 0) & (offsets < limits[nearest, 1])
        if inside.any():
            found |= inside & _of_partition(batch, topic, topic_id, partition)
    return pa.array(found)


def _of_partition(batch: pa.RecordBatch, topic: str, topic_id: str | None, partition: int) -> np.ndarray:
    ids = batch.column("topic_id")
    same = ids.is_null() if topic_id is None else pc.equal(ids, topic_id).fill_null(False)
    same = pc.and_(same, pc.equal(batch.column("topic"), topic))
    found: np.ndarray = pc.and_(same, pc.equal(batch.column("partition"), partition)).to_numpy(zero_copy_only=False)
    return found
