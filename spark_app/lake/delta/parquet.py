"""Writes Parquet files with the statistics that Delta readers use to skip files, and reads them in batches.

A file is durable before it is reported. A dictionary of values that do not repeat is as large as the column, and is
stored in addition to it. So a sample of the rows is encoded both ways, and each column gets the smaller encoding. The
choice is kept for the next files with the same columns and a similar number of rows, and tested again after `ASK_AGAIN`
files, because the values may change.

The reasons: docs/decisions/statistics.md, encoding.md.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Schema

from spark_app.lake.files import failpoints
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import NO_IDS, FieldIds
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.model.reports import FileEntry

SAMPLE_ROWS, SAMPLE_BYTES = 5_000, 8 << 20
ASK_AGAIN = 500  # files for which a choice is valid
FEWER = 0.9  # of the compressed bytes: a dictionary takes time, so it must be smaller by a tenth
SHORT = 0.1  # of the bytes before compression: a dictionary so small saves the time of compressing

Size = tuple[int, int]  # of a column: compressed bytes, uncompressed bytes


class Dictionaries:
    """The choices for files with the same columns."""

    def __init__(self, candidates: Collection[str]):
        """`candidates`: the Parquet paths that may have a dictionary."""
        self._candidates = candidates
        self._tops = {path.partition(".")[0] for path in candidates}
        # (compression, number of rows as a power of 4) -> the choice, and the number of files for which it stays valid.
        self._answers: dict[tuple[str, int], tuple[list[str], int]] = {}

    def choose(self, rows: pa.Table, compression: str) -> list[str]:
        """The Parquet paths that get a dictionary in a file whose first rows are `rows`."""
        key = compression, len(rows).bit_length() // 2
        choice, left = self._answers.get(key, ([], 0))
        if not left:
            choice, left = self._ask(rows, compression), ASK_AGAIN
        self._answers[key] = choice, left - 1
        return choice

    def _ask(self, rows: pa.Table, compression: str) -> list[str]:
        sample = rows.select([name for name in rows.column_names if name in self._tops]).slice(0, SAMPLE_ROWS)
        while sample.nbytes > SAMPLE_BYTES and len(sample) > 1:
            sample = sample.slice(0, len(sample) // 2)
        if not len(sample):
            return []
        plain, encoded = (_sizes(sample, compression, dictionary) for dictionary in (False, True))
        return [path for path in self._candidates if _pays(plain[path], encoded[path])]


def codec(compression: str) -> dict[str, str | int]:
    """Arguments of Arrow's Parquet writer for a compression of the settings: a codec, or a codec and its level."""
    name, _, level = compression.partition(":")
    return {"compression": name, "compression_level": int(level)} if level else {"compression": name}


def _pays(plain: Size, encoded: Size) -> bool:
    return encoded[0] < FEWER * plain[0] or encoded[1] < SHORT * plain[1]


def _sizes(sample: pa.Table, compression: str, dictionary: bool) -> dict[str, Size]:
    """Parquet path -> size of the column in the sample, with or without a dictionary."""
    footer: list[pq.FileMetaData] = []
    options = {**codec(compression), "write_statistics": False, "store_schema": False}
    pq.write_table(sample, pa.MockOutputStream(), use_dictionary=dictionary, metadata_collector=footer, **options)
    group = footer[0].row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {one.path_in_schema: (one.total_compressed_size, one.total_uncompressed_size) for one in columns}


SMALL_BYTES = 1 << 20  # below this size zstd's setup costs more than it saves, and compaction rewrites the file anyway
STATISTICS_COLUMNS = 32  # of the message, as in Delta's default; the columns of the record always have statistics
MOST_SHARED = 8  # a larger dictionary is written as text: it has the texts of the whole task, not only of this file
LONGEST_STRING = 32  # characters: a longer bound would have to be cut, and a cut maximum is wrong
CUT_BYTES = 64  # delta-rs cuts the bounds of texts in Parquet at this length
EPOCH = datetime.datetime(1970, 1, 1)
TIMES = range(-30_610_224_000_000_000, 253_370_764_800_000_000)  # microseconds of the years 1000 to 9998
UNIQUE = {"offset", "_offset", "value"}  # columns whose values do not repeat
FLOATING = {"FLOAT", "DOUBLE"}  # their bounds ignore NaN, which is the largest value for Spark and DuckDB

Found = list[pq.Statistics]  # statistics of a column, one per row group
Bounds = Callable[[Found], tuple[Any, Any]]  # the values for Delta's JSON; None = no exact bound can be written
Bounded = list[tuple[int, str, Bounds]]  # (Parquet position, column name, function for its bounds)


