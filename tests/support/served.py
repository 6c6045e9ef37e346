"""Tables of a small lake as the app leaves them: gold, and tables by SQL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from spark_app.lake import sql_tables
from spark_app.lake.sql_tables import SqlTable
from tests.support.lakes import SmallLake


def write_table(
    lake: SmallLake,
    table: str,
    *rows: dict[str, Any],
    schema: pa.Schema | None = None,
    query: str = "",
    sources: tuple[str, ...] = (),
    key: tuple[str, ...] = (),
    **options: Any,
) -> None:
    """Replace a table. One that is not of gold is one by SQL."""
    given = {"mode": "overwrite", "schema_mode": "overwrite", **options}
    write_deltalake(str(lake.lake.path(table)), pa.Table.from_pylist(list(rows), schema), **given)
    if not lake.settings.layout.is_gold(table):
        texts = dict.fromkeys(("statement", "file", "comment", "mode", "why", "digest", "at"), "")
        numbers = dict.fromkeys(("line", "unit", "version", "rows", "seconds", "interval_s"), 1)
        made: Any = {**texts, **numbers, "views": {}, "sources": dict.fromkeys(sources, 1)}
        sql_tables.store(lake.lake, SqlTable(table=table, query=query, key=list(key), **made))
