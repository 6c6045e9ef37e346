"""The schemas that the lake knows, and all of one: findings, decisions, its text and what is new in it."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.catalog import OF_CHANGE, read_schema_key
from spark_app.model.causes import Cause
from spark_app.model.errors import ContractError
from spark_app.model.schema_changes import Comparison
from spark_app.model.text import quoted
from spark_app.protobuf.changes.declarations import file_lines, other_names
from spark_app.protobuf.schemas.ledger import Entry, Ledger
from spark_app.protobuf.schemas.ledger_text import both_versions, differing, subjects_of
from spark_app.settings.models import Settings

MOST = 3000  # schemas that are listed, besides those that a person decides about
MOST_MESSAGES = 5  # names of a schema
MOST_LINES = 2000  # of a text, and of a difference
MOST_COLUMNS = 500


def known_schemas(lake: Lake, settings: Settings) -> dict[str, Any]:
    """`schemas`: the newest ones as of `_described`; `more` of them are left out, and `unknown` ids are not in the
    registry. `kept_out`: schema -> records that its change keeps out; None = nobody knows."""
    ledger = Ledger(lake)
    known = [entry for entry in ledger.entries.values() if entry.cause != Cause.SCHEMA_UNKNOWN]
    newest = [known[number] for number in sorted(range(len(known)), key=lambda n: (-known[n].met_at, -n))]
    shown = [entry for number, entry in enumerate(newest) if number < MOST or entry.is_stopped]
    stopped = [entry for entry in shown if entry.is_stopped]
    return {
        "schemas": [_described(ledger, entry) for entry in shown],
        "more": len(known) - len(shown),
        "unknown": len(ledger.entries) - len(known),
        "kept_out": _kept_out(lake, settings) if stopped else {},
    }


def _described(ledger: Ledger, entry: Entry) -> dict[str, Any]:
    compared = ledger.comparison_of(entry)
    findings = compared.findings if compared else ()
    messages: list[str] = []
    with contextlib.suppress(ContractError):
        messages = ledger.message_names(entry.key)
    return {
        "schema": str(entry.key),
        "state": state_of(entry),
        "version": entry.version,
        "subjects": subjects_of(entry, compared),
        "messages": messages[:MOST_MESSAGES],
        "more_messages": max(0, len(messages) - MOST_MESSAGES),
        "warnings": sum(change.severity == "warning" for change in findings),
        "infos": sum(change.severity == "info" for change in findings),
        "met_at": entry.met_at,
        "why": entry.detail,
    }


def _kept_out(lake: Lake, settings: Settings) -> dict[str, int] | None:
    """Schema -> records that wait in the table of deferred records, or are open in quarantine, because of its change;
    None if a table cannot be read."""
    from spark_app.page.views.quarantine.jobs import OpenRows

    try:
        counts = Counter(_waiting(lake, settings.layout.deferred))
        rows = OpenRows(lake, settings)
        if rows.exist:
            what = f"coalesce({rows.column('schema_guid')}, q.schema_id::VARCHAR), count(*)"
            counts.update(dict(rows.select(what, "WHERE q.cause = ? GROUP BY 1", Cause.SCHEMA_CHANGE.value)))
    except Exception:  # of Delta, DuckDB or the disk; the list is there without the counts
        return None
    return dict(counts)


def _waiting(lake: Lake, deferred: str) -> dict[str, int]:
    """Schema -> records that wait for a decision about it."""
    from spark_app.page.queries.locked_tables import connect, open_tables

    if not lake.has_table(deferred):
        return {}
    with connect() as con:
        open_tables(con, lake, [deferred])
        sql = f"SELECT waits_for, count(*) FROM {quoted(deferred)} WHERE starts_with(waits_for, ?) GROUP BY 1"
        found = con.execute(sql, [OF_CHANGE]).fetchall()
    return {key.removeprefix(OF_CHANGE): count for key, count in found}


def one_schema(lake: Lake, settings: Settings, schema: str) -> dict[str, Any]:
    """
    Returns:
        {"missing": True} if the lake does not know the schema. Else its values, where `findings` have a `severity` and
        are `said`, `difference` has parts of (mark, old line, new line) as of `ledger_text.differing`, `lines` are
        those of the .proto file, and `columns` are (message, field, column) where the last two differ. `damaged` is
        why there is no text.
    """
    ledger = Ledger(lake)
    entry = ledger.entries.get(read_schema_key(schema))
    if entry is None:
        return {"missing": True}
    compared = ledger.comparison_of(entry)
    found = {
        "schema": str(entry.key),
        "state": state_of(entry),
        "version": entry.version,
        "subjects": subjects_of(entry, compared),
        "met_at": entry.met_at,
        "cause": entry.cause,
        "why": entry.detail,
        "stopped_by": list(entry.stopped_by),
        "accepted": entry.accepted,
        "before": compared.before_version if compared else None,
        "findings": [{"severity": one.severity, "said": one.said} for one in (compared.findings if compared else ())],
        "left_out": compared.left_out if compared else 0,
        "is_compared": compared is not None,
    }
    try:
        return found | (_text(ledger, entry, compared) if entry.digest else {})
    except ContractError as error:
        return found | {"damaged": str(error)}


def state_of(entry: Entry) -> str:
    """The fate of the records of a schema, in one word."""
    if entry.is_stopped:
        return "paused" if entry.is_paused else "quarantined"
    return entry.outcome


def _text(ledger: Ledger, entry: Entry, compared: Comparison | None) -> dict[str, Any]:
    registered = ledger.descriptor_set(entry.digest)
    parts: list[list[tuple[str, str, str]]] = []
    if compared is not None and compared.before:
        parts = differing(*both_versions(ledger, entry, compared))
    names = other_names(registered, ledger.decoded_set(entry))
    columns = [(message, field, column) for (message, _), (field, column) in names.items()]
    lines = file_lines(registered)
    return {
        "messages": ledger.message_names(entry.key),
        "difference": _first(parts),
        "lines": lines[:MOST_LINES],
        "more_lines": max(0, len(lines) - MOST_LINES),
        "columns": columns[:MOST_COLUMNS],
    }


def _first(parts: list[list[tuple[str, str, str]]]) -> list[list[tuple[str, str, str]]]:
    """The parts of the first `MOST_LINES` lines."""
    found, left = [], MOST_LINES
    for part in parts:
        if left <= 0:
            break
        found.append(part[:left])
        left -= len(part)
    return found
