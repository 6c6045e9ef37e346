"""Rows of a table's files in DuckDB. It opens files of a local disk itself. For those of a bucket it would need an
extension, so Arrow opens them for it."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from spark_app.lake.files.storage import Storage


def rows_of(
    con: duckdb.DuckDBPyConnection, storage: Storage, table: DeltaTable, keys: Sequence[str]
) -> duckdb.DuckDBPyRelation:
    """The rows of some of the table's files, at least one, which may lack columns on a local disk.

    Args:
        keys: of the files, as `storage` has them.
    """
    if storage.is_local:
        return con.read_parquet([storage.uri(key) for key in keys], union_by_name=True)
    import pyarrow.dataset as ds

    schema = pa.schema(table.schema().to_arrow())
    return con.from_arrow(ds.dataset(list(keys), schema=schema, format="parquet", filesystem=storage.arrow()))
