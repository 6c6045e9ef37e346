"""The facts about a table: its columns, expectations, newest rows, files and versions. See also `lineage`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from spark_app.lake.delta.log import SEQUENCE, UNIT
from spark_app.lake.delta.table_schema import open_table
from spark_app.lake.files.state_files import read_json
from spark_app.lake.files.storage import Storage
from spark_app.lake.lake import Lake
from spark_app.model.text import quoted
from spark_app.page.clear_text import hidden_tables, hidden_text
from spark_app.page.format import LONGEST, json_value, shortened
from spark_app.page.queries.locked_tables import connect, rows_of
from spark_app.settings.models import Settings
from spark_app.tables.definitions import expectations_of_table

MOST_COMMITS = 20
MOST_COLUMNS = 2000
LONGEST_TYPE = 300  # characters
MOST_ROWS = 20
MOST_FILES = 20
MOST_SHOWN_COLUMNS = 300
# When rows came into their table, the first that it has, and what orders the rows of one moment.
MOMENTS = ("_landed_at", "quarantined_at", "deferred_at", "dropped_at", "resolved_at", "happened_at", "landed_at")
COORDINATE_TYPES = ("_partition", "_offset", "partition", "offset")
MOST_EVENT_BYTES = 32 << 20  # of files
MOST_EVENT_FILES = 400
POINTS = 120
SHORTEST_S = 10
RATES = """
WITH counted AS (
  SELECT details->>'$.rule' AS rule, epoch(happened_at) AS moment,
    TRY_CAST(details->>'$.passed' AS BIGINT) AS passed, TRY_CAST(details->>'$.failed' AS BIGINT) AS failed
  FROM events WHERE kind = 'rule' AND "table" = $table AND json_valid(details)
),
width AS (SELECT greatest($shortest, ceil((max(moment) - min(moment)) / $points)) AS s FROM counted)
SELECT rule, floor(moment / s) * s AS bucket, sum(passed)::BIGINT, sum(failed)::BIGINT
FROM counted, width WHERE rule IS NOT NULL AND passed IS NOT NULL AND failed IS NOT NULL
GROUP BY ALL ORDER BY bucket, rule
"""


def table_facts(lake: Lake, settings: Settings, table: str) -> dict[str, Any]:
    """
    Returns:
        {"unknown": True} if the lake has no such table. Otherwise "comment", "columns", "files", "version", "commits",
        "rows", "rules", "rates"; "rows" are {"hidden": why} if they may not be shown, and the last four may be
        {"failed": why} each. Times are in seconds since 1970.
    """
    if table not in lake.tables():
        return {"unknown": True}
    opened = open_table(lake, table)
    files = files_of(opened, table)
    hidden = table in hidden_tables(lake, settings)
    return {
        "comment": opened.metadata().description or "",
        "columns": columns_of(opened),
        "files": {
            "count": len(files),
            "bytes": sum(file.bytes for file in files),
            "rows": None if any(file.rows is None for file in files) else sum(file.rows or 0 for file in files),
            "written_at": max((file.written_ms / 1000 for file in files), default=None),
        },
        "version": opened.version(),
        "commits": _part(lambda: _commits(opened)),
        "rows": {"hidden": hidden_text(table)} if hidden else _part(lambda: newest_rows(lake.storage, opened, files)),
        "rules": _part(lambda: _expectations(lake, settings, table, files)),
        "rates": _part(lambda: expectation_rates(lake, settings, table)),
    }


def _part(find: Callable[[], Any]) -> Any:
    """A part of the result; the others are shown without it."""
    try:
        return find()
    except Exception as error:  # a part of the lake is damaged, or was removed meanwhile
        return {"failed": shortened(f"{type(error).__name__}: {error}")}


def columns_of(table: DeltaTable) -> list[dict[str, str]]:
    fields = json.loads(table.schema().to_json())["fields"]
    return [
        {
            "name": field["name"],
            "type": shortened(_type_text(field["type"]), LONGEST_TYPE),
            "comment": str(field.get("metadata", {}).get("comment", "")),
        }
        for field in fields[:MOST_COLUMNS]
    ]


def _type_text(kind: Any) -> str:
    """A type of Delta's JSON as Spark SQL spells it."""
    if not isinstance(kind, dict):
        return {"integer": "int", "long": "bigint"}.get(str(kind), str(kind))
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'])}, {_type_text(kind['valueType'])}>"
    fields = ", ".join(f"{field['name']}: {_type_text(field['type'])}" for field in kind["fields"])
    return f"struct<{fields}>"


