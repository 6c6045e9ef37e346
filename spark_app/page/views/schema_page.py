"""One schema: what was found and decided, the difference to the version before it, and its text."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from spark_app.model.text import one_line
from spark_app.page.context import PageContext
from spark_app.page.moments import utc
from spark_app.page.rereading import Rereading
from spark_app.page.said import amount
from spark_app.page.schema_facts import POLICIES, STATES, UNDECIDED, difference_rows, rows_by_schema, subjects_text
from spark_app.page.views.schema_decision import decide
from spark_app.page.widgets import failure, figure, heading, preformatted, status, table

EVERY_S = 2.0
NAMED_PER_PAGE = 10
NAMED: list[dict[str, Any]] = [
    {"name": "field", "label": "field", "field": "field", "align": "left", "sortable": True},
    {"name": "column", "label": "column", "field": "column", "align": "left", "sortable": True},
]
CSS = """
.code td { font: 12px/1.5 ui-monospace, monospace !important; white-space: pre; height: 22px !important; }
.code td.gone { background: color-mix(in srgb, var(--q-negative) 16%, transparent); }
.code td.come { background: color-mix(in srgb, var(--q-positive) 16%, transparent); }
.code table { table-layout: fixed; } .code td { overflow-x: auto; }
"""
SIDES = """<q-tr :props="props">
<q-td key="old" :props="props" :class="props.row.is_old ? 'gone' : ''">{{ props.row.old }}</q-td>
<q-td key="new" :props="props" :class="props.row.is_new ? 'come' : ''">{{ props.row.new }}</q-td></q-tr>"""


def show(context: PageContext, schema: str) -> None:
    """The schema is read after the view is there, and again when the ledger changes."""
    ui.add_css(CSS)
    ui.link("All schemas", "/schemas")
    heading(f"Schema {one_line(schema)}", 1)
    place = ui.column().classes("full-width").style("gap: 20px")
    with place:
        status("The schema is read ...")
    lake = context.lake
    answers = Rereading(context, "schema", lambda: lake.storage.changed_at(lake.ledger))

    async def look() -> None:
        answer = await answers.look(schema=schema)
        if answer is not None:
            place.clear()
            with place:
                _show(context, answer)

    ui.timer(EVERY_S, look)


def _show(context: PageContext, answer: dict[str, Any]) -> None:
    if "failed" in answer:
        failure("The schema cannot be read", answer["failed"])
        return
    if answer.get("missing"):
        ui.label("The lake does not know this schema.").classes("trouble")
        return
    _show_state(context, answer)
    _show_figures(context, answer)
    if "damaged" in answer:
        failure("The text of the schema cannot be read", answer["damaged"])
    _show_findings(answer)
    _show_decisions(answer)
    _show_difference(answer)
    if answer.get("lines"):
        heading("Text of the schema", 2)
        more = [f"// {amount(answer['more_lines'])} more lines"] if answer["more_lines"] else []
        preformatted("\n".join(map(one_line, (*answer["lines"], *more))), "Text of the schema")


def _show_state(context: PageContext, answer: dict[str, Any]) -> None:
    icon, colour, does = STATES[answer["state"]]
    with ui.row().classes("items-center").style("gap: 10px"):
        ui.icon(icon, size="22px").classes(f"is-{colour}").props("aria-hidden=true")
        ui.label(answer["state"]).classes(f"badge is-{colour}").props('data-testid="schema state"')
        ui.label(does)
        if answer["state"] in UNDECIDED:
            key, why = answer["schema"], one_line(str(answer["why"]))
            ui.button("Decide ...", on_click=lambda: decide(context, key, why)).props("no-caps unelevated")
    if answer["why"]:
        cause = f"{answer['cause']}: " if answer["cause"] else ""
        ui.label(one_line(f"{cause}{answer['why']}")).classes("trouble").style("overflow-wrap: anywhere")


def _show_figures(context: PageContext, answer: dict[str, Any]) -> None:
    rows = rows_by_schema(context.observed.newest).get(answer["schema"], {})
    most = sorted(rows.items(), key=lambda one: -one[1])
    tables = ", ".join(f"{name} {amount(count)}" for name, count in most[:8])
    more = f", and {len(most) - 8} more" if len(most) > 8 else ""
    messages = ", ".join(answer.get("messages", ())[:30])
    figures = (
        ("versions", subjects_text(answer)),
        ("first seen, UTC", utc(answer["met_at"])),
        ("rows by table", one_line(tables + more) or "-"),
        ("messages", one_line(messages) or "-"),
    )
    with ui.element("div").classes("figures"):
        for name, text in figures:
            figure(name, text).classes(replace="text-weight-medium")


def _show_findings(answer: dict[str, Any]) -> None:
    heading("Findings", 2)
    if not answer["is_compared"]:
        ui.label("The schema was not compared with a version before it.").classes("faint")
        return
    if not answer["findings"]:
        first = "It is the first version that the lake knows." if answer["before"] is None else ""
        ui.label(first or f"It does not differ from v{answer['before']}.").classes("faint")
    for one in answer["findings"]:
        is_warning = one["severity"] == "warning"
        with ui.row().classes("items-start no-wrap full-width").style("gap: 8px").props('data-testid="finding"'):
            colour = "is-warn" if is_warning else "is-calm"
            ui.icon("warning" if is_warning else "info", size="18px").classes(colour).props("aria-hidden=true")
            ui.label(one["severity"]).classes(f"{colour} text-weight-medium").style("width: 64px; flex: none")
            ui.label(one_line(one["said"])).style("overflow-wrap: anywhere")
    if answer["left_out"]:
        ui.label(f"{amount(answer['left_out'])} more differences are not kept.").classes("faint")


def _show_decisions(answer: dict[str, Any]) -> None:
    columns, accepted = answer.get("columns", []), answer["accepted"]
    if not (columns or accepted or answer["stopped_by"]):
        return
    heading("Decisions", 2)
    if answer["stopped_by"]:
        ui.label(f"These changes kept it out: {one_line(', '.join(map(str, answer['stopped_by'])))}.")
    if accepted:
        ui.label(f"Decided by a person: {accepted}. {POLICIES.get(accepted, '')}")
    if columns:
        ui.label("These fields fill columns of other names:")
        named = [
            {"key": n, "field": one_line(f"{m}.{f}"), "column": one_line(c)} for n, (m, f, c) in enumerate(columns)
        ]
        shown = table("Columns of other names", NAMED, "key", named, NAMED_PER_PAGE).props('data-testid="columns"')
        if len(named) <= NAMED_PER_PAGE:
            shown.props("hide-bottom")


def _show_difference(answer: dict[str, Any]) -> None:
    rows = difference_rows(answer.get("difference", []))
    if not rows:
        return
    heading(f"Difference to v{answer['before']}", 2)
    ui.label("A line with - is gone, and a line with + is new.").classes("faint")
    columns = [
        {"name": "old", "label": f"v{answer['before']}", "field": "old", "align": "left"},
        {"name": "new", "label": "this version", "field": "new", "align": "left"},
    ]
    shown = table("Difference", columns, "number", rows).classes("code")
    shown.props('hide-bottom data-testid="difference"').add_slot("body", SIDES)
