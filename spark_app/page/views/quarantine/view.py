"""The records in quarantine: by cause and expectation over time, each with its bytes, and their replay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import events, ui

from spark_app.model.causes import Cause
from spark_app.page import charts
from spark_app.page.clear_text import HIDDEN, shows_clear_text
from spark_app.page.context import PageContext, live
from spark_app.page.format import amount, reason, size, utc
from spark_app.page.requests import RequestLine
from spark_app.page.widgets import (
    cells,
    draw,
    failure,
    figure,
    heading,
    preformatted,
    redrawn,
    set_status,
    status,
    table,
)
from spark_app.recovery.requests import replay_arguments, selects_some
from spark_app.recovery.result_text import replay_lines

ROWS_PER_PAGE = 25
BY_EXPECTATIONS = ("", Cause.EXPECT_FAILED.value)  # the causes of records that fail an expectation
SPANS = {"hour": "last hour", "day": "last day", "week": "last week"}
TITLES = {
    "causes": "records that came into quarantine",
    "rules": "rows that failed an expectation, whatever its action",
}
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
COORDINATES = ("topic", "topic_id", "partition", "offset")
WIDTH = "width: min(1100px, 94vw); max-width: none"
FACTS = "display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; overflow-wrap: anywhere"
COUNTED = "The dry run has counted the records that match. Only the replay shows how many can be inserted."


def show(context: PageContext) -> None:
    """Open records by cause, two charts, and the list of open records."""
    heading("Quarantine", 1)
    if not shows_clear_text(context.lake, context.settings):
        ui.label(HIDDEN).classes("trouble").props('data-testid="hidden"')
    _causes(context)
    history = _History(context)
    _Records(context, history)


def _causes(context: PageContext) -> None:
    """The open records of each cause, of the app's status."""

    def draw_counts(counts: Mapping[str, float]) -> None:
        figure("open records", amount(sum(counts.values())))
        for cause, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            figure(cause, amount(count), reason(cause))

    figures = ui.element("div").classes("figures").props('data-testid="causes"')
    live(context, redrawn(figures, lambda: context.observed.newest.counts("quarantine"), draw_counts))


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
            self._status = status()
            with ui.element("div").classes("full-width").style(GRID):
                for key, nothing in (
                    ("causes", "No record was quarantined in this time."),
                    ("rules", "No row failed an expectation in this time."),
                ):
                    with ui.element("div").style("min-width: 0"):
                        chart = ui.echart(charts.bars(TITLES[key], {}), renderer="svg").style("height: 240px")
                        label = ui.label(nothing).classes("faint")
                        label.set_visibility(False)
                        self._charts[key] = chart, label
        ui.timer(0, self.load, once=True)

    async def load(self) -> None:
        span = self._span.value
        result = await self._context.run_job("quarantine_history", span=span)
        if span != self._span.value:
            return
        if "failed" in result:
            failure("The events cannot be read", result["failed"], self._status)
        else:
            set_status(self._status, "")
        for key, (chart, nothing) in self._charts.items():
            series = result.get(key, {})
            nothing.set_visibility(not series and "failed" not in result)
            chart.set_visibility(bool(series))
            draw(chart, charts.bars(TITLES[key], series))


