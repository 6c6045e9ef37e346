"""What a lake knows of its tables by SQL.

    _protolake/sql/TABLE.json    the statement, how its table is kept up, and what the last run read, made and cost

The file is written after each run. A run whose file is missing, or has no digest, is of the whole table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from posixpath import basename
from typing import Any

from spark_app.lake.files.state_files import read_json, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames


@dataclass(frozen=True)
class SqlTable:
    """A table by SQL, as its last run left it.

    Attributes:
        statement: its name in the file, which may have `{name}`.
        file, line: where the statement is.
        query: the statement's, with the routing name in it.
        views: temporary view -> query, of those that the query reads.
        mode: fold, append or recompute.
        why: the reason for the mode.
        digest: of the query and the columns of its sources; "" = the next run is of the whole table.
        sources: table, or reference table -> the version that the last run read.
        unit: the last unit in the table.
        version: the version of the table that the last run made.
        failed: why the last run failed; "" if it did not.
        key: the columns that no two rows have alike, as far as the mode tells them.
        is_changing: the table may have rows of another statement already, whose run has not ended.
    """

    table: str
    statement: str
    file: str
    line: int
    query: str
    comment: str
    views: dict[str, str]
    interval_s: float
    mode: str
    why: str
    digest: str
    sources: dict[str, int | str]
    unit: int
    version: int
    rows: int
    seconds: float
    at: str
    failed: str = ""
    key: list[str] = field(default_factory=list)
    is_changing: bool = False

    def column_of(self, field: str) -> str | None:
        """As `GoldSpec.column_of`: a query may make any row of any value."""
        return None


def names(lake: Lake) -> list[str]:
    """The tables by SQL that the lake knows, sorted."""
    return sorted(basename(key).removesuffix(".json") for key in lake.storage.list(lake.sql_tables))


def read(lake: Lake, table: str) -> SqlTable | None:
    """None if no statement has made the table, or its file is damaged: then the next run is of the whole table."""
    found: Any = read_json(lake.storage, key_of(lake, table))
    try:
        return SqlTable(**found) if found else None
    except TypeError:
        return None


def every(lake: Lake) -> Iterator[SqlTable]:
    yield from (found for name in names(lake) if (found := read(lake, name)) is not None)


def store(lake: Lake, value: SqlTable) -> None:
    write_durably(lake.storage, key_of(lake, value.table), json.dumps(asdict(value), indent=1), "sql.state")


def key_of(lake: Lake, table: str) -> str:
    return f"{lake.sql_tables}/{table}.json"


def derived_state(lake: Lake, layout: TableNames, table: str) -> str | None:
    """The file without which a table is computed anew; None if it is derived from no others."""
    kind = layout.gold_kind(table)
    if kind is not None:
        return lake.gold_state(kind)
    return key_of(lake, table) if lake.storage.exists(key_of(lake, table)) else None
