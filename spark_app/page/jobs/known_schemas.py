"""The schemas that the lake knows, the newest first, and how many records wait for a decision about one."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.catalog import OF_CHANGE
from spark_app.model.causes import Cause
from spark_app.model.errors import ContractError
from spark_app.page.jobs.one_schema import state_of
from spark_app.page.queries.quoting import quoted
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.ledger_entry import Entry
from spark_app.protobuf.schemas.ledger_text import subjects_of
from spark_app.settings.models import Settings

MOST = 3000  # schemas that are listed, besides those that a person decides about
MOST_MESSAGES = 5  # names of a schema


def answer(lake: Lake, settings: Settings) -> dict[str, Any]:
    """`schemas`: the newest ones as `_described` says; `more` of them are left out, and `unknown` ids are not in the
    registry. `held`: schema -> records that its change keeps out; None = nobody knows."""
    ledger = Ledger(lake)
    known = [entry for entry in ledger.entries.values() if entry.cause != Cause.SCHEMA_UNKNOWN]
    newest = [known[place] for place in sorted(range(len(known)), key=lambda n: (-known[n].met_at, -n))]
    shown = [entry for place, entry in enumerate(newest) if place < MOST or entry.is_stopped]
    stopped = [entry for entry in shown if entry.is_stopped]
    return {
        "schemas": [_described(ledger, entry) for entry in shown],
        "more": len(known) - len(shown),
        "unknown": len(ledger.entries) - len(known),
        "held": _held(lake, settings) if stopped else {},
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
        "warnings": sum(finding.severity == "warning" for finding in findings),
        "infos": sum(finding.severity == "info" for finding in findings),
        "met_at": entry.met_at,
        "why": entry.detail,
    }


def _held(lake: Lake, settings: Settings) -> dict[str, int] | None:
    """Schema -> records that wait in the table of deferred records, or are open in quarantine, because of its change;
    None if a table cannot be read."""
    from spark_app.page.jobs.open_rows import OpenRows  # half a second, and seldom needed

    try:
        held = Counter(_waiting(lake, settings.tables.layout.deferred))
        rows = OpenRows(lake, settings)
        if rows.exist:
            what = f"coalesce({rows.column('schema_guid')}, q.schema_id::VARCHAR), count(*)"
            held.update(dict(rows.select(what, "WHERE q.cause = ? GROUP BY 1", Cause.SCHEMA_CHANGE.value)))
    except Exception:  # of Delta, DuckDB or the disk; the list is there without the counts
        return None
    return dict(held)


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
