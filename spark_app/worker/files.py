"""One Parquet file per table, durable before it is reported, with the statistics Delta readers skip files by."""

from __future__ import annotations

import datetime
import functools
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from spark_app import failpoints
from spark_app.records import FileEntry

SMALL_BYTES = 1 << 20  # below it, setting up zstd costs more than it saves; compaction writes the file anew anyway
STATISTICS_COLUMNS = 32  # Delta's own default
LONGEST_STRING = 32  # a longer bound would have to be cut, and a cut maximum is wrong
EPOCH = datetime.datetime(1970, 1, 1)
TIMES = range(-30_610_224_000_000_000, 253_370_764_800_000_000)  # microseconds of the years 1000 to 9998
UNIQUE = {"offset", "_offset", "value"}  # a dictionary of them would be as large as the column


def write_file(folder: Path, name: str, table: pa.Table, compression: str) -> FileEntry:
    """Write `table` to `folder`/`name`, to the disk itself, and describe the file.

    The folder entry is made durable by the driver, once per folder, before the unit is decided.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    footer: list[pq.FileMetaData] = []
    codec = compression if table.nbytes > SMALL_BYTES else "snappy"
    schema_json, repeated = _describe(table.schema)
    options = {"compression": codec, "use_dictionary": repeated, "metadata_collector": footer}
    with failpoints.around("file"), pa.OSFile(str(path), "wb") as handle:  # Parquet calls back into Python for others
        with pq.ParquetWriter(handle, table.schema, **options) as writer:
            writer.write_table(table)
        handle.flush()
        os.fsync(handle.fileno())
    return FileEntry(
        path=name,
        rows=table.num_rows,
        size=path.stat().st_size,
        stats=json.dumps(statistics(footer[0])),
        schema=schema_json,
    )


@functools.lru_cache(maxsize=1024)
def _describe(schema: pa.Schema) -> tuple[str, list[str]]:
    """The columns as Delta's schema JSON, and the paths of those that Parquet keeps a dictionary of."""
    footer: list[pq.FileMetaData] = []
    pq.write_table(schema.empty_table(), pa.BufferOutputStream(), metadata_collector=footer)
    columns = (footer[0].schema.column(number).path for number in range(footer[0].num_columns))
    return Schema.from_arrow(schema).to_json(), [path for path in columns if path not in UNIQUE]


def statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Delta's per-file statistics from a Parquet footer: top-level columns, exact bounds or none."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for position in range(min(footer.num_columns, STATISTICS_COLUMNS)):
        parts = [group.column(position) for group in groups]
        name = parts[0].path_in_schema
        found = [part.statistics for part in parts]
        if "." in name or any(s is None for s in found):
            continue
        if all(s.has_null_count for s in found):
            nulls[name] = sum(s.null_count for s in found)
        bounded = [s for s in found if s.has_min_max]
        if bounded and len(bounded) == len([s for s in found if s.num_values]):
            low, high = _bounds(bounded)
            if low is not None and high is not None:
                lowest[name], highest[name] = low, high
    return {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _bounds(found: list[pq.Statistics]) -> tuple[Any, Any]:
    if found[0].logical_type.type == "TIMESTAMP":  # in microseconds; as a datetime it takes five times as long
        return _moment(min(s.min_raw for s in found)), _moment(max(s.max_raw for s in found))
    try:
        return _bound(min(s.min for s in found)), _bound(max(s.max for s in found))
    except ValueError:  # a text that is not UTF-8
        return None, None


def _moment(micros: int) -> str | None:
    """A time as Delta's JSON has it; None beyond the years that all readers know."""
    if micros not in TIMES:
        return None
    return (EPOCH + datetime.timedelta(microseconds=micros)).isoformat(timespec="microseconds") + "Z"


def _bound(value: Any) -> Any:
    """The value as Delta's JSON has it; None where an exact bound cannot be written."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None  # of floats Parquet leaves out NaN, which Spark takes for the greatest
    if isinstance(value, str) and len(value) > LONGEST_STRING:
        return None
    return value
