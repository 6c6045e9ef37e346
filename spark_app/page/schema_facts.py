"""What the views of schemas say: rows of the list, states, and what each decision does. No drawing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_app.model.schema_findings import Policy
from spark_app.model.text import one_line
from spark_app.page.metrics.reading import Reading
from spark_app.page.moments import utc
from spark_app.page.said import amount

# state -> icon, a word of `style.COLOURS`, what becomes of the records
STATES = {
    "decodable": ("check_circle", "good", "Its records are decoded."),
    "waiting": ("hourglass_empty", "warn", "Its records wait until the registry gives the schema."),
    "refused": ("block", "bad", "It cannot be used. Its records go to quarantine."),
    "paused": ("pause_circle", "bad", "Its records wait until you decide about its changes."),
    "quarantined": ("front_hand", "bad", "Its records go to quarantine until you decide about its changes."),
}
UNDECIDED = ("paused", "quarantined")
# What `accept-schema` does, by policy: docs/decoding.md, "Changes of a schema".
POLICIES: Mapping[Policy, str] = {
    "new_column": "A field that has changed its name or type fills a column of its own: that of its name, or x_2 if x "
    "has other values. Values of different fields and types never share a column.",
    "alias": "A renamed field goes on in its column, which keeps its first name. For any other change it does the same "
    "as new_column.",
    "warn": "Each field fills the column of its name. A value of another type is converted, or its row goes to "
    "quarantine. The change counts as a warning.",
    "accept": "It does the same as warn, but the change is no warning.",
    "quarantine": "The records of the schema go to quarantine as schema_change. You can decide once more.",
}
FINAL = (
    "The decision is final: no setting and no later decision changes which columns the fields have. Only after "
    "quarantine you can decide once more."
)


def rows_by_schema(reading: Reading) -> dict[str, dict[str, int]]:
    """Schema -> table, by its routing name -> rows, as far as the status knows them."""
    found: dict[str, dict[str, int]] = {}
    for table in reading.objects("tables"):
        for schema, rows in reading.counts("tables", table, "schema_ids").items():
            found.setdefault(schema, {})[table] = int(rows)
    return found


def list_row(schema: Mapping[str, Any], rows: Mapping[str, int]) -> dict[str, Any]:
    """A row of the list of schemas; `schema` is one of the job `schemas`."""
    icon, colour, does = STATES[schema["state"]]
    more = f" and {amount(schema['more_messages'])} more" if schema["more_messages"] else ""
    return {
        "schema": schema["schema"],
        "subjects": subjects_text(schema),
        "state": schema["state"],
        "icon": icon,
        "colour": f"is-{colour}",
        "does": does,
        "messages": one_line(", ".join(schema["messages"]) + more),
        "findings": findings_text(schema["warnings"], schema["infos"]),
        "warnings": schema["warnings"],
        "rows": sum(rows.values()),
        "met": utc(schema["met_at"]),
    }


def subjects_text(schema: Mapping[str, Any]) -> str:
    """The versions of a schema in its subjects."""
    named = ", ".join(f"v{version} of {subject}" for subject, version in schema["subjects"].items())
    return one_line(named) or (f"v{schema['version']}" if schema["version"] is not None else "-")


def findings_text(warnings: int, infos: int) -> str:
    said = [f"{warnings} {'warning' if warnings == 1 else 'warnings'}"] if warnings else []
    return ", ".join([*said, *([f"{infos} info"] if infos else [])]) or "-"


def held_text(state: str, records: int | None) -> str:
    """How many records the change of a schema keeps out."""
    where = "wait" if state == "paused" else "are in quarantine"
    return f"It is not known how many records {where}." if records is None else f"{amount(records)} records {where}."


def difference_rows(parts: list[list[list[str]]]) -> list[dict[str, Any]]:
    """Rows of a table of two columns, where "-" marks lines that are gone and "+" new ones; an empty row stands between
    two parts. `parts` is the `difference` of the job `schema`."""
    found: list[dict[str, Any]] = []
    for place, part in enumerate(parts):
        if place:
            found.append({"number": len(found), "old": "…", "new": "…", "is_old": False, "is_new": False})
        for mark, old, new in part:
            is_old, is_new = mark in "|<", mark in "|>"
            left = f"{'-' if is_old else ' '} {one_line(old)}"
            right = f"{'+' if is_new else ' '} {one_line(new)}"
            found.append(
                {
                    "number": len(found),
                    "old": left if mark != ">" else "",
                    "new": right if mark != "<" else "",
                    "is_old": is_old,
                    "is_new": is_new,
                }
            )
    return found
