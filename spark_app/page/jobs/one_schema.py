"""All that the lake knows of one schema: findings, decisions, the difference to the version before, its text."""

from __future__ import annotations

from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.catalog import read_schema_key
from spark_app.model.errors import ContractError
from spark_app.model.schema_findings import Comparison
from spark_app.protobuf.changes.declarations import file_lines
from spark_app.protobuf.changes.field_names import other_names
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.ledger_entry import Entry
from spark_app.protobuf.schemas.ledger_text import both_versions, differing, subjects_of
from spark_app.settings.models import Settings

MOST_LINES = 2000  # of a text, and of a difference
MOST_COLUMNS = 500


def answer(lake: Lake, settings: Settings, schema: str) -> dict[str, Any]:
    """
    Returns:
        {"missing": True} if the lake does not know the schema. Else its values, where `findings` have a `severity` and
        are `said`, `difference` has parts of (mark, old line, new line) as `ledger_text.differing` says, `lines` are
        those of the .proto file, and `columns` are (message, field, column) where the last two differ. `damaged` says
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
    """What becomes of the records of a schema, in one word."""
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
