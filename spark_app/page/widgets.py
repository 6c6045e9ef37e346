"""Parts of the views: their looks, headings, figures, tables, and lines about jobs that run or failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from spark_app.page.context import PageContext, live
from spark_app.page.format import escaped

T = TypeVar("T")
COLOURS = {
    "good": "#0b7a4b",
    "warn": "#9a5b00",
    "bad": "#b3261e",
    "calm": "#5b6470",
    "accent": "#2456a6",
}
# The same on a dark ground, where they must be lighter to be read.
DARK = {"good": "#5fd3a0", "warn": "#f0b656", "bad": "#ff8f87", "calm": "#a9b4c0", "accent": "#8ab4f8"}
# Of charts, which know nothing of light and dark: their SVG is coloured anew by CSS.
INK, PALE_INK, TEXT, LINE, PAPER = "#1c2430", "#3d4754", "#5c6773", "#9aa4b1", "#fffffe"
DARK_CHART = {INK: "#f0f3f7", PALE_INK: "#c3ccd6", TEXT: "#a9b4c0", LINE: "#5b6672", PAPER: "#20262e"}
# state of the app -> one of the words above
OF_STATE = {
    "running": "good",
    "starting": "accent",
    "waiting": "warn",
    "silent": "warn",
    "stopped": "calm",
    "no app yet": "calm",
    "held": "bad",
    "dead": "bad",
}
# level of an event or an alert -> icon, and one of the words above
OF_LEVEL = {
    "INFO": ("info", "calm"),
    "WARN": ("warning", "warn"),
    "WARNING": ("warning", "warn"),
    "ERROR": ("error", "bad"),
}
CSS = """
:root { color-scheme: light dark; --line: #d5dae1; --soft: #f4f6f9; --text: #1c2430; --faint: #566070; }
body.body--dark { --line: #3a424d; --soft: #20262e; --text: #e6eaf0; --faint: #a9b4c0; }
body.body--dark { --q-primary: #8ab4f8 !important; --q-negative: #ff8f87 !important; }
@layer theme { body.body--dark .bg-primary { color: #10151c !important; } } /* before Quasar's own !important */
.nicegui-link { color: var(--q-primary); }
body { color: var(--text); font-size: 14px; }
.nicegui-content { padding: 16px 24px 48px; gap: 20px; max-width: 1440px; margin: 0 auto; width: 100%; }
.bar { background: var(--soft) !important; color: var(--text) !important; border-bottom: 1px solid var(--line); }
.bar a { color: var(--text); text-decoration: none; padding: 6px 10px; border-radius: 6px; }
.bar a:hover { background: var(--line); }
.bar a[aria-current] { font-weight: 600; box-shadow: inset 0 -2px 0 currentColor; }
.brand { font-weight: 700; font-size: 16px; }
.badge { padding: 3px 10px; border-radius: 12px; font-weight: 600; border: 1px solid currentColor; }
.faint { color: var(--faint); }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 16px; width: 100%; }
.figures { display: flex; flex-wrap: wrap; gap: 12px; width: 100%; }
.figure { border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; min-width: 128px; }
.figure .value { font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.trouble { border-left: 4px solid var(--q-negative); padding: 8px 12px; background: var(--soft); width: 100%; }
h1 { font-size: 22px; font-weight: 600; line-height: 1.3; margin: 0; }
h2 { font-size: 16px; font-weight: 600; line-height: 1.3; margin: 0; }
pre.bytes { font-family: ui-monospace, monospace; font-size: 12px; line-height: 1.45; margin: 0; overflow: auto;
  max-height: 420px; padding: 12px; background: var(--soft); border-radius: 6px; width: 100%; white-space: pre; }
.q-table th { font-weight: 600; color: var(--text); }
.q-table td { font-variant-numeric: tabular-nums; }
.q-table__bottom, .q-table__top { color: var(--faint); }
:focus-visible { outline: 2px solid var(--q-primary) !important; outline-offset: 2px; }
"""
# Of a number in a column of a table, in Quasar.
NUMBER = "value => value == null ? '-' : value.toLocaleString('en', {maximumFractionDigits: 3})"
GRID_CELL = """
<q-td :props="props" style="max-width: 360px; overflow: hidden; text-overflow: ellipsis"
  :title="props.value === null ? '' : String(props.value)">
  <span v-if="props.value === null" class="faint" style="font-style: italic">NULL</span>
  <template v-else>{{ String(props.value) }}</template>
</q-td>
"""
GRID_HIGH = "max-height: 480px"


def css() -> str:
    """The styles of all views."""
    words = (f".is-{word} {{ color: {colour}; }}" for word, colour in COLOURS.items())
    dark = (f".body--dark .is-{word} {{ color: {colour}; }}" for word, colour in DARK.items())
    repaint = DARK_CHART | {COLOURS[word]: colour for word, colour in DARK.items()}
    charts = (
        f'.body--dark .nicegui-echart svg [{part}="{light}"] {{ {part}: {colour}; }}'
        for light, colour in repaint.items()
        for part in ("fill", "stroke")
    )
    return "\n".join((CSS, *words, *dark, *charts))


def heading(text: str, level: Literal[1, 2, 3]) -> TextElement:
    found = TextElement(tag=f"h{level}", text=text).style("overflow-wrap: anywhere")
    return found.classes("text-subtitle1").style("margin: 0") if level == 3 else found


def figure(name: str, text: str = "-", more: str = "") -> ui.label:
    """The value with its name below. `more` is shown when somebody points at it."""
    with ui.element("div").classes("figure"):
        value = ui.label(text).classes("value").style("overflow-wrap: anywhere")
        value.props["data-testid"] = name
        ui.label(name).classes("faint")
        if more:
            ui.tooltip(more)
    return value


def live_figures(context: PageContext, find: Callable[[], Mapping[str, str]]) -> None:
    """Figures that follow the readings. `find` gives their texts by name; the names of the first time stay."""
    with ui.element("div").classes("figures"):
        values = {name: figure(name) for name in find()}

    def refresh() -> None:
        found = find()
        for name, value in values.items():
            value.set_text(found.get(name, "-"))

    live(context, refresh)


def redrawn(area: ui.element, find: Callable[[], T], draw_in: Callable[[T], None]) -> Callable[[], None]:
    """Returns what draws the found value into an element, anew only when it has changed."""
    seen: T | None = None

    def refresh() -> None:
        nonlocal seen
        found = find()
        if found != seen:
            seen = found
            area.clear()
            with area:
                draw_in(found)

    return refresh


def preformatted(text: str, name: str) -> TextElement:
    """Text as it is, in lines; the keyboard can scroll it."""
    found = TextElement(tag="pre", text=text).classes("bytes").props("tabindex=0 role=region")
    found.props.update({"aria-label": name, "data-testid": name})
    return found


def draw(chart: ui.echart, options: dict[str, Any]) -> None:
    """Show the options if they are others than before; the chart notices changes of them."""
    if chart.options != options:
        chart.options.clear()
        chart.options.update(options)


def table(
    label: str,
    columns: Sequence[dict[str, Any]],
    key: str,
    rows: Sequence[dict[str, Any]] = (),
    pagination: int | dict[str, Any] = 0,
) -> ui.table:
    """
    Args:
        label: what it is, for those who do not see it.
        key: the column that no two rows have alike.
        pagination: rows of a page, or also their order; 0 = all rows at once.
    """
    found = ui.table(rows=list(rows), columns=list(columns), row_key=key, pagination=pagination)
    found.classes("full-width").props("flat bordered dense role=group").props["aria-label"] = label
    return found


def cells(listed: ui.table, column: str) -> ui.element:
    """The cells of a column, for elements that keep the keyboard's focus: what a template draws is made
    anew with each update of the page. Their `props` are those of Quasar's slot `body-cell`."""
    with listed.add_slot(f"body-cell-{column}"):
        return ui.element("q-td").props(':props="props"')


def link_cells(listed: ui.table, column: str, path: str) -> None:
    """Show the values of a column as links.

    Args:
        path: JavaScript that gives the address; it may use `props`.
    """
    with cells(listed, column):
        ui.element("a").props(f':textContent="props.value" :href="{path}"')


def status(text: str = "") -> ui.label:
    """A line about what is waited for, or what was found."""
    return ui.label(text).classes("faint").props("role=status")


def set_status(line: ui.label, text: str) -> None:
    """Change the text of a line of `status`."""
    line.classes(replace="faint").props("role=status").set_text(text)


def failure(what: str, why: Any, line: ui.label | None = None) -> ui.label:
    """Show that a job failed, in a line of `status` or in one of its own.

    Args:
        what: what there is not, for instance "The records cannot be read".
        why: of the job.
    """
    line = line or ui.label()
    line.set_text(escaped(f"{what}: {why}"))
    return line.classes(replace="trouble").props("role=alert").style("white-space: pre-wrap; overflow-wrap: anywhere")


def grid(label: str, names: Sequence[str], rows: Sequence[Sequence[Any]], details: Sequence[str]) -> ui.table:
    """A table of values that come from records: all of them are text, NULL looks like NULL, and long ones are cut.

    Args:
        label: what it is, for those who do not see it.
        names: of the columns; two may be alike.
        rows: values of JSON.
        details: shown when the heading of a column is pointed at.
    """
    numeric = [all(_is_number(row[n]) or row[n] is None for row in rows) for n in range(len(names))]
    columns = [
        {
            "name": f"c{number}",
            "field": f"c{number}",
            "label": name,
            "align": "right" if numeric[number] and rows else "left",
            "sortable": True,
            "detail": details[number],
        }
        for number, name in enumerate(names)
    ]
    values = [{"id": number, **{f"c{n}": value for n, value in enumerate(row)}} for number, row in enumerate(rows)]
    found = table(label, columns, "id", values).style(GRID_HIGH)
    found.props('virtual-scroll hide-pagination no-data-label="no rows"').add_slot("body-cell", GRID_CELL)
    found.add_slot("header-cell", '<q-th :props="props" :title="props.col.detail">{{ props.col.label }}</q-th>')
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
