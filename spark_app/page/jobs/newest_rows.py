"""The newest rows of a table, of its newest files only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from spark_app.lake.files.storage import Storage
from spark_app.page.jobs.plain_values import LONGEST, plain
from spark_app.page.queries.locked_tables import connect
from spark_app.page.queries.parquet_rows import rows_of
from spark_app.page.queries.quoting import quoted

MOST_ROWS = 20
MOST_FILES = 20
MOST_COLUMNS = 300
# When rows came into their table, the first that it has, and what orders the rows of one moment.
MOMENTS = ("_landed_at", "quarantined_at", "deferred_at", "dropped_at", "resolved_at", "happened_at", "landed_at")
PLACES = ("_partition", "_offset", "partition", "offset")


@dataclass(frozen=True)
class File:
    """
    Attributes:
        rows: None = its statistics do not say.
        order: the larger, the newer are its rows.
        bounds: the largest values of some columns.
    """

    key: str
    bytes: int
    rows: int | None
    written_ms: int
    order: tuple[Any, ...]
    bounds: dict[str, Any]


def files_of(table: DeltaTable, folder: str) -> list[File]:
    """The files of a table, those with the newest rows first. A file that was merged from old ones is old.

    Args:
        folder: the key of the table.
    """
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names
    moment = next((f"max.{one}" for one in MOMENTS if f"max.{one}" in names), "modification_time")
    wanted = ["path", "size_bytes", "num_records", "modification_time", moment, "max._definition"]
    read = {name: actions.column(name).to_pylist() for name in wanted if name in names}
    none = [None] * actions.num_rows
    several = zip(*(read.get(name, none) for name in wanted), strict=True)
    found = [
        File(
            f"{folder}/{path}",
            size or 0,
            rows,
            written or 0,
            (newest is not None, newest, written or 0),
            {"_definition": definition},
        )
        for path, size, rows, written, newest, definition in several
    ]
    return sorted(found, key=lambda file: file.order if file.order[0] else (False, 0, file.order[2]), reverse=True)


def newest_rows(storage: Storage, table: DeltaTable, files: list[File]) -> dict[str, Any]:
    """{"columns": names, "rows": JSON values (see `plain`), "moment": the column that says how new a row is, or ""}.

    Args:
        files: the result of `files_of`.
    """
    chosen: list[str] = []
    rows = 0
    for file in files[:MOST_FILES]:
        chosen.append(file.key)
        rows += file.rows or 0
        if rows >= MOST_ROWS:
            break
    if not chosen:
        return {"columns": [field.name for field in table.schema().fields], "rows": [], "moment": ""}
    con = connect()
    view = rows_of(con, storage, table, chosen)
    moment = next((one for one in MOMENTS if one in view.columns), "")
    orders = [f"{quoted(one)} DESC NULLS LAST" for one in (moment, *PLACES) if one in view.columns]
    if orders:
        view = view.order(", ".join(orders))
    columns = list(zip(view.columns, view.types, strict=True))[:MOST_COLUMNS]
    found = view.limit(MOST_ROWS).project(", ".join(_shortened(name, str(kind)) for name, kind in columns)).fetchall()
    return {
        "columns": [name for name, _ in columns],
        "rows": [[plain(value) for value in row] for row in found],
        "moment": moment,
    }


def _shortened(name: str, kind: str) -> str:
    """The column, cut where its values may be large."""
    column = quoted(name)
    if kind == "VARCHAR":
        return f"left({column}, {LONGEST + 1}) AS {column}"
    if kind == "BLOB":
        return f"array_slice({column}, 1, {LONGEST // 2 + 1}) AS {column}"
    return column
