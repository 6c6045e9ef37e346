"""Checks silver: the content of each row, and that it is in the right table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from google.protobuf.message import Message

from spark_app.audit import projected_columns
from spark_app.audit.check_expectations import Failures, check_landed, check_sent, find_failures, with_defaults
from spark_app.audit.chunk import NOT_STRICT, OTHER_DEFAULTS, OTHER_KEYS, Chunk, Found, is_read_differently
from spark_app.audit.expected import Column, Json
from spark_app.audit.expected_rows import Piece
from spark_app.audit.projected_columns import Projected
from spark_app.audit.values import differing, fits, mark, unequal
from spark_app.audit.verdict import MISPLACED
from spark_app.model.record_schemas import LINEAGE_SCHEMA

OWN = {*LINEAGE_SCHEMA.names, "_schema_guid", "_definition"}  # lineage columns, compared apart from the content

AS_SENT = Projected(frozenset())


@dataclass
class Absent:
    """Records that are not in silver.

    Attributes:
        belongs: record -> the silver table it belongs in.
        misfits: records that have a table whose columns cannot store them.
        failures: of the records that expectations once kept out; some of them were replayed, and are in silver.
    """

    belongs: dict[int, str] = field(default_factory=dict)
    misfits: set[int] = field(default_factory=set)
    failures: Failures = field(default_factory=dict)


def check_silver(chunk: Chunk) -> Absent:
    """Check the chunk's pieces; returns the records that are not in silver."""
    table_at = np.full(chunk.slots.count, -1, np.int64)  # slot -> position in `chunk.silver`, -1 = not in silver
    row_at = np.full(chunk.slots.count, -1, np.int64)
    for number, found in enumerate(chunk.silver):
        table_at[found.slots] = number
        row_at[found.slots] = np.arange(len(found.slots))
        _compare_lineage(chunk, found)
        check_landed(chunk, found)
    checked, absent = np.zeros(chunk.slots.count, bool), Absent()
    for piece in chunk.pieces:
        slots = chunk.slot_of[piece.rows]
        checked[slots] = True
        absent.failures |= find_failures(chunk, piece)
        numbers = table_at[slots]
        for number in np.unique(numbers):
            positions = np.flatnonzero(numbers == number)
            part = piece.at(positions.tolist())
            if number < 0:
                _remember(chunk, part, absent)
            else:
                _check_rows(chunk, chunk.silver[number], row_at[slots[positions]], part)
    _check_unread(chunk, table_at, checked)
    return absent


def _compare_lineage(chunk: Chunk, found: Found) -> None:
    records = chunk.record_at[found.slots]
    known = np.flatnonzero(records >= 0)
    wrong = np.full(len(known), "", object)
    times = found.column("_kafka_timestamp").take(pa.array(known))
    mark(wrong, unequal(chunk.times.take(pa.array(records[known])), times), "_kafka_timestamp")
    mark(wrong, chunk.landed_otherwise(found)[known], "_landed_at differs from bronze")
    chunk.add_altered(found.table.name, found.slots[known], wrong)


def _remember(chunk: Chunk, piece: Piece, absent: Absent) -> None:
    """Note for records that are not in silver to which table they belong, or that its columns cannot store them."""
    for position, (record, name) in enumerate(zip(piece.rows, piece.tables, strict=True)):
        if name is None:
            continue
        table = chunk.snapshot.tables.get(name)
        if table is not None and not _fits(piece, position, table.schema, chunk.snapshot.projected):
            absent.misfits.add(record)
        else:
            absent.belongs[record] = name


def _fits(piece: Piece, position: int, schema: pa.Schema, projected: frozenset[str]) -> bool:
    """Whether the columns can store a record; those that projections make have no part in it."""
    names = [name for name in piece.values if name in schema.names and name.casefold() not in projected]
    return all(fits(piece.values[name][position], schema.field(name).type) for name in names)


def _check_rows(chunk: Chunk, found: Found, rows: np.ndarray, piece: Piece) -> None:
    """Check the rows of one table that have a piece's records; `rows` are in the order of the piece."""
    name, actual, slots = found.table.name, found.rows.take(pa.array(rows)), found.slots[rows]
    belongs = np.array([table or chunk.snapshot.layout.quarantine for table in piece.tables], object)
    for due in sorted(set(belongs) - {name}):
        chunk.add(MISPLACED, name, slots[belongs == due], f"belongs in {due}")
    for number, positions in _by_definition(actual):
        _check_part(
            chunk, found, slots[positions], piece.at(positions.tolist()), actual.take(pa.array(positions)), number
        )


def _by_definition(rows: pa.Table) -> Iterator[tuple[int, np.ndarray]]:
    """(number, positions) of the rows of each definition; 0 = none."""
    numbers = np.zeros(len(rows), np.int64)
    if "_definition" in rows.column_names:
        numbers = rows["_definition"].fill_null(0).to_numpy()
    for number in np.unique(numbers).tolist():
        yield number, np.flatnonzero(numbers == number)