class _Records:
    """The newest open records that the filters select."""

    def __init__(self, context: PageContext, history: _History):
        self._context = context
        self._history = history
        self._found: list[dict[str, Any]] = []
        self._reads = 0
        self._counts = context.observed.newest.counts("quarantine")
        self._detail = RecordDialog(context)
        self._replay = ReplayDialog(context, self.load)
        with ui.column().classes("full-width"):
            heading("Open records", 2)
            with ui.row().classes("full-width items-center"):
                self._filters = {name: self._select(name) for name in ("cause", "expectation", "schema")}
                ui.space()
                self._refresh = ui.button("Refresh", icon="refresh", on_click=self._read_again).props("flat no-caps")
                replay = ui.button("Replay …", icon="replay", on_click=self._open_replay)
                replay.props("unelevated no-caps color=primary")
            self._meaning = ui.label()
            self._meaning.set_visibility(False)
            self._status = status().props('data-testid="records"')
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
        """Read the table. A result for older filters is thrown away."""
        self._reads += 1
        number, counts = self._reads, self._context.observed.newest.counts("quarantine")
        set_status(self._status, "The records are read ...")
        result = await self._context.run_job("open_records", **self.chosen)
        if number != self._reads:
            return
        self._counts = counts
        self._look()
        if "failed" in result:
            failure("The records cannot be read", result["failed"], self._status)
            return
        self._found = result["rows"]
        self._offer(result)
        set_status(self._status, _sum(result["open"], len(self._found), any(self.chosen.values())))
        self._table.rows = [_row(number, found) for number, found in enumerate(self._found)]

    async def _read_again(self) -> None:
        await self.load()
        await self._history.load()

    @property
    def chosen(self) -> dict[str, Any]:
        return {name: select.value or "" for name, select in self._filters.items()}

    def _offer(self, result: dict[str, Any]) -> None:
        """Offer the filters, and what is chosen now, even if no record is left of it."""
        causes = sorted(result["causes"].items(), key=lambda each: (-each[1], each[0]))
        offered = {
            "cause": {cause: f"{cause} ({amount(count)})" for cause, count in causes},
            "expectation": {name: name for name in result["rules"]},
            "schema": {name: name for name in result["schemas"]},
        }
        for name, select in self._filters.items():
            now = {select.value: select.value} if select.value else {}
            options = now | offered[name]
            if select.options != options:
                select.set_options(options)
        self._filters["expectation"].set_visibility(
            bool(offered["expectation"]) and self.chosen["cause"] in BY_EXPECTATIONS
        )

    async def _filtered(self) -> None:
        cause, expectation = self.chosen["cause"], self._filters["expectation"]
        self._meaning.set_text(reason(cause) if cause else "")
        self._meaning.set_visibility(bool(cause))
        if expectation.value and cause not in BY_EXPECTATIONS:
            expectation.set_value(None)  # calls this again
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
    found = f"{amount(count)} open record{'' if count == 1 else 's'}"
    return f"{found}." if shown == count else f"{found}; the newest {amount(shown)} are shown."


class RecordDialog:
    """Shows one record after the other."""

    def __init__(self, context: PageContext):
        self._context = context
        self._reads = 0
        with ui.dialog() as self._dialog, ui.card().style(WIDTH).props('data-testid="record"'):
            with ui.row().classes("full-width items-center no-wrap"):
                self._title = heading("", 2)
                ui.space()
                close = ui.button(icon="close", on_click=self._dialog.close)
                close.props('flat round dense aria-label="Close"')
            self._content = ui.column().classes("full-width").style("gap: 16px")

    async def show(self, record: dict[str, Any]) -> None:
        """`record`: a row of the job `open_records`."""
        self._reads += 1
        number = self._reads
        self._title.set_text(f"{record['topic']}/{record['partition']}@{record['offset']}")
        self._content.clear()
        with self._content:
            status("The record is read ...")
        self._dialog.set_value(True)
        result = await self._context.run_job("record_detail", **{name: record[name] for name in COORDINATES})
        if number != self._reads:
            return
        self._content.clear()
        with self._content:
            if "failed" in result:
                failure("The record cannot be shown", result["failed"])
            else:
                _draw(result)


def _draw(result: dict[str, Any]) -> None:
    ui.label(reason(result["cause"], result.get("detail", ""))).classes("trouble").props('data-testid="reason"')
    if not result["is_open"]:
        ui.label("A replay has inserted this record meanwhile.")
    times = {f"{name}, UTC": utc(at) for name, at in result["times"].items() if at is not None}
    facts = {"cause": result["cause"]} | times | result["facts"]
    facts |= {"expectations that it fails": ", ".join(result["rules"])} if result["rules"] else {}
    _pairs(facts.items())
    if result["hidden"]:
        ui.label(HIDDEN)
        return
    for part in result["parts"]:
        with _section(f"Decoded {part['title']}" + (f": {part['message']}" if part["message"] else "")):
            for sentence in part["said"]:
                ui.label(sentence)
            if part["text"]:
                preformatted(part["text"], f"decoded {part['title']}")
    if result["omitted"]:
        with _section("Value"):
            ui.label(f"Only its size and digest are kept: {result['omitted']}").style("overflow-wrap: anywhere")
    else:
        _bytes("Value", result["value"])
    _bytes("Key", result["key"])
    with _section("Headers"):
        _pairs(result["headers"]) if result["headers"] else ui.label("The record has no headers.")


