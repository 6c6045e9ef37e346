"""The rows of records as they were sent, as Arrow tables in which expressions are evaluated.

The engine that evaluates them is that of the writer, and so is what judges messages by the rules in their .proto: what
they make of rows is proven by tests of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_app.audit.chunk import Chunk
from spark_app.audit.expected import Json
from spark_app.audit.expected_rows import Piece
from spark_app.audit.values import DoesNotFit, fitted
from spark_app.tables.expectations.proto_rules import VIOLATED, judge_of
from spark_app.tables.sql.engine import failures
from spark_app.tables.sql.names import columns_in


def type_of(chunk: Chunk, name: str) -> pa.DataType:
    """The type of a column, by its name in lower case, for rows that lack it: of the first table that has it, else of
    the first message; text if there is none. Of a column that projections make the message comes first."""
    in_tables, sent = chunk.snapshot.types.get(name), chunk.expected.types.get(name)
    found = (sent, in_tables) if name in chunk.snapshot.projected else (in_tables, sent)
    return found[0] or found[1] or pa.string()


def columns_of(texts: Iterable[str]) -> frozenset[str]:
    """The names in lower case that may be columns of the expressions."""
    return frozenset(name.lower() for text in texts for name in columns_in(text))


def with_columns(chunk: Chunk, rows: pa.Table, named: frozenset[str]) -> pa.Table:
    """The rows with these columns alone, and at least one; those that they lack are NULL."""
    there = {name.lower(): rows[name] for name in rows.column_names}
    columns = {name: there[name] if name in there else pa.nulls(len(rows), type_of(chunk, name)) for name in named}
    return pa.table(columns) if columns else rows.select([0])


def failing(chunk: Chunk, rows: pa.Table, checks: Sequence[str]) -> list[np.ndarray]:
    """For each check which rows fail it."""
    masks = failures(with_columns(chunk, rows, columns_of(checks)), checks)
    return [masks >> bit & 1 == 1 for bit in range(len(checks))]


def sent_rows(
    chunk: Chunk, piece: Piece, known: pa.Schema | None, named: frozenset[str], number: int, keys: bool
) -> pa.Table:
    """The rows of a piece as they were sent: a number, and the named columns.

    Args:
        known: the columns of their table, whose types count where the definition `number` leaves the columns alone.
        named: in lower case.
        keys: whether the app decoded their keys.
    """
    touched = chunk.snapshot.touched(number)
    types = {column.name: column.whole for column in piece.columns}
    if piece.rest_type is not None:
        types["_wrapper"] = piece.rest_type
    fields = piece.values if piece.rest is None else piece.values | {"_wrapper": piece.rest}
    columns: dict[str, pa.Array] = {"row number": pa.array(range(len(piece.rows)))}
    for name, values in fields.items():
        if name.lower() in named:
            in_table = known is not None and name in known.names and name.casefold() not in touched
            kind = known.field(name).type if in_table else types.get(name)  # type: ignore[union-attr]
            columns[name] = _array(values, kind or type_of(chunk, name))
    columns |= {name: values for name, values in _lineage(chunk, piece) if name in named}
    if VIOLATED.name in named:
        judge = judge_of(chunk.expected.descriptor_set(piece.key), type(piece.messages[0]).DESCRIPTOR.full_name)
        columns[VIOLATED.name], _ = judge.violations(piece.payloads)
    if keys and "_key" in named:
        columns["_key"] = _keys(chunk, piece.rows)
    return pa.table(columns)


def _lineage(chunk: Chunk, piece: Piece) -> Iterator[tuple[str, pa.Array]]:
    """(name, values) of each column about the record."""
    count, rows = len(piece.rows), piece.rows
    yield "_topic", pa.array([chunk.slots.spans[0].topic] * count, pa.string())
    yield "_topic_id", pa.array([chunk.slots.topic_id] * count, pa.string())
    yield "_partition", pa.array([chunk.records.partition[row] for row in rows], pa.int32())
    yield "_offset", pa.array([chunk.records.offset[row] for row in rows], pa.int64())
    yield "_kafka_timestamp", chunk.times.take(pa.array(rows))
    yield "_schema_id", pa.array([piece.key if isinstance(piece.key, int) else None] * count, pa.int64())
    yield "_schema_guid", pa.array([piece.key if isinstance(piece.key, str) else None] * count, pa.string())
    yield "_landed_at", chunk.landed_at(chunk.slot_of[rows])


def _keys(chunk: Chunk, rows: Sequence[int]) -> pa.Array:
    texts = (chunk.expected.key_text(chunk.records.key[row], chunk.records.headers[row]) for row in rows)
    return pa.array([text and _text(text) for text in texts], pa.string())


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of the type; a value that it cannot store is NULL."""
    return pa.array([_stored(value, kind) for value in values], kind)


def _stored(value: Any, kind: pa.DataType) -> Any:
    try:
        return _in_arrow(fitted(value, kind), kind)
    except DoesNotFit:
        return None


def _in_arrow(value: Any, kind: pa.DataType) -> Any:
    """A value of `fitted` in the form that Arrow takes: JSON as text, entries of maps as tuples."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(_in_arrow(k, kind.key_type), _in_arrow(v, kind.item_type)) for k, v in value]
    if pa.types.is_list(kind):
        return [_in_arrow(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {name: _in_arrow(item, kind.field(name).type) for name, item in value.items()}
    return _text(value) if isinstance(value, Json) else value


def _text(value: Json) -> str:
    return json.dumps(value.value, ensure_ascii=False)
