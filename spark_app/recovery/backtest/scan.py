"""Reads columns of Parquet files in small Arrow batches, so that memory does not grow with a table."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import ContractError, UnreachableError, first_message_line

BATCH_RECORDS = 1 << 17
BATCH_BYTES = 64 << 20  # of all columns of the rows
READAHEAD = 2  # batches


def scan(
    storage: Storage,
    keys: Iterable[str],
    schema: pa.Schema,
    columns: Sequence[str],
    condition: pc.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the files, in the order of the files, that satisfy the condition. Row groups whose statistics
    exclude it are not read.

    Args:
        schema: the columns of the table; a file may lack some, which are NULL then.
        columns: the names of those that are read.

    Raises:
        UnreachableError: a file does not exist any more.
        ContractError: a file is damaged.
    """
    arrow = storage.arrow()
    for key in keys:
        try:
            fragment = _format().make_fragment(key, arrow)
            size = _batch_records(fragment)
            yield from fragment.to_batches(
                schema, columns=list(columns), filter=condition, batch_size=size, batch_readahead=READAHEAD
            )
        except FileNotFoundError:
            raise UnreachableError(
                f"{storage.uri(key)} was removed while this command read the table, because no newer version needs it: "
                "run the command again, or keep such files longer (lake.log_retention_hours)"
            ) from None
        except (OSError, pa.ArrowException) as error:
            if is_store_error(error):
                raise
            words = first_message_line(error)
            raise ContractError(
                f"{storage.uri(key)} cannot be read ({words})", "run `doctor`, which says how to restore it"
            ) from None


@functools.cache
def _format() -> ds.ParquetFileFormat:
    int96 = "us"  # other writers store timestamps as int96
    return ds.ParquetFileFormat(coerce_int96_timestamp_unit=int96)


def _batch_records(fragment: ds.ParquetFileFragment) -> int:
    """The records of a batch: fewer where rows are large."""
    size = sum(group.total_byte_size for group in fragment.row_groups)
    rows = sum(group.num_rows for group in fragment.row_groups)
    fitting: int = rows * BATCH_BYTES // max(size, 1)
    return max(1, min(BATCH_RECORDS, fitting))
