"""Checks that a row lands only if it passes the rules of its definition, and that a record which a rule keeps out of
silver fails exactly the rules that its row names."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.audit.chunk import (
    NOT_STRICT,
    OTHER_DEFAULTS,
    OTHER_KEYS,
    Chunk,
    Claim,
    Found,
    claims_of,
    is_read_differently,
)
from spark_app.audit.expectation_sql import columns_of, failing
from spark_app.audit.expected import Json
from spark_app.audit.record_rules import Piece
from spark_app.audit.values import DoesNotFit, held, mark
from spark_app.audit.verdict import ALTERED, MISPLACED
from spark_app.model.causes import Cause

KEEP_OUT = ("drop", "quarantine", "pause")

Rule = dict[str, str]  # name, check, action
Failures = dict[int, tuple[str, list[str]]]  # record -> its silver table, the rules that keep it out


def check_landed(chunk: Chunk, found: Found) -> None:
    """Check that each row of a silver table passes the rules of its definition."""
    if "_definition" not in found.rows.column_names:
        return
    numbers = found.column("_definition")
    for number in numbers.unique().drop_null().to_pylist():
        places = np.flatnonzero(np.asarray(pc.equal(numbers, number).fill_null(False)))
        rules = _rules_of(chunk, number)
        if rules is None:
            chunk.add(ALTERED, found.table.name, found.slots[places], "_definition")
            continue
        checks = failing(found.rows.take(pa.array(places)), [rule["check"] for rule in rules], partial(_type_of, chunk))
        wrong = np.full(len(places), "", object)
        for rule, failed in zip(rules, checks, strict=True):
            mark(wrong, failed, f"fails the expectation {rule['name']} of definition {number}")
        for why in sorted(set(wrong) - {""}):
            chunk.add(MISPLACED, found.table.name, found.slots[places[wrong == why]], why)


def _rules_of(chunk: Chunk, number: int) -> list[Rule] | None:
    """The rules of a definition that keep rows out; None = the lake has no such definition."""
    definition = chunk.snapshot.definitions.get(str(number))
    return definition and [rule for rule in definition["rules"] if rule["action"] in KEEP_OUT]


def _type_of(chunk: Chunk, name: str) -> pa.DataType:
    """The type of a column, by its name in lower case, for rows that lack it: of the first table that has it, else of
    the first message; text if there is none."""
    return chunk.snapshot.types.get(name) or chunk.rules.types.get(name, pa.string())


def find_failures(chunk: Chunk, piece: Piece) -> Failures:
    """The failures of the piece's records that rules once kept out of silver, each by the definition that its row
    names. What the row says is taken for true, and noted, if other settings of the app explain it."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, (record, table) in enumerate(zip(piece.rows, piece.tables, strict=True)):
        claim = chunk.claims.get(record)
        if claim is not None and claim.definition is not None and table is not None:
            groups[table, claim.definition].append(place)
    found: Failures = {}
    for (table, number), places in groups.items():
        part = piece.take(places)
        found |= _fail(chunk, part, table, number, keys=chunk.snapshot.settings.decode.framed_keys)
        unlike = [place for place, record in enumerate(part.rows) if found[record] != _said(chunk.claims[record])]
        if unlike:
            found |= _explained(chunk, part.take(unlike), table, number)
    return found


def _said(claim: Claim) -> tuple[str | None, list[str] | None]:
    return claim.table, claim.rules


def _explained(chunk: Chunk, piece: Piece, table: str, number: int) -> Failures:
    """The failures of those records whose rows are right under other settings; they are noted."""
    decode, found = chunk.snapshot.settings.decode, Failures()
    others = _with_defaults(chunk, piece, not decode.defaults)
    for event, keys, note in (
        (piece, not decode.framed_keys, OTHER_KEYS),
        (others, decode.framed_keys, OTHER_DEFAULTS),
        (others, not decode.framed_keys, OTHER_DEFAULTS),
    ):
        for record, failure in _fail(chunk, event, table, number, keys).items():
            if record not in found and failure == _said(chunk.claims[record]):
                found[record] = failure
                chunk.verdict.note(note)
    for place, record in enumerate(piece.rows):
        claim = chunk.claims[record]
        if record not in found and claim.table == table and is_read_differently(chunk, piece, place):
            found[record] = table, claim.rules or []
            chunk.verdict.note(NOT_STRICT)
    return found


def _with_defaults(chunk: Chunk, piece: Piece, defaults: bool) -> Piece:
    columns = chunk.rules.columns(type(piece.messages[0]), defaults)
    values = {column.name: [column.read(message) for message in piece.messages] for column in columns}
    return replace(piece, columns=columns, values=values)


def _fail(chunk: Chunk, piece: Piece, table: str, number: int, keys: bool) -> Failures:
    """The failures of all records of a piece; `keys`: whether the app decoded their keys."""
    rules = _rules_of(chunk, number) or []
    checks = failing(
        _rows(chunk, piece, table, rules, keys), [rule["check"] for rule in rules], partial(_type_of, chunk)
    )
    return {
        record: (table, [rule["name"] for rule, failed in zip(rules, checks, strict=True) if failed[place]])
        for place, record in enumerate(piece.rows)
    }


