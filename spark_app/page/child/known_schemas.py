"""The schemas that the lake knows, the newest first, and how many records wait for a decision about one."""

from __future__ import annotations

import contextlib
from typing import Any

from spark_app.model.catalog import OF_CHANGE
from spark_app.model.causes import Cause
from spark_app.model.errors import ContractError
from spark_app.page.child.one_schema import state_of
from spark_app.schemas.ledger import Ledger
from spark_app.schemas.ledger_entry import Entry
from spark_app.settings.models import Settings
from spark_app.storage.lake import Lake

MOST = 3000  # schemas that are listed, besides those that a person decides about
MOST_MESSAGES = 5  # names of a schema
# Records of quarantine that no replay has placed.
OPEN = """anti join {} r on q.topic = r.topic and q.topic_id is not distinct from r.topic_id
    and q.partition = r.partition and q."offset" = r."offset"
"""


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
        "subjects": dict(entry.subjects),
        "messages": messages[:MOST_MESSAGES],
        "more_messages": max(0, len(messages) - MOST_MESSAGES),
        "warnings": sum(finding.severity == "warning" for finding in findings),
        "infos": sum(finding.severity == "info" for finding in findings),
        "met_at": entry.met_at,
        "why": entry.detail,
        "stopped_by": list(entry.stopped_by),
        "accepted": entry.accepted,
    }


def _held(lake: Lake, settings: Settings) -> dict[str, int] | None:
    """Schema -> records that wait in the table of deferred records, or are open in quarantine, because of its change;
    None if a table cannot be read."""
    from spark_app.queries.locked_tables import connect, open_tables  # half a second, and seldom needed

    layout = settings.tables.layout
    names = [name for name in (layout.deferred, layout.quarantine, layout.resolved) if lake.has_table(name)]
    con = connect()
    try:
        open_tables(con, lake, names)
        rows: list[tuple[str, int]] = []
        if layout.deferred in names:
            waiting = f"select waits_for, count(*) from {layout.deferred} where starts_with(waits_for, ?) group by 1"
            found = con.execute(waiting, [OF_CHANGE]).fetchall()
            rows += [(key.removeprefix(OF_CHANGE), count) for key, count in found]
        if layout.quarantine in names:
            guid = "q.schema_guid" if "schema_guid" in con.table(layout.quarantine).columns else "null"
            refused = f"select coalesce({guid}, q.schema_id::varchar), count(*) from {layout.quarantine} q "
            refused += OPEN.format(layout.resolved) if layout.resolved in names else ""
            rows += con.execute(f"{refused} where q.cause = ? group by 1", [Cause.SCHEMA_CHANGE.value]).fetchall()
    except Exception:  # of Delta, DuckDB or the disk; the list is there without the counts
        return None
    finally:
        con.close()
    held: dict[str, int] = {}
    for key, count in rows:
        held[key] = held.get(key, 0) + count
    return held