@dataclass(frozen=True)
class Columns:
    """Properties of all files with the same columns.

    Attributes:
        with_ids: the columns with these field ids. It keeps its last result, because the ids rarely change.
        schema: the columns as Delta's schema JSON.
        dictionaries: chooses the columns with a dictionary.
        measured: Parquet paths of the columns with statistics in Parquet; True = all.
        bounded: the columns with statistics in Delta's log.
        texts: Parquet paths of the text columns with statistics in Parquet.
    """

    with_ids: Callable[[FieldIds], pa.Schema]
    schema: str
    dictionaries: Dictionaries
    measured: list[str] | bool
    bounded: Bounded
    texts: list[str]


def write_file(
    storage: Storage,
    folder: str,
    name: str,
    rows: pa.Table,
    compression: str,
    durable: bool = True,
    ids: FieldIds = NO_IDS,
) -> FileEntry:
    """Write rows to the file `name` in the folder of a table, with fsync if `durable`, and describe the file. Its
    columns have the field ids `ids`.

    The driver makes the folder entry durable, once per folder, before the unit is committed.
    """
    rows = _decode_dictionaries(rows)
    compression = compression if rows.nbytes > SMALL_BYTES else "snappy"
    nullable_texts = [path for path in _describe(rows.schema).texts if _leaf(rows, path).null_count]
    return write_row_groups(storage, folder, name, rows.schema, [rows], compression, nullable_texts, durable, ids)


def write_row_groups(
    storage: Storage,
    folder: str,
    name: str,
    schema: pa.Schema,
    pieces: Iterable[pa.Table],
    compression: str,
    nullable_texts: Collection[str],
    durable: bool = True,
    ids: FieldIds = NO_IDS,
) -> FileEntry:
    """As `write_file`; each piece becomes a row group, or several if it has more than a million rows.

    Args:
        nullable_texts: Parquet paths of texts with NULLs. They always get a dictionary: DuckDB (2.0.0) reads NULL for
            the value of a text column with a single value besides NULL and without a dictionary.
    """
    footer: list[pq.FileMetaData] = []
    columns = _describe(schema)
    rest = iter(pieces)
    first = next(rest)
    options = {
        **codec(compression),
        "use_dictionary": [*columns.dictionaries.choose(first, compression), *nullable_texts],
        "write_statistics": columns.measured,
        "store_schema": False,  # Arrow's schema is a tenth of a small file, and Parquet has all these types itself
        "metadata_collector": footer,
    }
    with failpoints.around("file"), storage.put_file(f"{folder}/{name}", durable) as file:
        with pq.ParquetWriter(file, columns.with_ids(ids), **options) as writer:
            for piece in itertools.chain([first], rest):
                writer.write_table(piece)
        size = file.tell()
    return FileEntry(
        path=name,
        rows=footer[0].num_rows,
        size=size,
        stats=_to_json(_statistics(footer[0], columns.bounded)),
        schema=columns.schema,
    )


def find_nullable_texts(footers: Iterable[pq.FileMetaData], columns: pa.Schema) -> set[str]:
    """Parquet paths of the texts that may have NULLs in a file with `columns` and all rows of these footers' files."""
    found: set[str] = set()
    texts = _describe(columns).texts
    for footer in footers:
        positions = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for path in texts:
            known = [group.column(positions[path]).statistics for group in groups] if path in positions else [None]
            if not all(s is not None and s.has_null_count and not s.null_count for s in known):
                found.add(path)
    return found


def texts_of(columns: pa.Schema) -> list[str]:
    """Parquet paths of the texts, all of which may have NULLs."""
    return _describe(columns).texts


def _leaf(table: pa.Table, path: str) -> pa.ChunkedArray:
    top, *inner = path.split(".")
    return pc.struct_field(table.column(top), inner) if inner else table.column(top)


def _decode_dictionaries(table: pa.Table) -> pa.Table:
    """Convert columns with a dictionary of more than `MOST_SHARED` entries to text."""
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
    # Rows that were read from a file have its field ids, which delta-rs would write into the schema of the table.
    bare = NO_IDS.apply_to(schema)
    schema = pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in bare])
    footer: list[pq.FileMetaData] = []
    pq.write_table(schema.empty_table(), pa.BufferOutputStream(), metadata_collector=footer)
    leaves = [footer[0].schema.column(number) for number in range(footer[0].num_columns)]
    measured = [leaf.path for leaf in leaves if _is_measured(leaf)]
    return Columns(
        with_ids=functools.lru_cache(maxsize=1)(lambda ids: ids.apply_to(bare)),
        schema=Schema.from_arrow(schema).to_json(),
        dictionaries=Dictionaries([leaf.path for leaf in leaves if leaf.path not in UNIQUE]),
        measured=measured if len(measured) < len(leaves) else True,
        bounded=list(_bounded(footer[0].schema)),
        texts=[leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and _is_measured(leaf)],
    )