def _rows(chunk: Chunk, piece: Piece, table: str, rules: Sequence[Rule], keys: bool) -> pa.Table:
    """The rows that the records would have in the table: a number, and the columns that the rules name."""
    named = frozenset[str]().union(*(columns_of(rule["check"]) for rule in rules))
    known = chunk.snapshot.tables.get(table)
    types = {column.name: column.whole for column in piece.columns}
    fields = piece.values if piece.rest is None else piece.values | {"_wrapper": piece.rest}
    columns: dict[str, pa.Array] = {"row number": pa.array(range(len(piece.rows)))}
    for name, values in fields.items():
        if name.lower() in named:
            in_table = known is not None and name in known.schema.names
            kind = known.schema.field(name).type if in_table else types.get(name)  # type: ignore[union-attr]
            columns[name] = _array(values, kind or _type_of(chunk, name))
    columns |= {name: values for name, values in _lineage(chunk, piece) if name in named}
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
    texts = (chunk.rules.key_text(chunk.records.key[row], chunk.records.headers[row]) for row in rows)
    return pa.array([text and _text(text) for text in texts], pa.string())


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of the type; a value that it cannot hold is NULL."""
    return pa.array([_stored(value, kind) for value in values], kind)


def _stored(value: Any, kind: pa.DataType) -> Any:
    try:
        return _in_arrow(held(value, kind), kind)
    except DoesNotFit:
        return None


def _in_arrow(value: Any, kind: pa.DataType) -> Any:
    """A value of `held` in the form that Arrow takes: JSON as text, entries of maps as tuples."""
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


def check_kept_out(chunk: Chunk, failures: Failures) -> None:
    """Check the rows of records that rules keep out of silver: in quarantine, and in the table of dropped records."""
    layout = chunk.snapshot.layout
    for name, action in ((layout.quarantine, "quarantine"), (layout.dropped, "drop")):
        found = chunk.tables.get(name)
        if found is not None:
            _check_rows(chunk, found, action, failures)


def _check_rows(chunk: Chunk, found: Found, action: str, failures: Failures) -> None:
    count, records = len(found.slots), chunk.record_at[found.slots].tolist()
    causes = found.rows["cause"].to_pylist() if action == "quarantine" else [Cause.EXPECT_FAILED] * count
    for slot, record, claim, cause in zip(found.slots, records, claims_of(found.rows), causes, strict=True):
        if record < 0 or (action == "quarantine" and claim.definition is None):
            continue  # the checks of placement and of causes report such a row
        kind, why = (ALTERED, "cause")
        if cause == Cause.EXPECT_FAILED:
            kind, why = _difference(chunk, record, claim, action, failures)
        if kind:
            chunk.add(kind, found.table.name, np.array([slot]), why)
    if action == "drop":
        _check_schemas(chunk, found, records)


def _difference(chunk: Chunk, record: int, claim: Claim, action: str, failures: Failures) -> tuple[str, str]:
    """(kind of the discrepancy, reason); two empty texts = the record proves what the row says."""
    known = None if claim.definition is None else _rules_of(chunk, claim.definition)
    if known is None:
        return ALTERED, "definition"
    if record not in failures:
        return _explain_unread(chunk, record)
    table, rules = failures[record]
    if not rules:
        return MISPLACED, f"passes the rules of definition {claim.definition}, and belongs in {table}"
    if claim.table != table:
        return ALTERED, "table"
    if claim.rules != rules:
        return ALTERED, f"rules: it fails {', '.join(rules)}"
    due = _action_of(known, rules)
    return ("", "") if due == action else (MISPLACED, f"the action is {due}")


def _explain_unread(chunk: Chunk, record: int) -> tuple[str, str]:
    """As `_difference`, for a record whose row the audit does not know."""
    excuse = chunk.excuse_unread(record)
    chunk.verdict.note(excuse, bool(excuse))
    causes = ", ".join(sorted(chunk.places.causes.get(record, frozenset())))
    return ("", "") if excuse else (ALTERED, f"no rule was checked: {causes or 'the record has no table'}")


def _action_of(known: Sequence[Rule], failed: Sequence[str]) -> str:
    """What the failed rules make of a row."""
    actions = {rule["action"] for rule in known if rule["name"] in failed}
    return "quarantine" if "quarantine" in actions else "drop"


def _check_schemas(chunk: Chunk, found: Found, records: Sequence[int]) -> None:
    """Check the schema ids of dropped rows. A bare record may have had another one, as the settings say it."""
    places, wrong = chunk.places, np.zeros(len(records), bool)
    for row, (record, schema_id) in enumerate(zip(records, found.rows["schema_id"].to_pylist(), strict=True)):
        key = places.keys[record] if record >= 0 else None
        wrong[row] = record >= 0 and not places.bare[record] and schema_id != (key if isinstance(key, int) else None)
    chunk.add(ALTERED, found.table.name, found.slots[wrong], "schema_id")
