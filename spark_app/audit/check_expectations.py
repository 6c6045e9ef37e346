"""Checks that a row lands only if it passes the rules of its definition, and that a record which a rule keeps out of
silver fails exactly the rules that its row names."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.audit.chunk import Chunk, Found
from spark_app.audit.expectation_sql import columns_of, failing
from spark_app.audit.expected import Json
from spark_app.audit.record_rules import Piece
from spark_app.audit.values import DoesNotFit, carried_scalar
from spark_app.audit.verdict import ALTERED, MISPLACED
from spark_app.model.record_schemas import LINEAGE_SCHEMA

KEEP_OUT = ("drop", "quarantine")
REPLAYED = "records were kept out by rules and replayed later, so the rules were not checked again"

Rule = dict[str, str]  # name, check, action
Failures = dict[int, tuple[str, list[str]]]  # record -> its silver table, the rules that keep it out


def check_landed(chunk: Chunk, found: Found) -> None:
    """Check that each row of a silver table passes the rules of its definition."""
    if "_definition" not in found.rows.column_names:
        return
    numbers = found.column("_definition")
    for number in filter(None, numbers.unique().to_pylist()):
        places = np.flatnonzero(np.asarray(pc.equal(numbers, number).fill_null(False)))
        rules = _rules_of(chunk, number)
        if rules is None:
            chunk.add(ALTERED, found.table.name, found.slots[places], "_definition")
            continue
        checks = failing(found.rows.take(pa.array(places)), [rule["check"] for rule in rules], _types(chunk))
        for rule, failed in zip(rules, checks, strict=True):
            why = f"fails the expectation {rule['name']} of definition {number}"
            chunk.add(MISPLACED, found.table.name, found.slots[places[failed]], why)


def _rules_of(chunk: Chunk, number: int) -> list[Rule] | None:
    """The rules of a definition that keep rows out; None = the lake has no such definition."""
    definition = chunk.snapshot.definitions.get(str(number))
    return definition and [rule for rule in definition["rules"] if rule["action"] in KEEP_OUT]


def _types(chunk: Chunk) -> dict[str, pa.DataType]:
    """The types of columns by name in lower case; the first table that has a column counts."""
    tables = [LINEAGE_SCHEMA, *(table.schema for table in chunk.snapshot.silver().values())]
    return {field.name.lower(): field.type for schema in reversed(tables) for field in schema}


def find_failures(chunk: Chunk, piece: Piece) -> Failures:
    """The failures of the piece's records that are kept out of silver, each by the definition that its row names."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, (record, table) in enumerate(zip(piece.rows, piece.tables, strict=True)):
        number = chunk.definition_of.get(record)
        if number is not None and table is not None:
            groups[table, number].append(place)
    found: Failures = {}
    for (table, number), places in groups.items():
        rules, part = _rules_of(chunk, number) or [], piece.take(places)
        checks = failing(_rows(chunk, part, table, rules), [rule["check"] for rule in rules], _types(chunk))
        for place, record in enumerate(part.rows):
            names = [rule["name"] for rule, failed in zip(rules, checks, strict=True) if failed[place]]
            found[record] = table, names
    return found


def _rows(chunk: Chunk, piece: Piece, table: str, rules: Sequence[Rule]) -> pa.Table:
    """The rows that the records would have in the table: a number, and the columns that the rules name."""
    named = frozenset[str]().union(*(columns_of(rule["check"]) for rule in rules))
    known = chunk.snapshot.tables.get(table)
    kinds = {column.name: column.kind for column in piece.columns}
    columns: dict[str, pa.Array] = {"row number": pa.array(range(len(piece.rows)))}
    for name, values in _values(chunk, piece):
        if name.lower() in named:
            in_table = known is not None and name in known.schema.names
            kind = known.schema.field(name).type if in_table else kinds.get(name)  # type: ignore[union-attr]
            columns[name] = _array(values, kind)
    return pa.table(columns)


