"""The records that could not be placed: by cause and rule over time, each with its bytes, and their replay."""

from __future__ import annotations

from typing import Any

from nicegui import events, ui

from spark_app.model.causes import Cause
from spark_app.page import charts
from spark_app.page.clear_text import HIDDEN
from spark_app.page.context import PageContext
from spark_app.page.frame import live
from spark_app.page.moments import utc
from spark_app.page.reasons import reason
from spark_app.page.said import amount
from spark_app.page.views.quarantined_record import RecordDialog
from spark_app.page.views.replay_dialog import ReplayDialog
from spark_app.page.widgets import cells, draw, failure, figure, heading, say, status, table

ROWS_PER_PAGE = 25
BY_RULES = ("", Cause.EXPECT_FAILED.value)  # the causes of records that fail a rule
SPANS = {"hour": "last hour", "day": "last day", "week": "last week"}
TITLES = {"causes": "records that came into quarantine", "rules": "rows that failed a rule, whatever its action"}
GRID = "display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 16px"
ON_ONE_LINE = "white-space: nowrap"
COLUMNS: list[dict[str, Any]] = [
    {"headerStyle": ON_ONE_LINE, "field": one["name"], "label": one["name"], "sortable": True, **one}
    for one in (
        {"name": "at", "label": "quarantined at, UTC", "align": "left", "style": ON_ONE_LINE},
        {"name": "topic", "align": "left"},
        {"name": "partition"},
        {"name": "offset"},
        {"name": "cause", "align": "left"},
        {"name": "reason", "align": "left", "sortable": False},
        {"name": "schema", "align": "left"},
    )
]
# Reached by the keyboard, too; the name of the record is a value, and never part of an expression.
OFFSET = """flat dense no-caps color=primary :label="String(props.value)"
  :aria-label="'Show the record ' + props.row.name"
"""


def show(context: PageContext) -> None:
    """Open records by cause, two charts, and the list of open records."""
    heading("Quarantine", 1)
    if not context.shows_clear_text:
        ui.label(HIDDEN).classes("trouble").props('data-testid="hidden"')
    _causes(context)
    history = _History(context)
    _Records(context, history)


def _causes(context: PageContext) -> None:
    """The open records of each cause, as the app says."""
    place = ui.element("div").classes("figures").props('data-testid="causes"')
    drawn: dict[str, float] | None = None

    def refresh() -> None:
        nonlocal drawn
        counts = context.observed.newest.counts("quarantine")
        if counts == drawn:
            return
        drawn = counts
        place.clear()
        with place:
            figure("open records", amount(sum(counts.values())))
            for cause, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
                figure(cause, amount(count), reason(cause))

    live(context, refresh)


class _History:
    """Two charts of one span."""

    def __init__(self, context: PageContext):
        self._context = context
        self._charts: dict[str, tuple[ui.echart, ui.label]] = {}
        with ui.column().classes("full-width"):
            with ui.row().classes("full-width items-center"):
                heading("Over time, UTC", 2)
                ui.space()
                self._span = ui.toggle(SPANS, value="hour", on_change=self.load)
                self._span.props('no-caps unelevated padding="4px 12px" aria-label="Span"')
            self._said = status()
            with ui.element("div").classes("full-width").style(GRID):
                for key, nothing in (
                    ("causes", "No record was quarantined in this time."),
                    ("rules", "No row failed a rule in this time."),
                ):
                    with ui.element("div").style("min-width: 0"):
                        chart = ui.echart(charts.bars(TITLES[key], {}), renderer="svg").style("height: 240px")
                        label = ui.label(nothing).classes("faint")
                        label.set_visibility(False)
                        self._charts[key] = chart, label
        ui.timer(0, self.load, once=True)

    async def load(self) -> None:
        span = self._span.value
        answer = await self._context.ask("quarantine_history", span=span)
        if span != self._span.value:
            return
        if "failed" in answer:
            failure("The events cannot be read", answer["failed"], self._said)
        else:
            say(self._said, "")
        for key, (chart, nothing) in self._charts.items():
            series = answer.get(key, {})
            nothing.set_visibility(not series and "failed" not in answer)
            chart.set_visibility(bool(series))
            draw(chart, charts.bars(TITLES[key], series))


