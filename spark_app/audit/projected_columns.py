"""The columns that rows of silver have by the projection of their definition."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.audit.chunk import Chunk
from spark_app.audit.expected import Json, plain
from spark_app.audit.expected_rows import Piece
from spark_app.audit.sent_rows import columns_of, sent_rows, with_columns
from spark_app.audit.values import mark, unequal
from spark_app.lake.files.hmac_key import fingerprint_of, read_key
from spark_app.lake.files.local import open_storage
from spark_app.lake.files.reference_files import KEY, digest_of, is_copy_of, key_of
from spark_app.model.address import StorageAddress
from spark_app.tables.sql.expressions import NoType, calls_hmac, evaluate

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
    touched = chunk.snapshot.touched(number)
    if not touched:
        return None
    definition, found = chunk.snapshot.definitions.get(str(number), {}), Projected(touched)
    columns: dict[str, str] = definition.get("columns", {})
    references: dict[str, Any] = definition.get("references", {})
    key = _key_of(chunk, definition.get("hmac_key"))
    kinds = {name.casefold(): actual.schema.field(name).type for name in actual.column_names}
    named = columns_of(columns.values()) | {one["on"].lower() for one in references.values()}
    rows = sent_rows(chunk, piece, actual.schema, named, number, chunk.snapshot.settings.decode.framed_keys)
    rows = _join(chunk, references, rows, found)
    dropped = {name.casefold() for name in definition.get("drop", ())}
    for name in (name for one in references.values() for name in one["columns"]):
        if name in rows.column_names and name.casefold() in kinds.keys() - dropped:
            found.made[name] = rows[name].combine_chunks().cast(kinds[name.casefold()])
    lost = frozenset(found.unproven)
    for name, text in columns.items():
        found.unproven.pop(name.casefold(), None)
        if lost & columns_of([text]):
            found.unproven[name.casefold()] = GONE
        elif calls_hmac(text) and key is None:
            found.unproven[name.casefold()] = OTHER_KEY
        elif name.casefold() in kinds:
            found.made[name] = _evaluate(chunk, rows, text, key, kinds[name.casefold()])
        if _from_json(piece, columns_of([text])):
            found.loose.add(name)
    return found


def _evaluate(chunk: Chunk, rows: pa.Table, text: str, key: bytes | None, kind: pa.DataType) -> pa.Array:
    """The values of an expression in the type of their column. An expression without such a type gives NULL: the app
    would not have made the column."""
    try:
        made = evaluate(with_columns(chunk, rows, columns_of([text])), {"made": text}, key)["made"]
        return made.combine_chunks().cast(kind, safe=False)
    except (NoType, pa.ArrowException):
        return pa.nulls(len(rows), kind)


def _join(chunk: Chunk, references: dict[str, Any], rows: pa.Table, found: Projected) -> pa.Table:
    """The rows as expressions see them: with the joined columns, which replace others of their names."""
    joined: dict[str, pa.Array] = {}
    for name, reference in references.items():
        copy = _copy(chunk.snapshot.lake.address, name, reference["content"])
        if copy is None:
            found.unproven |= {column.casefold(): GONE for column in reference["columns"]}
            continue
        looked_up = with_columns(chunk, rows, frozenset({reference["on"].lower()})).column(0)
        joined |= {column: copy[column].take(_positions(looked_up, copy[KEY])) for column in reference["columns"]}
    hidden = {name.casefold() for name in joined}
    kept = {name: rows[name] for name in rows.column_names if name.casefold() not in hidden}
    return pa.table(kept | joined)


@functools.lru_cache(maxsize=4)
def _copy(address: StorageAddress, name: str, content: str) -> pa.Table | None:
    """The rows of a version of a reference table; None = it is no longer kept."""
    try:
        data = open_storage(address).map_input(key_of(name, content)).read_buffer()
    except FileNotFoundError:
        return None
    if not is_copy_of(content, digest_of(memoryview(data))):
        return None  # it was altered, and so proves nothing
    return pa.ipc.open_file(data).read_all()


def _positions(looked_up: pa.ChunkedArray, keys: pa.ChunkedArray) -> pa.Array:
    """Where each value is among the keys; NULL = nowhere."""
    kind = pa.string() if pa.types.is_string(keys.type) else pa.decimal128(20, 0)
    found = pc.index_in(looked_up.cast(kind), keys.cast(kind), skip_nulls=True)
    return found.combine_chunks()


def _key_of(chunk: Chunk, fingerprint: str | None) -> bytes | None:
    """The key of the settings; None if it is not that with the fingerprint."""
    path = chunk.snapshot.settings.silver.hmac_key_file
    key = read_key(path) if path and fingerprint else b""
    return key if key and fingerprint_of(key) == fingerprint else None


def _from_json(piece: Piece, named: frozenset[str]) -> bool:
    """Whether one of the columns is JSON text, or may contain some."""
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
    kind = _with_numbers(column.type)  # Python has no time outside of the years 1 to 9999
    pairs = zip(due.cast(kind).to_pylist(), column.cast(kind).to_pylist(), strict=True)
    return np.array([plain(one, kind) != plain(other, kind) for one, other in pairs], bool)


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with numbers instead of times and dates, at any depth."""
    if pa.types.is_temporal(kind):
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_with_numbers(kind.field(i).type)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    return pa.list_(_with_numbers(kind.value_type)) if pa.types.is_list(kind) else kind
