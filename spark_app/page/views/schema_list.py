"""The schemas that the lake knows, and on top those that a person decides about."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import quote

from nicegui import ui

from spark_app.model.text import one_line
from spark_app.page.context import PageContext
from spark_app.page.rereading import Rereading
from spark_app.page.said import amount
from spark_app.page.schema_facts import STATES, UNDECIDED, held_text, list_row, rows_by_schema, subjects_text
from spark_app.page.views.schema_decision import decide
from spark_app.page.widgets import NUMBER, failure, heading, link_cells, say, status, table

ROWS_PER_PAGE = 25
EVERY_S = 2.0
MOST_UNDECIDED = 50
COUNT_S = 15.0
COLUMNS: list[dict[str, Any]] = [
    {"name": "schema", "label": "schema", "field": "schema", "align": "left"},
    {"name": "subjects", "label": "versions", "field": "subjects", "align": "left", "sortable": True},
    {"name": "state", "label": "state", "field": "state", "align": "left", "sortable": True},
    {"name": "messages", "label": "messages", "field": "messages", "align": "left", "classes": "clipped"},
    {"name": "findings", "label": "findings", "field": "findings", "align": "left"},
    {"name": "rows", "label": "rows", "field": "rows", "sortable": True, ":format": NUMBER},
    {"name": "met", "label": "first seen, UTC", "field": "met", "align": "left", "sortable": True},
]
CSS = """
.clipped { max-width: 320px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.undecided { border-left: 4px solid var(--q-negative); }
"""


def show(context: PageContext) -> None:
    """What waits for a decision, then the list, which is read again when the ledger changes."""
    ui.add_css(CSS)
    heading("Schemas", 1)
    note = status("The schemas are read ...")
    undecided = ui.column().classes("full-width")
    listed = _table()
    lake = context.lake
    answers = Rereading(context, "schemas", lambda: lake.storage.changed_at(lake.ledger))
    schemas: list[dict[str, Any]] = []

    def count() -> None:
        """The rows by schema grow all the time."""
        rows = rows_by_schema(context.observed.newest)
        shown = [list_row(one, rows.get(one["schema"], {})) for one in schemas]
        if shown != listed.rows:
            listed.rows = shown

    async def look() -> None:
        answer = await answers.look()
        if answer is None:
            return
        if "failed" in answer:
            failure("The schemas cannot be read", answer["failed"], note)
            return
        say(note, _summary(answer))
        schemas[:] = answer["schemas"]
        count()
        _show_undecided(undecided, context, answer)

    ui.timer(EVERY_S, look)
    ui.timer(COUNT_S, count)


def _summary(answer: dict[str, Any]) -> str:
    states = Counter(one["state"] for one in answer["schemas"])
    said = ", ".join(f"{amount(states[state])} {state}" for state in STATES if states[state])
    more = f"{amount(answer['more'])} older ones are left out. " if answer["more"] else ""
    unknown = f"The registry does not know {amount(answer['unknown'])} more ids." if answer["unknown"] else ""
    return f"{said or 'The lake knows no schema yet'}. {more}{unknown}".strip()


def _table() -> ui.table:
    with ui.element("div").classes("full-width"):
        search = ui.input(placeholder="search ids, subjects, messages, states")
        search.props('dense outlined clearable aria-label="Search schemas"').style(
            "width: 320px; max-width: 100%; margin-bottom: 12px"
        )
        order = {"rowsPerPage": ROWS_PER_PAGE, "sortBy": "met", "descending": True}
        found = table("Schemas", COLUMNS, "schema", pagination=order).props('data-testid="schemas"')
        found.bind_filter_from(search, "value")
        link_cells(found, "schema", "'/schemas/' + encodeURIComponent(props.value)")
        found.add_slot(
            "body-cell-state",
            """<q-td :props="props"><span :class="props.row.colour" :title="props.row.does">
            <q-icon :name="props.row.icon" size="18px" aria-hidden="true" /> {{ props.value }}</span></q-td>""",
        )
        found.add_slot(
            "body-cell-findings",
            """<q-td :props="props"><span :class="props.row.warnings ? 'is-warn' : 'faint'">
            <q-icon v-if="props.row.warnings" name="warning" size="18px" aria-hidden="true" /> {{ props.value }}</span>
            </q-td>""",
        )
    return found


def _show_undecided(place: ui.column, context: PageContext, answer: dict[str, Any]) -> None:
    place.clear()
    waiting = [one for one in answer["schemas"] if one["state"] in UNDECIDED]
    if not waiting:
        return
    with place:
        heading("Waiting for your decision", 2)
        for one in waiting[:MOST_UNDECIDED]:
            held = answer["held"]
            _show_one(context, one, None if held is None else held.get(one["schema"], 0))
        if len(waiting) > MOST_UNDECIDED:
            ui.label(f"and {amount(len(waiting) - MOST_UNDECIDED)} more, which the list has").classes("faint")


def _show_one(context: PageContext, one: dict[str, Any], records: int | None) -> None:
    key, why = one["schema"], one_line(str(one["why"]))
    icon, colour, _ = STATES[one["state"]]
    with ui.row().classes("card undecided items-center full-width no-wrap").props('data-testid="undecided"'):
        ui.icon(icon, size="22px").classes(f"is-{colour}").props("aria-hidden=true")
        with ui.column().classes("col").style("gap: 2px"):
            with ui.row().classes("items-center").style("gap: 8px"):
                ui.link(f"Schema {key}", f"/schemas/{quote(key)}").classes("text-weight-bold")
                ui.label(f"{one['state']}, {subjects_text(one)}".removesuffix(", -")).classes("faint")
            ui.label(why).style("overflow-wrap: anywhere")
            ui.label(held_text(one["state"], records)).classes("faint")
        button = ui.button("Decide ...", on_click=lambda: decide(context, key, why)).props("no-caps unelevated")
        button.props["aria-label"] = f"Decide about schema {key}"
