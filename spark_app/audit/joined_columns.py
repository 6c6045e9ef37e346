"""Joins rows with the copies of reference tables, by DuckDB."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import pyarrow as pa

from spark_app.lake.files.opening import open_storage
from spark_app.lake.files.reference_files import KEY, key_of
from spark_app.lake.lake import Lake
from spark_app.model.place import Place


def join(lake: Lake, name: str, reference: dict[str, Any], rows: pa.Table) -> dict[str, pa.Array] | None:
    """The columns that the rows must have from a reference table; None = the version is no longer kept.

    Args:
        name: of the reference table.
        reference: its part of the definition of the rows.
        rows: with "row number", 0 for the first one, and the column that is looked up.
    """
    import duckdb  # most audits have no reference tables

    copy = _copy(lake.place, name, reference["content"])
    if copy is None:
        return None
    looked_up = next(column for column in rows.column_names if column.casefold() == reference["on"].casefold())
    keys = rows.select(["row number", looked_up])
    wanted = ", ".join(f'other."{column}"' for column in reference["columns"])
    with duckdb.connect(config={"threads": "1", "enable_external_access": "false"}) as connection:
        connection.register("the rows", keys)
        connection.register("the copy", copy)
        found = connection.sql(
            f'SELECT {wanted} FROM "the rows" AS own LEFT JOIN "the copy" AS other '
            f'ON own."{looked_up}" = other."{KEY}" ORDER BY own."row number"'
        ).to_arrow_table()
    return {column: found[column].combine_chunks() for column in reference["columns"]}


@functools.lru_cache(maxsize=4)
def _copy(place: Place, name: str, content: str) -> pa.Table | None:
    storage = open_storage(place)
    try:
        data = storage.map_input(key_of(name, content)).read_buffer()
    except FileNotFoundError:
        return None
    if not hashlib.sha256(data).hexdigest().startswith(content):
        return None  # it was altered, and so proves nothing
    return pa.ipc.open_file(data).read_all()
