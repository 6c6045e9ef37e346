"""Checks that a row lands only if it passes the expectations of its definition, and that a record which an expectation
keeps out of silver fails exactly the expectations that its row names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

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
from spark_app.audit.expected_rows import Piece
from spark_app.audit.sent_rows import columns_of, failing, sent_rows
from spark_app.audit.values import mark
from spark_app.audit.verdict import ALTERED, MISPLACED
from spark_app.model.causes import Cause

KEEP_OUT = ("drop", "quarantine", "pause")

Expectation = dict[str, str]  # name, check, action
Failures = dict[int, tuple[str, list[str]]]  # record -> its silver table, the expectations that keep it out


def check_landed(chunk: Chunk, found: Found) -> None:
    """Check that each row of a silver table passes the expectations of its definition, if its columns say so;
    `check_sent` checks the others."""
    if "_definition" not in found.rows.column_names:
        return
    numbers = found.column("_definition")
    for number in numbers.unique().drop_null().to_pylist():
        positions = np.flatnonzero(np.asarray(pc.equal(numbers, number).fill_null(False)))
        expectations = _expectations_of(chunk, number)
        if chunk.snapshot.is_checked_as_sent(number):
            continue
        if expectations is None:
            chunk.add(ALTERED, found.table.name, found.slots[positions], "_definition")
            continue
        checks = failing(
            chunk, found.rows.take(pa.array(positions)), [expectation["check"] for expectation in expectations]
        )
        wrong = np.full(len(positions), "", object)
        for expectation, failed in zip(expectations, checks, strict=True):
            mark(wrong, failed, f"fails the expectation {expectation['name']} of definition {number}")
        for why in sorted(set(wrong) - {""}):
            chunk.add(MISPLACED, found.table.name, found.slots[positions[wrong == why]], why)


def _expectations_of(chunk: Chunk, number: int) -> list[Expectation] | None:
    """The expectations of a definition that keep rows out; None = the lake has no such definition."""
    definition = chunk.snapshot.definitions.get(str(number))
    return definition and [expectation for expectation in definition["rules"] if expectation["action"] in KEEP_OUT]


def check_sent(chunk: Chunk, piece: Piece, table: str, number: int) -> np.ndarray:
    """For each record of rows that do not show it themselves: the expectation that it fails as it was sent, "" = none,
    or one that other settings of the app explain, which is noted."""
    keys = chunk.snapshot.settings.decode.framed_keys
    failures = [expectations for _, expectations in _fail(chunk, piece, table, number, keys).values()]
    wrong = np.array(
        [
            f"fails the expectation {expectations[0]} of definition {number}" if expectations else ""
            for expectations in failures
        ]
    )
    wrong = wrong.astype(object)
    for position in np.flatnonzero(wrong != "").tolist():
        own = piece.at([position])
        others = with_defaults(chunk, own, not chunk.snapshot.settings.decode.defaults)
        passes = not any(expectations for _, expectations in _fail(chunk, others, table, number, keys).values())
        excuse = OTHER_DEFAULTS if passes else NOT_STRICT if is_read_differently(chunk, piece, position) else ""
        if excuse:
            chunk.verdict.note(excuse)
            wrong[position] = ""
    return wrong


def find_failures(chunk: Chunk, piece: Piece) -> Failures:
    """The failures of the piece's records that expectations once kept out of silver, each by the definition that its
    row names. The claim of the row counts, and is noted, if other settings of the app explain it."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for position, (record, table) in enumerate(zip(piece.rows, piece.tables, strict=True)):
        claim = chunk.claims.get(record)
        if claim is not None and claim.definition is not None and table is not None:
            groups[table, claim.definition].append(position)
    found: Failures = {}
    for (table, number), positions in groups.items():
        part = piece.at(positions)
        found |= _fail(chunk, part, table, number, keys=chunk.snapshot.settings.decode.framed_keys)
        unlike = [
            position for position, record in enumerate(part.rows) if found[record] != _claimed(chunk.claims[record])
        ]
        if unlike:
            found |= _explained(chunk, part.at(unlike), table, number)
    return found


def _claimed(claim: Claim) -> tuple[str | None, list[str] | None]:
    return claim.table, claim.rules