def _commits(table: DeltaTable) -> list[dict[str, Any]]:
    """The newest commits first."""
    return [
        {"version": one.get("version"), "at": _seconds(one.get("timestamp")), "what": _what(one)}
        for one in table.history(MOST_COMMITS)
    ]


def _seconds(millis: Any) -> float | None:
    return millis / 1000 if type(millis) is int else None


def _what(commit: dict[str, Any]) -> str:
    operation, unit = str(commit.get("operation", "")), commit.get(SEQUENCE)
    mode = str((commit.get("operationParameters") or {}).get("mode", "")).casefold()
    if operation == "WRITE" and mode == "append":
        up_to = "" if unit is None else f", up to unit {unit}"
        return f"appends rows of unit {unit}" if UNIT in commit else f"appends rows{up_to}"
    if operation == "WRITE" and mode == "overwrite":
        return "replaces rows" if unit is None else f"replaces rows, up to unit {unit}"
    if operation == "OPTIMIZE":
        metrics = commit.get("operationMetrics") or {}
        removed, added = metrics.get("numFilesRemoved"), metrics.get("numFilesAdded")
        return f"merges files: {removed} become {added}"
    known = {"ADD COLUMN": "adds columns or comments", "CREATE TABLE": "creates the table"}
    return known.get(operation, shortened(operation or "unknown", 100))


def _expectations(lake: Lake, settings: Settings, table: str, files: list[File]) -> list[dict[str, str]]:
    """The expectations of the settings for a silver table, and those of its newest rows: also those in the .proto."""
    layout = settings.layout
    if not layout.is_silver(table):
        return []
    found = {rule.name: vars(rule) for rule in expectations_of_table(settings.expectations, layout.name_of(table))}
    stored = read_json(lake.storage, lake.definitions) or {}
    for number in {file.bounds["_definition"] for file in files[:MOST_COMMITS]} - {None}:
        own = stored.get(str(number)) or {}
        for rule in own.get("rules") or (stored.get(str(own.get("as"))) or {}).get("rules") or []:
            found.setdefault(rule["name"], rule)
    return [{key: str(rule[key]) for key in ("name", "check", "action")} for _, rule in sorted(found.items())]


@dataclass(frozen=True)
class File:
    """
    Attributes:
        rows: None = its statistics lack it.
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
    """The rows of the newest files only: {"columns": names, "rows": of `json_value`s, "moment": the column that says
    how new a row is, or ""}.

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
    orders = [f"{quoted(one)} DESC NULLS LAST" for one in (moment, *COORDINATE_TYPES) if one in view.columns]
    if orders:
        view = view.order(", ".join(orders))
    columns = list(zip(view.columns, view.types, strict=True))[:MOST_SHOWN_COLUMNS]
    found = view.limit(MOST_ROWS).project(", ".join(_shortened(name, str(kind)) for name, kind in columns)).fetchall()
    return {
        "columns": [name for name, _ in columns],
        "rows": [[json_value(value) for value in row] for row in found],
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


def expectation_rates(lake: Lake, settings: Settings, table: str) -> dict[str, list[tuple[float, int, int]]]:
    """Expectation -> (seconds since 1970, rows that passed, rows that failed), oldest first."""
    events = settings.layout.events
    if not lake.has_table(events):
        return {}
    opened = open_table(lake, events)
    chosen: list[str] = []
    size = 0
    for file in files_of(opened, events)[:MOST_EVENT_FILES]:
        size += file.bytes
        if chosen and size > MOST_EVENT_BYTES:
            break
        chosen.append(file.key)
    if not chosen:
        return {}
    con = connect()
    rows_of(con, lake.storage, opened, chosen).create_view("events")
    found: dict[str, list[tuple[float, int, int]]] = {}
    arguments: dict[str, Any] = {"table": table, "shortest": SHORTEST_S, "points": POINTS}
    for name, at, passed, failed in con.execute(RATES, arguments).fetchall():
        found.setdefault(name, []).append((at, passed, failed))
    return found