class _Records:
    """The newest open records that the filters select."""

    def __init__(self, context: PageContext, history: _History):
        self._context = context
        self._history = history
        self._found: list[dict[str, Any]] = []
        self._asked = 0
        self._counts = context.observed.newest.counts("quarantine")
        self._detail = RecordDialog(context)
        self._replay = ReplayDialog(context, self.load)
        with ui.column().classes("full-width"):
            heading("Open records", 2)
            with ui.row().classes("full-width items-center"):
                self._filters = {name: self._select(name) for name in ("cause", "rule", "schema")}
                ui.space()
                self._refresh = ui.button("Refresh", icon="refresh", on_click=self._read_again).props("flat no-caps")
                replay = ui.button("Replay …", icon="replay", on_click=self._open_replay)
                replay.props("unelevated no-caps color=primary")
            self._meaning = ui.label()
            self._meaning.set_visibility(False)
            self._said = status().props('data-testid="records"')
            self._table = self._make_table()
        live(context, self._look)
        ui.timer(0, self.load, once=True)

    def _select(self, name: str) -> ui.select:
        chosen = ui.select({}, label=name, with_input=True, clearable=True, on_change=self._filtered)
        return chosen.props("dense outlined").style("min-width: 220px")

    def _make_table(self) -> ui.table:
        found = table("Open records", COLUMNS, "id", pagination=ROWS_PER_PAGE).props("wrap-cells")
        with cells(found, "offset"):
            button = ui.element("q-btn").props(OFFSET)
            button.on("click.stop", lambda event: self._show(event.args), js_handler="() => emit(props.row.id)")
        found.on("row-click", lambda event: self._show(event.args), js_handler="(_, row) => emit(row.id)")
        return found

    async def load(self) -> None:
        """Read the table. An answer to older filters is thrown away."""
        self._asked += 1
        asked, counts = self._asked, self._context.observed.newest.counts("quarantine")
        say(self._said, "The records are read ...")
        answer = await self._context.ask("open_records", **self.chosen)
        if asked != self._asked:
            return
        self._counts = counts
        self._look()
        if "failed" in answer:
            failure("The records cannot be read", answer["failed"], self._said)
            return
        self._found = answer["rows"]
        self._offer(answer)
        say(self._said, _sum(answer["open"], len(self._found), any(self.chosen.values())))
        self._table.rows = [_row(number, found) for number, found in enumerate(self._found)]

    async def _read_again(self) -> None:
        await self.load()
        await self._history.load()

    @property
    def chosen(self) -> dict[str, Any]:
        return {name: select.value or "" for name, select in self._filters.items()}

    def _offer(self, answer: dict[str, Any]) -> None:
        """What may be filtered by, and what is chosen now, even if no record is left of it."""
        causes = sorted(answer["causes"].items(), key=lambda each: (-each[1], each[0]))
        offered = {
            "cause": {cause: f"{cause} ({amount(count)})" for cause, count in causes},
            "rule": {name: name for name in answer["rules"]},
            "schema": {name: name for name in answer["schemas"]},
        }
        for name, select in self._filters.items():
            now = {select.value: select.value} if select.value else {}
            options = now | offered[name]
            if select.options != options:
                select.set_options(options)
        self._filters["rule"].set_visibility(bool(offered["rule"]) and self.chosen["cause"] in BY_RULES)

    async def _filtered(self) -> None:
        cause, rule = self.chosen["cause"], self._filters["rule"]
        self._meaning.set_text(reason(cause) if cause else "")
        self._meaning.set_visibility(bool(cause))
        if rule.value and cause not in BY_RULES:
            rule.set_value(None)  # calls this again
            return
        await self.load()

    def _look(self) -> None:
        """Offer to read the table again if the app has quarantined or replayed records since."""
        changed = self._context.observed.newest.counts("quarantine") != self._counts
        self._refresh.set_text("Refresh: the counts have changed" if changed else "Refresh")

    async def _show(self, number: Any) -> None:
        if type(number) is int and 0 <= number < len(self._found):
            await self._detail.show(self._found[number])

    async def _open_replay(self, event: events.ClickEventArguments) -> None:
        await self._replay.show(**self.chosen)


def _row(number: int, found: dict[str, Any]) -> dict[str, Any]:
    shown = {column["name"]: found.get(column["name"]) for column in COLUMNS}
    name = f"{found['topic']}/{found['partition']}@{found['offset']}"
    shown["at"] = utc(found["at"])
    return shown | {"id": number, "name": name, "reason": reason(found["cause"], found["detail"])}


def _sum(count: int, shown: int, filtered: bool) -> str:
    if not count:
        return "No open record matches." if filtered else "No record is open."
    said = f"{amount(count)} open record{'' if count == 1 else 's'}"
    return f"{said}." if shown == count else f"{said}; the newest {amount(shown)} are shown."