def _section(title: str) -> ui.column:
    column = ui.column().classes("full-width").style("gap: 4px")
    with column:
        heading(title, 3)
    return column


def _pairs(pairs: Any) -> None:
    with ui.element("div").classes("full-width").style(FACTS):
        for name, value in pairs:
            ui.label(name).classes("faint")
            ui.label(value)


def _bytes(title: str, found: dict[str, Any] | None) -> None:
    with _section(f"{title}, {size(found['size'])}" if found else title):
        if found is None:
            ui.label("It is NULL.")
        elif not found["size"]:
            ui.label("It is empty.")
        else:
            if found["shown"] < found["size"]:
                ui.label(f"Only the first {size(found['shown'])} are shown.")
            preformatted(found["dump"], f"{title} as hex")


class ReplayDialog:
    """One dialog for all replays of a view. `done` is called after a replay."""

    def __init__(self, context: PageContext, done: Callable[[], Awaitable[None]]):
        self._done = done
        self._arguments: dict[str, Any] = {}
        with ui.dialog() as self._dialog, ui.card().style("width: min(760px, 94vw); max-width: none"):
            self._dialog.props('data-testid="replay"')
            heading("Replay", 2)
            self._which = ui.label().style("overflow-wrap: anywhere")
            self._request = RequestLine(context)
            self._result = preformatted("", "Result")
            with ui.row().classes("full-width justify-end"):
                self._request.add_cancel()
                ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
                self._replay = ui.button("Replay", on_click=self._carry_out)
                self._replay.props("unelevated no-caps color=primary")
        self._dialog.on("hide", self._request.end)

    async def show(self, cause: str, expectation: str, schema: str) -> None:
        """Open it with the filters of the view; an empty one selects all."""
        filters = {"cause": cause, "expectation": expectation, "schema": schema}
        chosen = ", ".join(f"{name} {value}" for name, value in filters.items() if value)
        self._which.set_text(f"Open records with {chosen}." if chosen else "All open records.")
        chosen_of = {name: [value] if value else [] for name, value in filters.items()}
        self._arguments = replay_arguments(chosen_of["cause"], chosen_of["schema"], chosen_of["expectation"])
        self._dialog.set_value(True)
        result = await self._send(dry_run=True)
        count = sum(result["candidates"].values()) if result is not None and _is_known(result) else 0
        if count:
            self._replay.set_text(f"Replay {amount(count)} record{'' if count == 1 else 's'}")
            self._replay.set_visibility(True)

    async def _carry_out(self) -> None:
        if await self._send(dry_run=False) is not None:
            await self._done()

    async def _send(self, dry_run: bool) -> dict[str, Any] | None:
        """The result, which is shown; None if nobody waits for it any more."""
        for element in (self._replay, self._result):
            element.set_visibility(False)
        result = await self._request.send("replay", self._arguments, dry_run)
        if result is None or "error" in result:
            return result
        if not _is_known(result):
            set_status(self._request.line, "The app is of another release: its result cannot be shown.")
            return result
        done = COUNTED if dry_run else "The replay is done."
        set_status(self._request.line, done)
        self._result.set_text("\n".join(replay_lines(result, selects_some(self._arguments))))
        self._result.set_visibility(True)
        return result


def _is_known(result: dict[str, Any]) -> bool:
    """Whether a result has the form that `replay_lines` reads."""
    counts = [result.get("candidates"), result.get("refused", {}), result.get("resolved", {})]
    return type(result.get("waiting", 0)) is int and all(
        isinstance(one, dict) and all(type(count) is int for count in one.values()) for one in counts
    )
