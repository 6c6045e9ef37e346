"""The schemas that the lake knows, those that a person decides about, and one schema with its findings and its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from nicegui import ui

from spark_app.lake.lake import Lake
from spark_app.model.schema_changes import Policy
from spark_app.model.text import one_line
from spark_app.page.context import PageContext, RepeatedJob
from spark_app.page.format import amount, utc
from spark_app.page.metrics.reading import Reading
from spark_app.page.requests import RequestLine
from spark_app.page.widgets import NUMBER, failure, figure, heading, link_cells, preformatted, set_status, status, table
from spark_app.recovery.requests import pending
from spark_app.recovery.result_text import accept_line

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
.code td { font: 12px/1.5 ui-monospace, monospace !important; white-space: pre; height: 22px !important; }
.code td.gone { background: color-mix(in srgb, var(--q-negative) 16%, transparent); }
.code td.come { background: color-mix(in srgb, var(--q-positive) 16%, transparent); }
.code table { table-layout: fixed; } .code td { overflow-x: auto; }
"""
NAMED_PER_PAGE = 10
NAMED: list[dict[str, Any]] = [
    {"name": "field", "label": "field", "field": "field", "align": "left", "sortable": True},
    {"name": "column", "label": "column", "field": "column", "align": "left", "sortable": True},
]
SIDES = """<q-tr :props="props">
<q-td key="old" :props="props" :class="props.row.is_old ? 'gone' : ''">{{ props.row.old }}</q-td>
<q-td key="new" :props="props" :class="props.row.is_new ? 'come' : ''">{{ props.row.new }}</q-td></q-tr>"""
# state -> icon, a word of `COLOURS`, what becomes of the records
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


def show_list(context: PageContext) -> None:
    """Schemas that wait for a decision, then the list, which is read again when the ledger changes."""
    ui.add_css(CSS)
    heading("Schemas", 1)
    note = status("The schemas are read ...")
    undecided = ui.column().classes("full-width")
    listed = _table()
    lake = context.lake
    job = RepeatedJob(context, "schemas", lambda: lake.storage.changed_at(lake.ledger))
    schemas: list[dict[str, Any]] = []

    def count() -> None:
        """The rows by schema grow all the time."""
        rows = rows_by_schema(context.observed.newest)
        shown = [list_row(one, rows.get(one["schema"], {})) for one in schemas]
        if shown != listed.rows:
            listed.rows = shown

    async def look() -> None:
        result = await job.run_if_due()
        if result is None:
            return
        if "failed" in result:
            failure("The schemas cannot be read", result["failed"], note)
            return
        set_status(note, _summary(result))
        schemas[:] = result["schemas"]
        count()
        _show_undecided(undecided, context, result)

    ui.timer(EVERY_S, look)
    ui.timer(COUNT_S, count)


def _summary(result: dict[str, Any]) -> str:
    states = Counter(one["state"] for one in result["schemas"])
    counts = ", ".join(f"{amount(states[state])} {state}" for state in STATES if states[state])
    more = f"{amount(result['more'])} older ones are left out. " if result["more"] else ""
    unknown = f"The registry does not know {amount(result['unknown'])} more ids." if result["unknown"] else ""
    return f"{counts or 'The lake knows no schema yet'}. {more}{unknown}".strip()


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


def _show_undecided(area: ui.column, context: PageContext, result: dict[str, Any]) -> None:
    area.clear()
    waiting = [one for one in result["schemas"] if one["state"] in UNDECIDED]
    if not waiting:
        return
    with area:
        heading("Waiting for your decision", 2)
        for one in waiting[:MOST_UNDECIDED]:
            kept_out = result["kept_out"]
            _show_one(context, one, None if kept_out is None else kept_out.get(one["schema"], 0))
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
            ui.label(kept_out_text(one["state"], records)).classes("faint")
        button = ui.button("Decide ...", on_click=lambda: decide(context, key, why)).props("no-caps unelevated")
        button.props["aria-label"] = f"Decide about schema {key}"