def _is_measured(leaf: pq.ColumnSchema) -> bool:
    """Whether a column gets statistics in Parquet. No reader uses bounds of values in a list or a map. Bounds of bytes
    temporarily take six times the memory of their value, and a record may have 64 MiB. For floats see `FLOATING`."""
    is_bytes = leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type == "NONE"
    return leaf.physical_type not in FLOATING and not leaf.max_repetition_level and not is_bytes


def _bounded(schema: pq.ParquetSchema) -> Iterator[tuple[int, str, Bounds]]:
    """Top-level columns with statistics in Delta's log: those of the record at any position, and the first
    `STATISTICS_COLUMNS` of the message."""
    kinds = schema.to_arrow_schema()
    left = STATISTICS_COLUMNS
    for position in range(len(schema.names)):
        leaf = schema.column(position)
        of_the_record = leaf.path in LINEAGE_SCHEMA.names
        left -= not of_the_record
        if "." not in leaf.path and leaf.physical_type not in FLOATING and (of_the_record or left >= 0):
            yield position, leaf.path, _bounds_of(kinds.field(leaf.path).type)


def reach(columns: pa.Schema) -> int:
    """The number of a table's leading columns, with fields in structs counted, that includes every column with bounds
    in Delta's log."""
    return max([STATISTICS_COLUMNS, *(position + 1 for position, _, _ in _describe(columns).bounded)])


def _to_json(found: dict[str, Any]) -> str:
    """JSON without escaped characters: delta-rs (1.6.6) misreads an escaped character beyond U+1FFFF."""
    return json.dumps(found, ensure_ascii=False)


def _statistics(footer: pq.FileMetaData, columns: Bounded) -> dict[str, Any]:
    """Delta's per-file statistics from a Parquet footer: top-level columns, exact bounds or none."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for position, name, bounds in columns:
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
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _times
    if pa.types.is_integer(kind):
        return _numbers
    return _texts if pa.types.is_string(kind) else _none


def _none(found: Found) -> tuple[Any, Any]:
    """No bounds. For floats see `FLOATING`; usual JSON readers round decimals beyond 2^53."""
    return None, None


def _numbers(found: Found) -> tuple[Any, Any]:
    return min([s.min for s in found]), max([s.max for s in found])


def _texts(found: Found) -> tuple[Any, Any]:
    """Bounds by the order of bytes, which for UTF-8 is the order of characters."""
    try:
        low, high = min([s.min_raw for s in found]).decode(), max([s.max_raw for s in found]).decode()
    except ValueError:  # a bound is not UTF-8
        return None, None
    return (low, high) if all(map(_is_whole, (low, high))) else (None, None)


def _is_whole(bound: str) -> bool:
    return len(bound) <= LONGEST_STRING and len(bound.encode()) < CUT_BYTES


def _times(found: Found) -> tuple[Any, Any]:
    """Bounds compared as microseconds; comparing datetimes takes five times as long."""
    return _moment(min([s.min_raw for s in found])), _moment(max([s.max_raw for s in found]))


@functools.lru_cache(maxsize=1024)  # all files of a unit have the same `landed_at`
def _moment(micros: int) -> str | None:
    """A timestamp as ISO text for Delta's JSON; None outside `TIMES`, which some readers cannot parse."""
    if micros not in TIMES:
        return None
    return (EPOCH + datetime.timedelta(microseconds=micros)).isoformat(timespec="microseconds") + "Z"


def read_batches(
    storage: Storage, key: str, fields: pa.Schema, sources: Sequence[str], most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches of at most `most_rows` rows and about `most_bytes` bytes.

    Args:
        fields: the names and types of the columns; one that the file lacks is NULL.
        sources: for each field the name of the column in the file.
    """
    with storage.open_input(key) as source, pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        there = set(file.schema_arrow.names) & set(sources)
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        widest = max((-(-group.total_byte_size // max(group.num_rows, 1)) for group in groups), default=1)
        size = max(1, min(most_rows, most_bytes // max(widest, 1)))
        wanted = [name for name in dict.fromkeys(sources) if name in there]
        for batch in file.iter_batches(size, columns=wanted, use_threads=False):
            columns = [
                batch[name].cast(field.type) if name in there else pa.nulls(len(batch), field.type)
                for field, name in zip(fields, sources, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=fields)