def _values(chunk: Chunk, piece: Piece) -> Iterator[tuple[str, Sequence[Any]]]:
    """(name, values) of each column of the records' rows."""
    count, rows = len(piece.rows), piece.rows
    slots = chunk.slot_of[rows]
    yield from piece.values.items()
    if piece.rest is not None:
        yield "_wrapper", piece.rest
    yield "_topic", [chunk.slots.spans[0].topic] * count
    yield "_topic_id", [chunk.slots.topic_id] * count
    yield "_partition", pa.array([chunk.records.partition[row] for row in rows], pa.int32())
    yield "_offset", pa.array([chunk.records.offset[row] for row in rows], pa.int64())
    yield "_kafka_timestamp", chunk.times.take(pa.array(rows))
    yield "_schema_id", pa.array([piece.key if isinstance(piece.key, int) else None] * count, pa.int64())
    yield "_schema_guid", pa.array([piece.key if isinstance(piece.key, str) else None] * count, pa.string())
    yield "_landed_at", chunk.landed_at(slots)
    yield "_key", [chunk.rules.key_text(chunk.records.key[row], chunk.records.headers[row]) for row in rows]


def _array(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.array([_plain(value, kind) for value in values], kind)


def _plain(value: Any, kind: pa.DataType | None) -> Any:
    """The value as Arrow takes it for a column of this type; None = as the value itself says."""
    if isinstance(value, Json):
        return json.dumps(value.value)
    if value is None or kind is None or pa.types.is_nested(kind):
        return _pairs(value)
    try:
        return carried_scalar(value, kind)
    except DoesNotFit:
        return None


def _pairs(value: Any) -> Any:
    """Nested values; the entries of a map are lists of two."""
    if isinstance(value, dict):
        return {name: _pairs(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_pairs(item) for item in value]
    return json.dumps(value.value) if isinstance(value, Json) else value


def check_kept_out(chunk: Chunk, failures: Failures) -> None:
    """Check the rows of records that rules keep out of silver: in quarantine, and in the table of dropped records."""
    layout = chunk.snapshot.layout
    for name, action in ((layout.quarantine, "quarantine"), (layout.dropped, "drop")):
        found = chunk.tables.get(name)
        if found is not None and "rules" in found.rows.column_names:
            _check_rows(chunk, found, action, failures)


def _check_rows(chunk: Chunk, found: Found, action: str, failures: Failures) -> None:
    names = ("table", "rules", "definition")
    columns = (found.rows[name].to_pylist() for name in names)
    for slot, table, rules, number in zip(found.slots.tolist(), *columns, strict=True):
        record = int(chunk.record_at[slot])
        if number is None or record < 0:
            continue
        known = _rules_of(chunk, number)
        if known is None:
            chunk.add(ALTERED, found.table.name, np.array([slot]), "definition")
        elif record not in failures:
            _explain_absence(chunk, found, slot)
        elif failures[record] != (table, rules):
            said = f"fails {failures[record][1]} of {failures[record][0]}"
            chunk.add(MISPLACED if not failures[record][1] else ALTERED, found.table.name, np.array([slot]), said)
        elif action != _action_of(known, rules):
            chunk.add(MISPLACED, found.table.name, np.array([slot]), f"the action is {_action_of(known, rules)}")


def _explain_absence(chunk: Chunk, found: Found, slot: int) -> None:
    """A record that is in silver too was replayed; any other must have failures."""
    if any(slot in one.slots for one in chunk.silver):
        chunk.verdict.note(REPLAYED)
    else:
        chunk.add(ALTERED, found.table.name, np.array([slot]), "rules")


def _action_of(known: Sequence[Rule], failed: Sequence[str]) -> str:
    """What the failed rules make of a row."""
    actions = {rule["action"] for rule in known if rule["name"] in failed}
    return "quarantine" if "quarantine" in actions else "drop"