def _check_part(chunk: Chunk, found: Found, slots: np.ndarray, piece: Piece, actual: pa.Table, number: int) -> None:
    """Check the rows of one definition."""
    name = found.table.name
    if chunk.snapshot.is_checked_as_sent(number):
        failed = check_sent(chunk, piece, name, number)
        for why in sorted(set(failed) - {""}):
            chunk.add(MISPLACED, name, slots[failed == why], why)
    wrong = _compare(chunk, piece, actual, number)
    for position in np.flatnonzero(wrong != "").tolist():
        excuse = _excuse(chunk, piece, position, actual.slice(position, 1), wrong[position], number)
        if excuse:
            chunk.verdict.note(excuse)
            wrong[position] = ""
    chunk.add_altered(name, slots, wrong)


def _compare(chunk: Chunk, piece: Piece, actual: pa.Table, number: int) -> np.ndarray:
    """For each row the first column that differs, "" = none."""
    wrong = np.full(len(actual), "", object)
    kinds = {column.name: column.kind for column in piece.columns}
    projected = projected_columns.project(chunk, piece, number, actual) or AS_SENT
    for name in actual.column_names:
        column = actual[name].combine_chunks()
        if name.casefold() in projected.touched:
            projected_columns.compare(chunk, wrong, projected, name, column)
        elif name in piece.values:
            mark(wrong, differing(piece.values[name], kinds[name], column), name)
        elif name == "_wrapper" and piece.rest is not None:
            mark(wrong, differing(piece.rest, None, column), name)
        elif name == "_key":
            _compare_keys(chunk, wrong, piece.rows, column)
        elif name not in OWN:
            mark(wrong, ~np.asarray(column.is_null()), name)
    for name in set(piece.values) - set(actual.column_names):
        if name.casefold() not in projected.touched:
            mark(wrong, np.array([value is not None for value in piece.values[name]], bool), name)
    _compare_schema(wrong, piece, actual)
    return wrong


def _compare_keys(chunk: Chunk, wrong: np.ndarray, records: Sequence[int], column: pa.Array) -> None:
    if column.null_count == len(column) and not chunk.snapshot.settings.decode.framed_keys:
        return
    for position, (record, text) in enumerate(zip(records, column.to_pylist(), strict=True)):
        due = chunk.expected.key_text(chunk.records.key[record], chunk.records.headers[record])
        if text is None and due is not None:
            chunk.verdict.note(OTHER_KEYS)
        elif not _same_text(due, text):
            mark(wrong, np.arange(len(wrong)) == position, "_key")


def _same_text(due: Json | None, text: str | None) -> bool:
    try:
        return text is None if due is None else due == text
    except ValueError:
        return False


def _compare_schema(wrong: np.ndarray, piece: Piece, actual: pa.Table) -> None:
    for name, kind in (("_schema_id", int), ("_schema_guid", str)):
        if name in actual.column_names:
            column = actual[name].combine_chunks()
            due = pa.scalar(piece.key if isinstance(piece.key, kind) else None, column.type)
            mark(wrong, unequal(pa.repeat(due, len(column)), column), name)


def _excuse(chunk: Chunk, piece: Piece, position: int, row: pa.Table, column: str, number: int) -> str:
    """Why a difference in the column is acceptable; "" = it is not."""
    if chunk.snapshot.touched(number):
        other = with_defaults(chunk, piece.at([position]), not chunk.snapshot.settings.decode.defaults)
        if not _compare(chunk, other, row, number)[0]:
            return OTHER_DEFAULTS
        return NOT_STRICT if is_read_differently(chunk, piece, position) else ""
    if column not in piece.values:
        return ""
    message, decode = piece.messages[position], chunk.snapshot.settings.decode
    if _is_row(chunk.expected.columns(type(message), not decode.defaults), message, row):
        return OTHER_DEFAULTS
    return NOT_STRICT if is_read_differently(chunk, piece, position) else ""


def _is_row(columns: Sequence[Column], message: Message, row: pa.Table) -> bool:
    return not any(
        bool(differing([c.read(message)], c.kind, row[c.name].combine_chunks())[0])
        for c in columns
        if c.name in row.column_names
    )


def _check_unread(chunk: Chunk, table_at: np.ndarray, checked: np.ndarray) -> None:
    """Check rows of silver whose records are in no piece, because their frame or payload cannot be decoded."""
    for slot in np.flatnonzero((table_at >= 0) & ~checked & (chunk.record_at >= 0)):
        record, name = int(chunk.record_at[slot]), chunk.silver[table_at[slot]].table.name
        excuse = chunk.excuse_unread(record)
        if excuse:
            chunk.verdict.note(excuse)
        elif chunk.has_value[record]:
            causes = chunk.facts.causes.get(record, frozenset())
            why = f"belongs in {chunk.snapshot.layout.quarantine}: {', '.join(sorted(causes))}"
            chunk.add(MISPLACED, name, np.array([slot]), why)