def show_one(context: PageContext, schema: str) -> None:
    """The schema is read after the view is there, and again when the ledger changes."""
    ui.add_css(CSS)
    ui.link("All schemas", "/schemas")
    heading(f"Schema {one_line(schema)}", 1)
    content = ui.column().classes("full-width").style("gap: 20px")
    with content:
        status("The schema is read ...")
    lake = context.lake
    job = RepeatedJob(context, "schema", lambda: lake.storage.changed_at(lake.ledger))

    async def look() -> None:
        result = await job.run_if_due(schema=schema)
        if result is not None:
            content.clear()
            with content:
                _draw(context, result)

    ui.timer(EVERY_S, look)


def _draw(context: PageContext, result: dict[str, Any]) -> None:
    if "failed" in result:
        failure("The schema cannot be read", result["failed"])
        return
    if result.get("missing"):
        ui.label("The lake does not know this schema.").classes("trouble")
        return
    _show_state(context, result)
    _show_figures(context, result)
    if "damaged" in result:
        failure("The text of the schema cannot be read", result["damaged"])
    _show_findings(result)
    _show_decisions(result)
    _show_difference(result)
    if result.get("lines"):
        heading("Text of the schema", 2)
        more = [f"// {amount(result['more_lines'])} more lines"] if result["more_lines"] else []
        preformatted("\n".join(map(one_line, (*result["lines"], *more))), "Text of the schema")


def _show_state(context: PageContext, result: dict[str, Any]) -> None:
    icon, colour, does = STATES[result["state"]]
    with ui.row().classes("items-center").style("gap: 10px"):
        ui.icon(icon, size="22px").classes(f"is-{colour}").props("aria-hidden=true")
        ui.label(result["state"]).classes(f"badge is-{colour}").props('data-testid="schema state"')
        ui.label(does)
        if result["state"] in UNDECIDED:
            key, why = result["schema"], one_line(str(result["why"]))
            ui.button("Decide ...", on_click=lambda: decide(context, key, why)).props("no-caps unelevated")
    if result["why"]:
        cause = f"{result['cause']}: " if result["cause"] else ""
        ui.label(one_line(f"{cause}{result['why']}")).classes("trouble").style("overflow-wrap: anywhere")


def _show_figures(context: PageContext, result: dict[str, Any]) -> None:
    rows = rows_by_schema(context.observed.newest).get(result["schema"], {})
    most = sorted(rows.items(), key=lambda one: -one[1])
    tables = ", ".join(f"{name} {amount(count)}" for name, count in most[:8])
    more = f", and {len(most) - 8} more" if len(most) > 8 else ""
    messages = ", ".join(result.get("messages", ())[:30])
    figures = (
        ("versions", subjects_text(result)),
        ("first seen, UTC", utc(result["met_at"])),
        ("rows by table", one_line(tables + more) or "-"),
        ("messages", one_line(messages) or "-"),
    )
    with ui.element("div").classes("figures"):
        for name, text in figures:
            figure(name, text).classes(replace="text-weight-medium")


def _show_findings(result: dict[str, Any]) -> None:
    heading("Findings", 2)
    if not result["is_compared"]:
        ui.label("The schema was not compared with a version before it.").classes("faint")
        return
    if not result["findings"]:
        first = "It is the first version that the lake knows." if result["before"] is None else ""
        ui.label(first or f"It does not differ from v{result['before']}.").classes("faint")
    for one in result["findings"]:
        is_warning = one["severity"] == "warning"
        with ui.row().classes("items-start no-wrap full-width").style("gap: 8px").props('data-testid="finding"'):
            colour = "is-warn" if is_warning else "is-calm"
            ui.icon("warning" if is_warning else "info", size="18px").classes(colour).props("aria-hidden=true")
            ui.label(one["severity"]).classes(f"{colour} text-weight-medium").style("width: 64px; flex: none")
            ui.label(one_line(one["said"])).style("overflow-wrap: anywhere")
    if result["left_out"]:
        ui.label(f"{amount(result['left_out'])} more differences are not kept.").classes("faint")


def _show_decisions(result: dict[str, Any]) -> None:
    columns, accepted = result.get("columns", []), result["accepted"]
    if not (columns or accepted or result["stopped_by"]):
        return
    heading("Decisions", 2)
    if result["stopped_by"]:
        ui.label(f"These changes kept it out: {one_line(', '.join(map(str, result['stopped_by'])))}.")
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


