"""Checks silver: the content of each row, and that it is in the right table."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import Message

from spark_app.audit.check_expectations import Failures, check_landed, check_sent, find_failures, with_defaults
from spark_app.audit.chunk import NOT_STRICT, OTHER_DEFAULTS, OTHER_KEYS, Chunk, Found, is_read_differently
from spark_app.audit.expected import Column, Json, plain
from spark_app.audit.expected_rows import Piece
from spark_app.audit.sent_rows import columns_of, sent_rows, with_columns
from spark_app.audit.values import differing, fits, mark, unequal
from spark_app.audit.verdict import MISPLACED
from spark_app.lake.files.hmac_key import fingerprint_of, read_key
from spark_app.lake.files.local import open_storage
from spark_app.lake.files.reference_files import KEY, digest_of, is_copy_of, key_of
from spark_app.model.address import StorageAddress
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.tables.sql.expressions import NoType, calls_hmac, evaluate

OWN = {*LINEAGE_SCHEMA.names, "_schema_guid", "_definition"}  # lineage columns, compared apart from the content

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
    projected = project(chunk, piece, number, actual) or AS_SENT
    for name in actual.column_names:
        column = actual[name].combine_chunks()
        if name.casefold() in projected.touched:
            compare(chunk, wrong, projected, name, column)
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
