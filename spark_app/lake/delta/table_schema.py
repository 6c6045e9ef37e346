"""The schema of a Delta table: its columns for the app, which ignores comments, and its comments for readers.

Opens tables with delta-rs, wherever the lake is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from spark_app.lake.lake import Lake
from spark_app.model.columns import Comments, Path


def open_table(lake: Lake, name: str) -> DeltaTable:
    """A new handle of an existing table, at its newest version.

    Raises:
        ContractError: the name is not a plain folder name.
    """
    return DeltaTable(lake.storage.uri(lake.table(name)), storage_options=lake.storage.delta_options)


COMMENT = "comment"  # the key in a field's metadata


def columns_of(table: DeltaTable) -> pa.Schema:
    """The table's columns, without comments and other metadata of fields."""
    return _columns(table.schema().to_json())


def top_comments(table: DeltaTable) -> dict[str, str]:
    """Column -> its comment, and under "" that of the table; those that there are."""
    fields = json.loads(table.schema().to_json())["fields"]
    found = {"": table.metadata().description, **{one["name"]: one["metadata"].get(COMMENT) for one in fields}}
    return {name: str(text) for name, text in found.items() if text}


@functools.lru_cache(maxsize=4096)
def _columns(text: str) -> pa.Schema:
    return pa.schema(Schema.from_json(json.dumps(json.loads(text, object_hook=_bare))).to_arrow())


def _bare(value: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema in Delta's JSON, without metadata."""
    return value | {"metadata": {}} if "metadata" in value else value


def commented(schema: str, comments: Comments) -> str:
    """A schema as Delta's JSON, with the comments."""
    return _text(_with_comments(json.loads(schema), comments, ()))


def extended(table: DeltaTable, columns: pa.Schema, comments: Comments) -> str:
    """The table's schema as Delta's JSON, with the comments and with the columns and fields that it lacks. Everything
    else in it stays."""
    grown = _grown(json.loads(table.schema().to_json()), json.loads(Schema.from_arrow(columns).to_json()))
    return _text(_with_comments(grown, comments, ()))


def renewed(table: DeltaTable, columns: pa.Schema, comments: Comments) -> str:
    """A table's new schema as Delta's JSON, with the comments. A column that stays as it was keeps its comment."""
    before = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    schema = json.loads(Schema.from_arrow(columns).to_json())
    kept = [_kept(field, before.get(field["name"]), comments) for field in schema["fields"]]
    return _text(_with_comments(schema | {"fields": kept}, comments, ()))


def _kept(new: dict[str, Any], old: dict[str, Any] | None, comments: Comments) -> dict[str, Any]:
    is_same = old is not None and json.loads(json.dumps(old), object_hook=_bare) == new
    return old if old is not None and is_same and new["name"].casefold() not in comments.made else new


def table_comment(before: str | None, comments: Comments) -> str | None:
    """The comment of a table whose comment was `before`; None = none."""
    return comments.authored.get(()) or before or comments.own.get(())


def with_comments(columns: pa.Schema, comments: Mapping[Path, str]) -> pa.Schema:
    """The columns with comments of top-level columns, from which delta-rs makes those of a table."""
    return pa.schema([f.with_metadata({COMMENT: comments[f.name,]}) if (f.name,) in comments else f for f in columns])


def _text(schema: Any) -> str:
    """JSON without escaped characters: delta-rs (1.6.6) misreads an escaped character beyond U+1FFFF."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _with_comments(kind: Any, comments: Comments, at: Path) -> Any:
    """A type of Delta's JSON with the comments; `at` is its path."""
    if not isinstance(kind, dict):
        return kind
    inner = {part: _with_comments(kind[part], comments, at) for part in ("elementType", "valueType") if part in kind}
    if "fields" in kind:
        inner["fields"] = [_with_comment(field, comments, (*at, field["name"])) for field in kind["fields"]]
    return kind | inner


def _with_comment(field: dict[str, Any], comments: Comments, at: Path) -> dict[str, Any]:
    own = {COMMENT: comments.own[at]} if at in comments.own else {}
    authored = {COMMENT: comments.authored[at]} if at in comments.authored else {}
    return field | {"type": _with_comments(field["type"], comments, at), "metadata": own | field["metadata"] | authored}


def _grown(old: Any, new: Any) -> Any:
    """The type `old` with the fields that only `new` has, at any depth."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return old
    inner = {part: _grown(old[part], new[part]) for part in ("elementType", "valueType") if part in old}
    if "fields" in old:
        added = {field["name"]: field for field in new["fields"]}
        kept = [field | {"type": _grown(field["type"], added.pop(field["name"])["type"])} for field in old["fields"]]
        inner["fields"] = [*kept, *added.values()]
    return old | inner