def _show_difference(result: dict[str, Any]) -> None:
    rows = difference_rows(result.get("difference", []))
    if not rows:
        return
    heading(f"Difference to v{result['before']}", 2)
    ui.label("A line with - is gone, and a line with + is new.").classes("faint")
    columns = [
        {"name": "old", "label": f"v{result['before']}", "field": "old", "align": "left"},
        {"name": "new", "label": "this version", "field": "new", "align": "left"},
    ]
    shown = table("Difference", columns, "number", rows).classes("code")
    shown.props('hide-bottom data-testid="difference"').add_slot("body", SIDES)


def decide(context: PageContext, schema: str, why: str) -> None:
    """Open the dialog. `why`: what the schema changes. The dialog is no part of what was clicked, because that is
    drawn anew when the decision is in the ledger."""
    with (
        ui.context.client.content,
        ui.dialog() as dialog,
        ui.card().classes("q-pa-lg q-gutter-sm").style("max-width: 760px; width: 100%"),
    ):
        heading(f"Decide about schema {schema}", 2)
        ui.label(why).style("overflow-wrap: anywhere")
        for policy in pending_decisions(context.lake, schema):
            ui.label(f"A decision waits for the app already: {policy}. It comes first.").classes("trouble")
        options = {policy: f"{policy}: {does}" for policy, does in POLICIES.items()}
        choice = ui.radio(options).props('aria-label="What becomes of the changes"')
        ui.label(FINAL).classes("trouble")
        request = RequestLine(context)
        with ui.row().classes("full-width justify-end"):
            request.add_cancel()
            close = ui.button("Close", on_click=dialog.close).props("flat no-caps")
            button = ui.button("Decide for good").props("no-caps")
            button.bind_enabled_from(choice, "value", bool)

    async def send() -> None:
        button.disable()
        choice.disable()
        result = await request.send("accept", {"schema": schema, "policy": choice.value})
        if result is None:
            return
        if "error" in result:
            button.enable()
            choice.enable()
        else:
            set_status(request.line, _result_text(result))
            close.set_text("Done")

    def leave() -> None:
        request.end()
        dialog.delete()

    button.on_click(send)
    dialog.on("hide", leave)
    dialog.set_value(True)


def pending_decisions(lake: Lake, schema: str) -> list[str]:
    """The policies of decisions about the schema that the app has not carried out."""
    found = (one.arguments for one in pending(lake) if one.kind == "accept")
    return [one_line(str(given.get("policy"))) for given in found if str(given.get("schema")) == schema]


def _result_text(result: dict[str, Any]) -> str:
    try:
        line = accept_line(result)
    except (KeyError, TypeError):  # an app of another release
        return "The app has applied the decision."
    return f"{line[:1].upper()}{line[1:]}."


def rows_by_schema(reading: Reading) -> dict[str, dict[str, int]]:
    """Schema -> table, by its routing name -> rows, as far as the status knows them."""
    found: dict[str, dict[str, int]] = {}
    for name in reading.objects("tables"):
        for schema, rows in reading.counts("tables", name, "schema_ids").items():
            found.setdefault(schema, {})[name] = int(rows)
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
    counts = [f"{warnings} {'warning' if warnings == 1 else 'warnings'}"] if warnings else []
    return ", ".join([*counts, *([f"{infos} info"] if infos else [])]) or "-"


def kept_out_text(state: str, records: int | None) -> str:
    """How many records the change of a schema keeps out."""
    where = "wait" if state == "paused" else "are in quarantine"
    return f"It is not known how many records {where}." if records is None else f"{amount(records)} records {where}."


def difference_rows(parts: list[list[list[str]]]) -> list[dict[str, Any]]:
    """Rows of a table of two columns, where "-" marks lines that are gone and "+" new ones; an empty row stands between
    two parts. `parts` is the `difference` of the job `schema`."""
    found: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        if number:
            found.append({"number": len(found), "old": "…", "new": "…", "is_old": False, "is_new": False})
        for mark, old, new in part:
            is_old, is_new = mark in "|<", mark in "|>"
            left = f"{'-' if is_old else ' '} {one_line(old)}" if mark != ">" else ""
            right = f"{'+' if is_new else ' '} {one_line(new)}" if mark != "<" else ""
            found.append({"number": len(found), "old": left, "new": right, "is_old": is_old, "is_new": is_new})
    return found
