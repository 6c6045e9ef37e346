"""The columns that rows of silver have by the projection of their definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from spark_app.audit.chunk import Chunk
from spark_app.audit.expectation_sql import columns_of, with_missing
from spark_app.audit.expected import Json, plain
from spark_app.audit.joined_columns import join
from spark_app.audit.projection_sql import calls_hmac, computed, known_times, use_key, with_numbers
from spark_app.audit.record_rules import Piece
from spark_app.audit.sent_rows import sent_rows, type_of
from spark_app.audit.values import mark, unequal
from spark_app.lake.files.hmac_key import fingerprint_of, read_key

GONE = "rows have columns of a version of a reference table that is no longer kept: those were not compared"
OTHER_KEY = "rows have columns made with another key than that of silver.hmac_key_file: those were not compared"
AS_TEXT = "rows have columns made from JSON text, whose form is not proven: those differ from the audit's"


@dataclass
class Projected:
    """
    Attributes:
        touched: the columns, casefolded, that are not as they were sent.
        made: the values that a row must have; a touched column without one must be NULL.
        unproven: the columns that cannot be compared, casefolded, with the reason.
        loose: the columns whose differences are noted only.
    """

    touched: frozenset[str]
    made: dict[str, pa.Array] = field(default_factory=dict)
    unproven: dict[str, str] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)


def project(chunk: Chunk, piece: Piece, number: int, actual: pa.Table) -> Projected | None:
    """The columns of a piece's rows by their definition; None = they are as they were sent."""
    definition = chunk.snapshot.definitions.get(str(number), {})
    columns: dict[str, str] = definition.get("columns", {})
    touched = chunk.snapshot.touched(number)
    if not touched:
        return None
    found = Projected(touched)
    has_key = bool(definition.get("hmac_key")) and _take_key(chunk, definition["hmac_key"])
    kinds = {name.casefold(): actual.schema.field(name).type for name in actual.column_names}
    references: dict[str, Any] = definition.get("references", {})
    named = frozenset[str]().union(*(columns_of(text) for text in columns.values()))
    named |= {one["on"].lower() for one in references.values()}
    rows = sent_rows(chunk, piece, actual.schema, named, number, chunk.snapshot.settings.decode.framed_keys)
    rows = _join(chunk, references, rows, found)
    dropped = {name.casefold() for name in definition.get("drop", ())}
    for name in (name for one in references.values() for name in one["columns"]):
        if name in rows.column_names and name.casefold() in kinds.keys() - dropped:
            found.made[name] = rows[name].combine_chunks().cast(kinds[name.casefold()])
    lost = frozenset(found.unproven)
    for name, text in columns.items():
        found.unproven.pop(name.casefold(), None)
        if lost & columns_of(text):
            found.unproven[name.casefold()] = GONE
        elif calls_hmac(text) and not has_key:
            found.unproven[name.casefold()] = OTHER_KEY
        elif name.casefold() in kinds:
            try:
                found.made[name] = computed(rows, text, kinds[name.casefold()], partial(type_of, chunk))
            except ValueError:  # the app would not have made the column
                found.made[name] = pa.nulls(len(actual), kinds[name.casefold()])
        if _from_json(piece, columns_of(text)):
            found.loose.add(name)
    return found


def _join(chunk: Chunk, references: dict[str, Any], rows: pa.Table, found: Projected) -> pa.Table:
    """The rows as expressions see them: with the joined columns, which replace others of their names."""
    joined: dict[str, pa.Array] = {}
    for name, reference in references.items():
        looked_up = with_missing(rows, frozenset({reference["on"].lower()}), partial(type_of, chunk))
        columns = join(chunk.snapshot.lake, name, reference, looked_up)
        if columns is None:
            found.unproven |= {column.casefold(): GONE for column in reference["columns"]}
        else:
            joined |= columns
    hidden = {name.casefold() for name in joined}
    kept = {name: rows[name] for name in rows.column_names if name.casefold() not in hidden}
    return pa.table(kept | joined)


def _take_key(chunk: Chunk, fingerprint: str) -> bool:
    """Whether the settings name the key with this fingerprint, which `hmac()` then uses."""
    path = chunk.snapshot.settings.silver.hmac_key_file
    key = read_key(path) if path else b""
    if not path or fingerprint_of(key) != fingerprint:
        return False
    use_key(key)
    return True


def _from_json(piece: Piece, named: frozenset[str]) -> bool:
    """Whether one of the columns is JSON text, or may hold some."""
    if "_key" in named:
        return True
    values = [values for name, values in piece.values.items() if name.lower() in named]
    values += [piece.rest] if piece.rest is not None and "_wrapper" in named else []
    return any(_has_json(value) for column in values for value in column)


def _has_json(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_json, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Json)


def compare(chunk: Chunk, wrong: np.ndarray, projected: Projected, name: str, column: pa.Array) -> None:
    """Mark the rows whose column is not what the projection makes; what cannot be proven is noted."""
    why = projected.unproven.get(name.casefold())
    if why is not None:
        chunk.verdict.note(why, len(column))
        return
    due = projected.made.get(name)
    differ = ~np.asarray(column.is_null()) if due is None else differing_values(due, column)
    if name in projected.loose:
        chunk.verdict.note(AS_TEXT, int(differ.sum()))
    else:
        mark(wrong, differ, name)


def differing_values(due: pa.Array, column: pa.Array) -> np.ndarray:
    """Which values differ, of columns of one type."""
    if not pa.types.is_nested(column.type):
        return unequal(due, column)
    kind = with_numbers(column.type)  # Python has no time outside of the years 1 to 9999
    made = (known_times(value, column.type) for value in due.cast(kind).to_pylist())
    pairs = zip(made, column.cast(kind).to_pylist(), strict=True)
    return np.array([plain(one, kind) != plain(other, kind) for one, other in pairs], bool)