def _explained(chunk: Chunk, piece: Piece, table: str, number: int) -> Failures:
    """The failures of those records whose rows are right under other settings; they are noted."""
    decode, found = chunk.snapshot.settings.decode, Failures()
    others = with_defaults(chunk, piece, not decode.defaults)
    for event, keys, note in (
        (piece, not decode.framed_keys, OTHER_KEYS),
        (others, decode.framed_keys, OTHER_DEFAULTS),
        (others, not decode.framed_keys, OTHER_DEFAULTS),
    ):
        for record, failure in _fail(chunk, event, table, number, keys).items():
            if record not in found and failure == _claimed(chunk.claims[record]):
                found[record] = failure
                chunk.verdict.note(note)
    for position, record in enumerate(piece.rows):
        claim = chunk.claims[record]
        if record not in found and claim.table == table and is_read_differently(chunk, piece, position):
            found[record] = table, claim.rules or []
            chunk.verdict.note(NOT_STRICT)
    return found


def with_defaults(chunk: Chunk, piece: Piece, defaults: bool) -> Piece:
    """The piece as it is read under the other setting of `decode.defaults`."""
    columns = chunk.expected.columns(type(piece.messages[0]), defaults)
    values = {column.name: [column.read(message) for message in piece.messages] for column in columns}
    return replace(piece, columns=columns, values=values)


def _fail(chunk: Chunk, piece: Piece, table: str, number: int, keys: bool) -> Failures:
    """The failures of all records of a piece; `keys`: whether the app decoded their keys."""
    expectations = _expectations_of(chunk, number) or []
    checks = [expectation["check"] for expectation in expectations]
    known = chunk.snapshot.tables.get(table)
    sent = sent_rows(chunk, piece, None if known is None else known.schema, columns_of(checks), number, keys)
    failed_by = failing(chunk, sent, checks)
    return {
        record: (
            table,
            [
                expectation["name"]
                for expectation, failed in zip(expectations, failed_by, strict=True)
                if failed[position]
            ],
        )
        for position, record in enumerate(piece.rows)
    }


def check_kept_out(chunk: Chunk, failures: Failures) -> None:
    """Check the rows of records that expectations keep out of silver: in quarantine, and among the dropped records."""
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
            continue  # the checks of routes and of causes report such a row
        kind, why = (ALTERED, "cause")
        if cause == Cause.EXPECT_FAILED:
            kind, why = _difference(chunk, record, claim, action, failures)
        if kind:
            chunk.add(kind, found.table.name, np.array([slot]), why)
    if action == "drop":
        _check_schemas(chunk, found, records)


def _difference(chunk: Chunk, record: int, claim: Claim, action: str, failures: Failures) -> tuple[str, str]:
    """(kind of the discrepancy, reason); two empty texts = the record proves what the row says."""
    known = None if claim.definition is None else _expectations_of(chunk, claim.definition)
    if known is None:
        return ALTERED, "definition"
    if record not in failures:
        return _explain_unread(chunk, record)
    table, expectations = failures[record]
    if not expectations:
        return MISPLACED, f"passes the expectations of definition {claim.definition}, and belongs in {table}"
    if claim.table != table:
        return ALTERED, "table"
    if claim.rules != expectations:
        return ALTERED, f"rules: it fails {', '.join(expectations)}"
    due = _action_of(known, expectations)
    return ("", "") if due == action else (MISPLACED, f"the action is {due}")


def _explain_unread(chunk: Chunk, record: int) -> tuple[str, str]:
    """As `_difference`, for a record whose row the audit does not know."""
    excuse = chunk.excuse_unread(record)
    chunk.verdict.note(excuse, bool(excuse))
    causes = ", ".join(sorted(chunk.facts.causes.get(record, frozenset())))
    return ("", "") if excuse else (ALTERED, f"no expectation was checked: {causes or 'the record has no table'}")


def _action_of(known: Sequence[Expectation], failed: Sequence[str]) -> str:
    """The action that the failed expectations apply to a row."""
    actions = {expectation["action"] for expectation in known if expectation["name"] in failed}
    return "quarantine" if "quarantine" in actions else "drop"


def _check_schemas(chunk: Chunk, found: Found, records: Sequence[int]) -> None:
    """Check the schema ids of dropped rows. A bare record may have had another one, as the settings say it."""
    facts, wrong = chunk.facts, np.zeros(len(records), bool)
    for row, (record, schema_id) in enumerate(zip(records, found.rows["schema_id"].to_pylist(), strict=True)):
        key = facts.keys[record] if record >= 0 else None
        wrong[row] = record >= 0 and not facts.bare[record] and schema_id != (key if isinstance(key, int) else None)
    chunk.add(ALTERED, found.table.name, found.slots[wrong], "schema_id")
