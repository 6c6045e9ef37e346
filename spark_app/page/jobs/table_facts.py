"""What a table is: its columns, rules, newest rows, files and versions. Where its columns come from: `made_of`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable

from spark_app.lake.delta.log import SEQUENCE, UNIT
from spark_app.lake.delta.opened_table import open_table
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.page.clear_text import hidden_tables, hidden_text
from spark_app.page.jobs.newest_rows import File, files_of, newest_rows
from spark_app.page.jobs.plain_values import shortened
from spark_app.page.jobs.rule_rates import rule_rates
from spark_app.settings.models import Settings
from spark_app.tables.definitions import rules_of_table

MOST_COMMITS = 20
MOST_COLUMNS = 2000
LONGEST_TYPE = 300  # characters


def answer(lake: Lake, settings: Settings, table: str) -> dict[str, Any]:
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
        "rules": _part(lambda: _rules(lake, settings, table, files)),
        "rates": _part(lambda: rule_rates(lake, settings, table)),
    }


def _part(find: Callable[[], Any]) -> Any:
    """A part of the answer; the others are shown without it."""
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


def _rules(lake: Lake, settings: Settings, table: str, files: list[File]) -> list[dict[str, str]]:
    """The rules of the settings for a silver table, and those that its newest rows met: also those in the .proto."""
    layout = settings.tables.layout
    if not layout.is_silver(table):
        return []
    found = {rule.name: vars(rule) for rule in rules_of_table(settings.expectations, layout.name_of(table))}
    stored = read_json(lake.storage, lake.definitions) or {}
    for number in {file.bounds["_definition"] for file in files[:MOST_COMMITS]} - {None}:
        own = stored.get(str(number)) or {}
        for rule in own.get("rules") or (stored.get(str(own.get("as"))) or {}).get("rules") or []:
            found.setdefault(rule["name"], rule)
    return [{key: str(rule[key]) for key in ("name", "check", "action")} for _, rule in sorted(found.items())]
