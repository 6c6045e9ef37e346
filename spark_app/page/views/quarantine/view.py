"""The records that could not be placed: by cause and rule over time, each with its bytes, and their replay."""

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
from spark_app.page.widgets import cells, draw, failure, figure, heading, preformatted, redrawn, say, status, table
from spark_app.recovery.requests import replay_arguments, selects_some
from spark_app.recovery.result_text import replay_lines

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
COORDINATES = ("topic", "topic_id", "partition", "offset")
WIDTH = "width: min(1100px, 94vw); max-width: none"
FACTS = "display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; overflow-wrap: anywhere"
COUNTED = "The dry run has counted the records that match. Only the replay shows how many can be placed."


def show(context: PageContext) -> None:
    """Open records by cause, two charts, and the list of open records."""
    heading("Quarantine", 1)
    if not shows_clear_text(context.lake, context.settings):
        ui.label(HIDDEN).classes("trouble").props('data-testid="hidden"')
    _causes(context)
    history = _History(context)
    _Records(context, history)


def _causes(context: PageContext) -> None:
    """The open records of each cause, as the app says."""

    def draw_counts(counts: Mapping[str, float]) -> None:
        figure("open records", amount(sum(counts.values())))
        for cause, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            figure(cause, amount(count), reason(cause))

    place = ui.element("div").classes("figures").props('data-testid="causes"')
    live(context, redrawn(place, lambda: context.observed.newest.counts("quarantine"), draw_counts))


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


class RecordDialog:
    """Shows one record after the other."""

    def __init__(self, context: PageContext):
        self._context = context
        self._asked = 0
        with ui.dialog() as self._dialog, ui.card().style(WIDTH).props('data-testid="record"'):
            with ui.row().classes("full-width items-center no-wrap"):
                self._title = heading("", 2)
                ui.space()
                close = ui.button(icon="close", on_click=self._dialog.close)
                close.props('flat round dense aria-label="Close"')
            self._place = ui.column().classes("full-width").style("gap: 16px")

    async def show(self, record: dict[str, Any]) -> None:
        """`record`: a row of the job `open_records`."""
        self._asked += 1
        asked = self._asked
        self._title.set_text(f"{record['topic']}/{record['partition']}@{record['offset']}")
        self._place.clear()
        with self._place:
            status("The record is read ...")
        self._dialog.set_value(True)
        answer = await self._context.ask("record_detail", **{name: record[name] for name in COORDINATES})
        if asked != self._asked:
            return
        self._place.clear()
        with self._place:
            if "failed" in answer:
                failure("The record cannot be shown", answer["failed"])
            else:
                _draw(answer)


def _draw(answer: dict[str, Any]) -> None:
    ui.label(reason(answer["cause"], answer.get("detail", ""))).classes("trouble").props('data-testid="reason"')
    if not answer["is_open"]:
        ui.label("A replay has placed this record meanwhile.")
    times = {f"{name}, UTC": utc(at) for name, at in answer["times"].items() if at is not None}
    facts = {"cause": answer["cause"]} | times | answer["facts"]
    facts |= {"rules that it fails": ", ".join(answer["rules"])} if answer["rules"] else {}
    _pairs(facts.items())
    if answer["hidden"]:
        ui.label(HIDDEN)
        return
    for part in answer["parts"]:
        with _section(f"Decoded {part['title']}" + (f": {part['message']}" if part["message"] else "")):
            for sentence in part["said"]:
                ui.label(sentence)
            if part["text"]:
                preformatted(part["text"], f"decoded {part['title']}")
    if answer["omitted"]:
        with _section("Value"):
            ui.label(f"Only its size and digest are kept: {answer['omitted']}").style("overflow-wrap: anywhere")
    else:
        _bytes("Value", answer["value"])
    _bytes("Key", answer["key"])
    with _section("Headers"):
        _pairs(answer["headers"]) if answer["headers"] else ui.label("The record has no headers.")


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

    async def show(self, cause: str, rule: str, schema: str) -> None:
        """Open it with the filters of the view; an empty one selects all."""
        filters = {"cause": cause, "rule": rule, "schema": schema}
        chosen = ", ".join(f"{name} {value}" for name, value in filters.items() if value)
        self._which.set_text(f"Open records with {chosen}." if chosen else "All open records.")
        chosen_of = {name: [value] if value else [] for name, value in filters.items()}
        self._arguments = replay_arguments(chosen_of["cause"], chosen_of["schema"], chosen_of["rule"])
        self._dialog.set_value(True)
        result = await self._ask(dry_run=True)
        count = sum(result["candidates"].values()) if result is not None and _is_known(result) else 0
        if count:
            self._replay.set_text(f"Replay {amount(count)} record{'' if count == 1 else 's'}")
            self._replay.set_visibility(True)

    async def _carry_out(self) -> None:
        if await self._ask(dry_run=False) is not None:
            await self._done()

    async def _ask(self, dry_run: bool) -> dict[str, Any] | None:
        """The result, which is shown; None if nobody waits for it any more."""
        for element in (self._replay, self._result):
            element.set_visibility(False)
        result = await self._request.ask("replay", self._arguments, dry_run)
        if result is None or "error" in result:
            return result
        if not _is_known(result):
            say(self._request.line, "The app is of another release: its result cannot be shown.")
            return result
        done = COUNTED if dry_run else "The replay is done."
        say(self._request.line, done)
        self._result.set_text("\n".join(replay_lines(result, selects_some(self._arguments))))
        self._result.set_visibility(True)
        return result


def _is_known(result: dict[str, Any]) -> bool:
    """Whether a result has the form that `replay_lines` reads."""
    counts = [result.get("candidates"), result.get("refused", {}), result.get("resolved", {})]
    return type(result.get("waiting", 0)) is int and all(
        isinstance(one, dict) and all(type(count) is int for count in one.values()) for one in counts
    )
