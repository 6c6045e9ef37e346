"""Read-only SQL over the tables of the lake."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nicegui import events, ui

from spark_app.model.table_names import TableNames
from spark_app.model.text import quoted
from spark_app.page import charts
from spark_app.page.clear_text import hidden_tables
from spark_app.page.context import PATIENCE_S, PageContext
from spark_app.page.format import amount, moment_of
from spark_app.page.queries.child_process import Child
from spark_app.page.widgets import cells, draw, failure, grid, heading, status, table

AT_ONCE = 2  # queries of all tabs; each may take 1 GiB, of which DuckDB may use 512 MB, and a core
TURNS = asyncio.Semaphore(AT_ONCE)
PER_PAGE = 14  # tables
BUTTON = """flat dense no-caps align=left :label="props.value" :disable="props.row.hidden"
  :title="props.row.hidden ? 'its rows are not shown on this page' : ''"
"""
PLAIN = re.compile("[a-z_][a-z0-9_]*")
# The light editor in dark colours.
CSS = """
.body--dark .cm-editor { filter: invert(0.92) hue-rotate(180deg); }
.cm-editor { font-size: 13px; }
.cm-activeLine { background: none !important; } /* numbers are too pale on it */
"""
# What follows # in an address is not sent to a server, so no log has the SQL.
READ = """
document.querySelectorAll('.cm-content').forEach(editor => editor.setAttribute('aria-label', 'SQL'));
try { return location.hash.startsWith('#sql=') ? decodeURIComponent(location.hash.slice(5)) : '' } catch { return '' }
"""
KEEP = "history.replaceState(null, '', '#sql=' + encodeURIComponent({sql}))"
ABOUT = (
    "One SELECT of DuckDB, over the tables of this lake and nothing else. It changes nothing, has 30 s and 512 MB, and "
    "shows at most 1,000 rows. Times are in UTC."
)
MOST_SERIES = 8
MOST_POINTS = 1000
MOST_NAMES = 200  # along the x axis
Form = Literal["lines", "bars"]


def show(context: PageContext) -> None:
    """The tables, the editor, and the result."""
    ui.add_css(CSS)
    heading("Query", 1)
    ui.label(ABOUT).classes("faint")
    with ui.row().classes("full-width items-start").style("gap: 20px"):
        side = ui.column().style("flex: 1 1 260px; max-width: 100%")
        with ui.column().style("flex: 5 1 560px; min-width: 0; max-width: 100%"):
            view = _Query(context)
    if context.sees_all:
        tables = context.lake.tables()
        with side:
            _tables(tables, hidden_tables(context.lake, context.settings), view)
        return view.offer(examples(tables, context.layout))

    async def offer_seen() -> None:
        found = await context.run_job("seen_tables", user=context.user)
        with side:
            _tables(found.get("tables", ()), frozenset(), view)
        view.offer(examples(found.get("tables", ()), context.layout))

    ui.timer(0.01, offer_seen, once=True)


class _Query:
    """The editor, the buttons, and the result of the last query."""

    def __init__(self, context: PageContext):
        self._context = context
        self._child: Child | None = None
        self._filled = ""  # what the editor was filled with; it may be replaced
        self._editor = ui.codemirror(
            language="SQL", line_wrapping=True, theme="vscodeLight", keymap={"Mod-Enter": self.run}
        )
        self._editor.classes("full-width").style("height: 180px").props('aria-label="SQL"')
        with ui.row().classes("items-center full-width").style("gap: 12px"):
            self._run = ui.button("Run", icon="play_arrow", on_click=self.run).props("unelevated no-caps")
            self._cancel = ui.button("Cancel", icon="stop", on_click=self.cancel).props("outline no-caps")
            ui.label("Ctrl-Enter").classes("faint")
            self._status = status().props('data-testid="said"')
            ui.space()
            self._examples = ui.row().style("gap: 4px")
        self._run.disable()  # until the SQL of the address is there: otherwise an example would run instead
        self._cancel.set_visibility(False)
        self._content = ui.column().classes("full-width")
        ui.context.client.on_delete(self.cancel)
        ui.timer(0.01, self._read_address, once=True)

    def offer(self, several: Mapping[str, str]) -> None:
        """Buttons with examples; the first is there at once."""
        self.fill(next(iter(several.values()), ""))
        with self._examples:
            for name, sql in several.items():
                ui.button(name, on_click=lambda sql=sql: self.fill(sql)).props("flat dense no-caps size=sm")

    def fill(self, sql: str) -> None:
        """Show other SQL, whatever the editor has."""
        self._filled = sql
        self._editor.set_value(sql)

    def add(self, name: str) -> None:
        """A SELECT of the table if nobody has typed anything, otherwise its name at the end of the SQL."""
        now = self._editor.value or ""
        if not now.strip() or now == self._filled:
            self.fill(f"SELECT *\nFROM {spelled(name)}\nLIMIT 100")
        else:
            self._editor.set_value(f"{now.rstrip()} {spelled(name)}")

    def cancel(self) -> None:
        if self._child is not None:
            self._child.end()

    async def run(self) -> None:
        sql = self._editor.value or ""
        if self._child is not None or not sql.strip():
            return
        self._child = child = Child()
        self._cancel.set_visibility(True)
        self._run.disable()
        ui.run_javascript(KEEP.format(sql=json.dumps(sql)))
        try:
            if TURNS.locked():
                self._status.set_text(f"The query waits for {AT_ONCE} others.")
            async with TURNS:
                self._status.set_text("The query runs ...")
                result = await self._context.run_job("query", child, sql=sql, user=self._context.user)
        finally:
            self._child = None
            self._run.enable()
            self._cancel.set_visibility(False)
        self._show(result)

    async def _read_address(self) -> None:
        try:
            sql = await ui.run_javascript(READ, timeout=PATIENCE_S)
            if isinstance(sql, str) and sql:
                self.fill(sql)
        finally:
            self._run.enable()

    def _show(self, result: Mapping[str, Any]) -> None:
        self._content.clear()
        if "failed" in result:
            self._status.set_text("")
            with self._content:
                failed = failure("There is no result", result["failed"]).props('data-testid="failed"')
                failed.style("font-family: ui-monospace, monospace")
            return
        columns, rows = result["columns"], result["rows"]
        count = "1 row" if len(rows) == 1 else f"{amount(len(rows))} rows"
        self._status.set_text(f"{count} in {result['seconds']:.2f} s")
        with self._content:
            if result["cut"]:
                ui.label(result["cut"]).classes("trouble")
            _chart(columns, rows)
            names, types = [one["name"] for one in columns], [one["type"] for one in columns]
            grid("Result", names, rows, types)


def _chart(columns: Sequence[Mapping[str, str]], rows: Sequence[Sequence[Any]]) -> None:
    """The chart, if the result suits one, and the choice of its form."""
    form = form_of(columns)
    options = chart_of(columns, rows, form)
    if options is None:
        return
    choice = ui.toggle({"lines": "lines", "bars": "bars", "": "no chart"}, value=form)
    choice.props('dense no-caps unelevated aria-label="Chart"')
    chart = ui.echart(options, renderer="svg").style("height: 280px; width: 100%").props('data-testid="chart"')

    def change(event: events.ValueChangeEventArguments[Any]) -> None:
        chart.set_visibility(bool(event.value))
        if event.value:
            draw(chart, chart_of(columns, rows, event.value) or {})

    choice.on_value_change(change)


def _tables(tables: Sequence[str], hidden: frozenset[str], view: _Query) -> None:
    search = ui.input(placeholder="search tables").props('dense outlined clearable aria-label="Search tables"')
    search.classes("full-width")
    columns = [{"name": "name", "label": f"{amount(len(tables))} tables", "field": "name", "align": "left"}]
    rows = [{"name": name, "hidden": name in hidden} for name in tables]
    listed = table("Tables", columns, "name", rows, PER_PAGE).props(f':rows-per-page-options="[{PER_PAGE}]"')
    listed.bind_filter_from(search, "value")
    with cells(listed, "name"):
        button = ui.element("q-btn").props(BUTTON).classes("full-width")
        button.on("click", lambda event: view.add(str(event.args)), js_handler="() => emit(props.value)")


def examples(tables: Sequence[str], layout: TableNames) -> dict[str, str]:
    """Name -> SQL, for the tables that there are."""
    found: dict[str, str] = {}
    silver = next(filter(layout.is_silver, tables), None)
    if silver:
        found["Rows per minute"] = (
            f"SELECT date_trunc('minute', _landed_at) AS landed, count(*) AS rows\nFROM {spelled(silver)}\n"
            "GROUP BY 1\nORDER BY 1"
        )
        found["Rows of all tables"] = (
            "SELECT _table, count(*) AS rows, max(_landed_at) AS newest\nFROM silver_all\nGROUP BY ALL\n"
            "ORDER BY rows DESC"
        )
    if layout.events in tables:
        found["Failing expectations"] = (
            "SELECT details->>'$.rule' AS expectation, \"table\", "
            "sum((details->>'$.failed')::BIGINT)::BIGINT AS failed\n"
            f"FROM {spelled(layout.events)}\nWHERE kind = 'rule'\nGROUP BY ALL\nORDER BY failed DESC\nLIMIT 50"
        )
        found["Newest warnings"] = (
            f"SELECT happened_at, level, message\nFROM {spelled(layout.events)}\nWHERE level <> 'INFO'\n"
            "ORDER BY happened_at DESC\nLIMIT 50"
        )
    return found


def spelled(name: str) -> str:
    """The name of a table in SQL."""
    return name if PLAIN.fullmatch(name) else quoted(name)


def chart_of(columns: Sequence[Mapping[str, str]], rows: Sequence[Sequence[Any]], form: Form) -> dict[str, Any] | None:
    """A chart of a result: its first column along the x axis, its numeric columns as lines or bars. None if it has no
    column for the x axis, or no numbers.

    Args:
        columns: each with "name" and "kind" (number, time or other), see the job `query`.
    """
    numeric = [number for number, one in enumerate(columns) if number and one["kind"] == "number"][:MOST_SERIES]
    if not numeric or len(rows) < 2:
        return None
    names = {number: _unlike(columns, number) for number in numeric}
    if columns[0]["kind"] == "time":
        moments = [moment_of(row[0]) for row in rows[:MOST_POINTS]]
        series = {
            names[column]: sorted(
                (at, _number(row[column])) for at, row in zip(moments, rows, strict=False) if at is not None
            )
            for column in numeric
        }
        return (charts.lines if form == "lines" else charts.bars)("", series)
    shown = rows[:MOST_NAMES]
    values = {names[column]: [_number(row[column]) for row in shown] for column in numeric}
    return charts.by_name("", ["NULL" if row[0] is None else str(row[0]) for row in shown], values, form)


def form_of(columns: Sequence[Mapping[str, str]]) -> Form:
    """What suits the first column."""
    return "lines" if columns and columns[0]["kind"] in ("time", "number") else "bars"


def _unlike(columns: Sequence[Mapping[str, str]], number: int) -> str:
    """The name of a column, unlike those before it."""
    name = columns[number]["name"]
    before = sum(one["name"] == name for one in columns[:number])
    return name if not before else f"{name} ({before + 1})"


def _number(value: Any) -> float | None:
    """Decimals and large integers come as text; NaN and infinity are gaps."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if found - found == 0 else None
