"""Reads a reference table, which belongs to somebody else: a Delta table, a Parquet file, or a folder of such files.

It is on a local disk, or in a bucket of the object store of the settings.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from posixpath import basename
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.lake.files.local import open_storage
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import NoBucket, StoreError, is_store_error, store_error
from spark_app.model.address import StorageAddress
from spark_app.model.text import one_line
from spark_app.tables.sql.types import bounded

MOST_BYTES = 512 << 20  # in memory
LONGEST = 4096  # bytes of a value: a task may repeat it in each of its rows
FLAT = "text, binary, whole numbers, floating-point numbers, decimals, true or false, dates and times"


class ReferenceRefused(ValueError):
    """The table as it is now cannot be joined; the text says why."""


class _ParquetFiles(NamedTuple):
    """Key -> tag of files in one storage."""

    storage: Storage
    tags: Mapping[str, str]


@dataclass(frozen=True)
class SourceTable:
    """
    Attributes:
        address: a Delta table, a Parquet file, or a folder of Parquet files.
        key: the column whose value names a row.
        columns: those to join.
    """

    address: StorageAddress
    key: str
    columns: Sequence[str]

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self.address)

    def version(self) -> str:
        """A text that changes when the table does, without a look at its rows.

        Raises:
            ReferenceRefused: there is no such table.
            StoreError: the object store does not answer.
        """
        with self._unreadable_refused():
            if self._is_delta():
                table = self._delta()
                return f"{table.version()} of Delta table {table.metadata().id}"
            files = sorted((basename(key), tag) for key, tag in self._parquet_files().tags.items())
        return f"Parquet files {hashlib.sha256(repr(files).encode()).hexdigest()[:16]}"

    def read(self, most_bytes: int = MOST_BYTES) -> pa.Table:
        """The key and the columns, in types that silver has, sorted by the key. Rows whose key is NULL are left out:
        they name nothing. Times outside of the years 1 to 9999 are NULL.

        Raises:
            ReferenceRefused: the table is gone, damaged or too large; a column is missing or nested; a key is there
                twice.
            StoreError: the object store does not answer.
        """
        with self._unreadable_refused():
            batches = list(_up_to(most_bytes, map(_plain_batch, self._batches())))
        table = pa.Table.from_batches(batches) if batches else None
        if not table:
            raise ReferenceRefused("it has no rows")
        table = table.filter(table[self.key].is_valid()).sort_by(self.key).combine_chunks()
        _check_keys(self.key, table[self.key])
        return table

    def _is_delta(self) -> bool:
        return self._storage.exists("_delta_log")

    def _delta(self) -> DeltaTable:
        return DeltaTable(self._storage.root, storage_options=self._storage.delta_options)

    def _parquet_files(self) -> _ParquetFiles:
        """Those directly in the folder, without the ones that Spark takes for hidden."""
        found = self._storage.tags("")
        tags = {key: tag for key, tag in found.items() if key.endswith(".parquet") and key[0] not in "._"}
        if tags:
            return _ParquetFiles(self._storage, tags)
        folder, name = os.path.split(self._storage.root)
        storage = open_storage(replace(self.address, root=folder))
        if (tag := storage.tag(name)) is None:
            raise ReferenceRefused(f"there is no Delta table and no Parquet file at {self.address.root}")
        return _ParquetFiles(storage, {name: tag})

    def _batches(self) -> Iterator[pa.RecordBatch]:
        wanted = list(dict.fromkeys([self.key, *self.columns]))
        if self._is_delta():
            dataset = self._delta().to_pyarrow_dataset(filesystem=self._storage.arrow())
            _check_columns(wanted, dataset.schema, dataset.schema)
        else:
            files = self._parquet_files()
            dataset = ds.dataset(sorted(files.tags), filesystem=files.storage.arrow(), format="parquet")
            for fragment in dataset.get_fragments():  # Arrow would give all files the types of the first one
                _check_columns(wanted, fragment.physical_schema, dataset.schema)
        options = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        yield from dataset.to_batches(columns=wanted, **options)

    @contextlib.contextmanager
    def _unreadable_refused(self) -> Iterator[None]:
        """Errors about the table become `ReferenceRefused`; an object store that does not respond is no error of the
        table."""
        try:
            yield
        except NoBucket as error:
            raise ReferenceRefused(str(error)) from None
        except (DeltaError, OSError, pa.ArrowException) as error:
            found = store_error(error, self.address.root, self.address.endpoint) if is_store_error(error) else error
            if isinstance(found, StoreError):
                raise found from None
            raise ReferenceRefused(one_line(str(found))) from None


def _check_columns(wanted: Sequence[str], own: pa.Schema, first: pa.Schema) -> None:
    missing = [name for name in wanted if name not in own.names]
    if missing:
        raise ReferenceRefused(f"it has no column {', '.join(missing)}; it has {', '.join(own.names)}")
    for name in wanted:
        if own.field(name).type != first.field(name).type:
            kinds = f"{own.field(name).type} and {first.field(name).type}"
            raise ReferenceRefused(f"its column {name} is {kinds} in different files")


def _up_to(most_bytes: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, until they are too large together."""
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > most_bytes:
            raise ReferenceRefused(f"its columns take more than {most_bytes >> 20} MiB of memory")
        yield batch


def _plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)  # text may be no UTF-8
    columns = [_plain(name, batch[name]) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _plain(name: str, column: pa.Array) -> pa.Array:
    """The column in the type that silver has for such values."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    try:
        plain = _short(name, column.cast(_type_in_silver(kind)))
    except KeyError:
        raise ReferenceRefused(f"its column {name} is {kind}; a joined column has {FLAT}") from None
    except pa.ArrowInvalid as error:
        raise ReferenceRefused(f"its column {name}: {one_line(str(error))}") from None
    return bounded(pa.chunked_array([plain])).combine_chunks()


def _short(name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if longest > LONGEST:
            raise ReferenceRefused(f"its column {name} has a value of {longest:,} bytes; the most is {LONGEST:,}")
    return column


def _type_in_silver(kind: pa.DataType) -> pa.DataType:
    """
    Raises:
        KeyError: silver has no such values.
    """
    if pa.types.is_integer(kind):
        return pa.int64() if kind != pa.uint64() else pa.decimal128(20, 0)
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_boolean(kind) or pa.types.is_date32(kind) or pa.types.is_decimal128(kind):
        return kind
    raise KeyError(kind)


def _check_keys(name: str, keys: pa.ChunkedArray) -> None:
    if keys.type not in (pa.string(), pa.int64(), pa.decimal128(20, 0)):
        raise ReferenceRefused(f"its key {name} is {keys.type}; a key is text or a whole number")
    counts = keys.value_counts()
    doubled = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(doubled):
        raise ReferenceRefused(f"its key {name} is not unique: keys with several rows: {len(doubled):,}")
