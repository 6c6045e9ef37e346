"""One Parquet file per table, durable before it is reported, with the statistics Delta readers skip files by."""

from __future__ import annotations

import datetime
import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from spark_app import failpoints
from spark_app.records import FileEntry

SMALL_BYTES = 1 << 20  # below it, setting up zstd costs more than it saves; compaction writes the file anew anyway
STATISTICS_COLUMNS = 32  # Delta's own default
MOST_SHARED = 8  # texts of a dictionary that is written as it is: it has all of the task, and goes into each file
LONGEST_STRING = 32  # a longer bound would have to be cut, and a cut maximum is wrong
EPOCH = datetime.datetime(1970, 1, 1)
TIMES = range(-30_610_224_000_000_000, 253_370_764_800_000_000)  # microseconds of the years 1000 to 9998
UNIQUE = {"offset", "_offset", "value"}  # a dictionary of them would be as large as the column

Found = list[pq.Statistics]  # of a column in each row group
Bounds = Callable[[Found], tuple[Any, Any]]  # as Delta's JSON has them; None where an exact one cannot be written


@dataclass(frozen=True)
class Columns:
    """What all files with the same columns have in common.

    Attributes:
        schema: as Delta's JSON.
        repeated: the Parquet paths of those that have a dictionary.
        bounded: (Parquet position, name, how its bounds are found) of those with statistics.
    """

    schema: str
    repeated: list[str]
    bounded: list[tuple[int, str, Bounds]]


def write_file(folder: Path, name: str, table: pa.Table, compression: str) -> FileEntry:
    """Write `table` to `folder`/`name`, to the disk itself, and describe the file.

    The folder entry is made durable by the driver, once per folder, before the unit is decided.
    """
    footer: list[pq.FileMetaData] = []
    table = _spell_out(table)
    columns = _describe(table.schema)
    options = {
        "compression": compression if table.nbytes > SMALL_BYTES else "snappy",
        "use_dictionary": columns.repeated,
        "store_schema": False,  # a tenth of a small file, and nobody needs it: Parquet has all these types
        "metadata_collector": footer,
    }
    with failpoints.around("file"), _open(folder, name) as handle:
        with pq.ParquetWriter(handle, table.schema, **options) as writer:
            writer.write_table(table)
        handle.flush()
        os.fsync(handle.fileno())
        size = handle.tell()
    return FileEntry(
        path=name,
        rows=table.num_rows,
        size=size,
        stats=json.dumps(statistics(footer[0], columns)),
        schema=columns.schema,
    )


def _open(folder: Path, name: str) -> pa.OSFile:
    """Parquet would call back into Python for a file of another kind."""
    path = os.path.join(folder, name)
    try:
        return pa.OSFile(path, "wb")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(path, "wb")


def _spell_out(table: pa.Table) -> pa.Table:
    """Text instead of dictionaries with more entries than the rows may need."""
    for position, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(position)
            if column.num_chunks > 1:
                column = column.unify_dictionaries()
                table = table.set_column(position, field.name, column)
            if column.num_chunks and len(column.chunk(0).dictionary) > MOST_SHARED:
                table = table.set_column(position, field.name, column.cast(field.type.value_type))
    return table


@functools.lru_cache(maxsize=1024)
def _describe(schema: pa.Schema) -> Columns:
    schema = pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])
    footer: list[pq.FileMetaData] = []
    pq.write_table(schema.empty_table(), pa.BufferOutputStream(), metadata_collector=footer)
    paths = [footer[0].schema.column(number).path for number in range(footer[0].num_columns)]
    bounded = [(n, path, _bounds_of(schema.field(path).type)) for n, path in enumerate(paths) if "." not in path]
    return Columns(
        schema=Schema.from_arrow(schema).to_json(),
        repeated=[path for path in paths if path not in UNIQUE],
        bounded=[column for column in bounded if column[0] < STATISTICS_COLUMNS],
    )


def statistics(footer: pq.FileMetaData, columns: Columns) -> dict[str, Any]:
    """Delta's per-file statistics from a Parquet footer: top-level columns, exact bounds or none."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for position, name, bounds in columns.bounded:
        found = [group.column(position).statistics for group in groups]
        if not all(found):
            continue
        counted = [s.null_count for s in found if s.has_null_count]
        if len(counted) == len(found):
            nulls[name] = sum(counted)
        bounded = [s for s in found if s.has_min_max]
        if bounded and len(bounded) == len([s for s in found if s.num_values]):
            low, high = bounds(bounded)
            if low is not None and high is not None:
                lowest[name], highest[name] = low, high
    return {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _bounds_of(kind: pa.DataType) -> Bounds:
    if pa.types.is_timestamp(kind):
        return _times
    if pa.types.is_integer(kind):
        return _numbers
    return _texts if pa.types.is_string(kind) else _none


def _none(found: Found) -> tuple[Any, Any]:
    """Of floats Parquet leaves out NaN, which Spark takes for the greatest."""
    return None, None


def _numbers(found: Found) -> tuple[Any, Any]:
    return min([s.min for s in found]), max([s.max for s in found])


def _texts(found: Found) -> tuple[Any, Any]:
    try:
        low, high = min([s.min for s in found]), max([s.max for s in found])
    except ValueError:  # it is not UTF-8
        return None, None
    return (low, high) if max(len(low), len(high)) <= LONGEST_STRING else (None, None)


def _times(found: Found) -> tuple[Any, Any]:
    """In microseconds; as a datetime it takes five times as long."""
    return _moment(min([s.min_raw for s in found])), _moment(max([s.max_raw for s in found]))


def _moment(micros: int) -> str | None:
    """None beyond the years that all readers know."""
    if micros not in TIMES:
        return None
    return (EPOCH + datetime.timedelta(microseconds=micros)).isoformat(timespec="microseconds") + "Z"
