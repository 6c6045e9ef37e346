"""What the app does and has done: alerts, requests, the events, the starts, and the units."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nicegui import ui

from spark_app.model.errors import ContractError
from spark_app.model.text import one_line
from spark_app.page import charts
from spark_app.page.context import PageContext, RepeatedJob
from spark_app.page.files import PageFiles
from spark_app.page.format import amount, moment_of, seconds, utc
from spark_app.page.requests import PendingRequest, cancel, pending_requests
from spark_app.page.views.runs.events import (
    GROUPS,
    LEVELS,
    MOST,
    QUIET,
    EventFeed,
    Run,
    ShownEvent,
    details_text,
    runs_of,
)
from spark_app.page.widgets import NUMBER, OF_LEVEL, draw, failure, heading, redrawn, set_status, status, table

EVERY_S = 1.0
READ_S = 10.0  # between two reads of the table of events, which changes all the time
STARTS: list[dict[str, Any]] = [
    {"name": "run", "label": "run", "field": "run", "align": "left"},
    {"name": "started", "label": "started, UTC", "field": "started", "align": "left", "sortable": True},
    {"name": "how", "label": "ended", "field": "how", "align": "left"},
    {"name": "lasted", "label": "lasted", "field": "lasted"},
    {"name": "units", "label": "units", "field": "units", "sortable": True, ":format": NUMBER},
    {"name": "records", "label": "records", "field": "records", "sortable": True, ":format": NUMBER},
]
ENDED = """<q-td :props="props"><span :class="props.row.colour"><q-icon :name="props.row.icon" size="18px"
aria-hidden="true" /> {{ props.value }}</span></q-td>"""
SPANS = {3600: "hour", 86_400: "day", 604_800: "week", 0: "all"}
FROM_LEVEL = {"INFO": "all levels", "WARN": "warnings and errors", "ERROR": "errors"}
EVENT_COLUMNS: list[dict[str, Any]] = [
    {"name": "more", "label": "", "field": "id", "align": "left"},
    {"name": "at", "label": "time, UTC", "field": "at", "align": "left"},
    {"name": "level", "label": "level", "field": "level", "align": "left"},
    {"name": "kind", "label": "kind", "field": "kind", "align": "left"},
    {"name": "message", "label": "what happened", "field": "message", "align": "left"},
    {"name": "found", "label": "", "field": "found", "classes": "hidden", "headerClasses": "hidden"},
]
EVENT_ROW = """
<q-tr :props="props">
  <q-td auto-width><q-btn flat round dense size="sm" :icon="props.expand ? 'expand_less' : 'expand_more'"
    :aria-label="'Details of the event ' + props.row.kind" :aria-expanded="props.expand ? 'true' : 'false'"
    v-if="props.row.found" @click="props.expand = !props.expand" /></q-td>
  <q-td auto-width>{{ props.row.at }}</q-td>
  <q-td auto-width><span :class="props.row.colour"><q-icon :name="props.row.icon" size="18px" aria-hidden="true" />
    {{ props.row.level }}</span></q-td>
  <q-td auto-width>{{ props.row.kind }}</q-td>
  <q-td style="white-space: normal; overflow-wrap: anywhere">{{ props.row.message }}</q-td>
</q-tr>
<q-tr v-if="props.expand" :props="props"><q-td colspan="100%">
  <div class="event-details">{{ props.row.found }}</div></q-td></q-tr>
"""
CSS = """
.event-details { font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  padding: 6px 12px 6px 44px; }
"""
MOST_RANGES = 5  # partitions that a row names
ORDERS = {"newest": "newest", "slowest": "slowest"}
UNIT_COLUMNS: list[dict[str, Any]] = [
    {"name": "unit", "label": "unit", "field": "unit", "sortable": True},
    {"name": "at", "label": "time, UTC", "field": "at", "align": "left", "sortable": True},
    {"name": "kind", "label": "kind", "field": "kind", "align": "left", "sortable": True},
    {"name": "records", "label": "records", "field": "records", "sortable": True, ":format": NUMBER},
    {"name": "seconds", "label": "seconds", "field": "seconds", "sortable": True, ":format": NUMBER},
    {"name": "range", "label": "offsets", "field": "range", "align": "left"},
]
STEPS = {"name": "steps", "label": "shares of the time of tasks", "field": "steps", "align": "left"}
Series = dict[str, list[tuple[float, float | None]]]


def show(context: PageContext) -> None:
    """The events of spools are there within a second, those of the table within ten."""
    heading("Runs", 1)
    runs = _Runs(context)
    ui.timer(EVERY_S, runs.tick)
    ui.timer(EVERY_S, runs.read_if_due)


class _Runs:
    def __init__(self, context: PageContext):
        self._context = context
        self._feed = EventFeed(context.lake)
        self._result: dict[str, Any] = {}
        self._job = RepeatedJob(context, "runs", self._version, READ_S)
        self._is_other, self._was_up = True, context.observed.newest.is_up
        self._notices = redrawn(
            ui.column().classes("full-width").style("gap: 8px"),
            lambda: (_firing(context), pending_requests(context.lake, context.observed.newest.is_up)),
            lambda found: _draw_notices(context, *found),
        )
        with ui.tabs().props("align=left no-caps dense inline-label") as tabs:
            events = ui.tab("Events", icon="list")
            starts = ui.tab("Starts", icon="restart_alt")
            units = ui.tab("Units", icon="bar_chart")
        with ui.tab_panels(tabs, value=events, animated=False, keep_alive=True).classes("full-width bg-transparent"):
            with ui.tab_panel(events).classes("q-px-none"):
                self._timeline = Timeline(self._feed, self._read_anew)
            with ui.tab_panel(starts).classes("q-px-none"):
                self._status = status()
                self._starts = table("Starts", STARTS, "run", pagination=25).props('data-testid="starts"')
                self._starts.add_slot("body-cell-how", ENDED)
            with ui.tab_panel(units).classes("q-px-none"):
                self._units = RunUnits()

    def tick(self) -> None:
        self._notices()
        if self._feed.read_spools():
            self._show()
        elif self._context.observed.newest.is_up != self._was_up:
            self._show_starts()

    def _read_anew(self) -> None:
        self._is_other = True
        set_status(self._timeline.note, "The events are read ...")

    async def read_if_due(self) -> None:
        """Read the table of events: at once for other events, else if it has changed and somebody looks at it."""
        if not (self._is_other or (self._job.is_due and await _is_visible())):
            return
        self._is_other = False
        result = await self._job.run(**self._timeline.filters())
        if "failed" in result:
            failure("The events cannot be read", result["failed"], self._timeline.note)
            return
        self._result = result
        self._feed.set_table(result["events"])
        self._units.show(result)
        self._show()

    def _version(self) -> str:
        """The newest file in the log of the table of events."""
        keys = self._context.lake.storage.list(f"{self._context.layout.events}/_delta_log")
        return max((key for key in keys if key.endswith(".json")), default="")

    def _show(self) -> None:
        self._timeline.show()
        self._show_starts()

    def _show_starts(self) -> None:
        self._was_up = is_up = self._context.observed.newest.is_up
        runs = runs_of(self._feed.events(), self._result.get("sums", {}), is_up)
        bumps, failed = sum(run.is_bump for run in runs), sum(run.level == "ERROR" for run in runs)
        self._status.set_text(
            f"In the span of the events: {amount(len(runs))} starts, {amount(bumps)} ended by a bump, "
            f"{amount(failed)} by an error."
        )
        rows = [_start_row(run) for run in runs]
        if rows != self._starts.rows:
            self._starts.rows = rows


async def _is_visible() -> bool:
    try:
        return bool(await ui.run_javascript("return document.visibilityState === 'visible'", timeout=2.0))
    except TimeoutError:
        return False


def _start_row(run: Run) -> dict[str, Any]:
    icon, colour = ("error", "bad") if run.level == "ERROR" else ("check_circle", "good")
    icon, colour = ("restart_alt", "calm") if run.is_bump else (icon, colour)
    return {
        "run": one_line(run.id),
        "started": utc(run.started),
        "how": one_line(run.how),
        "icon": "play_circle" if run.how == "runs" else icon,
        "colour": f"is-{colour}",
        "lasted": seconds(run.lasted(time.time())),
        "units": run.units,
        "records": run.records,
    }


def _draw_notices(context: PageContext, alerts: list[tuple[str, str]], pending: list[PendingRequest]) -> None:
    """Alerts that fire, and requests that are not done."""
    if alerts:
        heading("Alerts that fire", 2)
    for level, message in alerts:
        icon, colour = OF_LEVEL.get(level, OF_LEVEL["INFO"])
        with ui.row().classes("trouble items-center no-wrap").props('data-testid="alert"'):
            ui.icon(icon, size="20px").classes(f"is-{colour}").props("aria-hidden=true")
            ui.label(message).style("overflow-wrap: anywhere")
    if pending:
        heading("Requests that are not done", 2)
    for one in pending:
        with ui.row().classes("card items-center no-wrap").props('data-testid="pending"'):
            ui.icon("pending_actions", size="22px").classes("is-calm").props("aria-hidden=true")
            with ui.column().classes("col").style("gap: 2px"):
                ui.label(one.description).style("overflow-wrap: anywhere")
                ui.label(one.progress).classes("faint")
            button = ui.button("Cancel", on_click=lambda id=one.id: ui.notify(cancel(context.lake, id, context.user)))
            button.props("no-caps outline").props["aria-label"] = f"Cancel request {one.id}"


def _firing(context: PageContext) -> list[tuple[str, str]]:
    """(level, sentence) of each alert that fires, by the states that the page itself keeps."""
    try:
        firing = PageFiles(context.lake).read_alerts().get("firing")
    except (OSError, ContractError):
        return []
    found = firing.values() if isinstance(firing, dict) else ()
    return [(str(one.get("level")), _alert_text(one)) for one in found if isinstance(one, dict)]


def _alert_text(alert: dict[str, Any]) -> str:
    message, at = str(alert.get("message", "")), utc(moment_of(alert.get("at")))
    return one_line(f"{message[:1].upper()}{message[1:]}, since {at} UTC")


class Timeline:
    """The filters, and the events as a table, the newest first. `on_change` is called when they change."""

    def __init__(self, feed: EventFeed, on_change: Callable[[], None]):
        ui.add_css(CSS)
        self._feed = feed
        with ui.row().classes("items-center full-width").style("gap: 12px"):
            self._span = ui.toggle(SPANS, value=86_400).props(
                'no-caps unelevated padding="4px 12px" aria-label="Span of time"'
            )
            self._level = ui.select(FROM_LEVEL, value="INFO").props('dense outlined aria-label="Level"')
            self._groups = ui.select(list(GROUPS), value=list(QUIET), multiple=True)
            self._groups.props('dense outlined options-dense aria-label="Kinds" display-value=""')
            self._groups.style("min-width: 180px")
            search = ui.input(placeholder="search events").props('dense outlined clearable aria-label="Search events"')
        self.note = status("The events are read ...")
        self._table = table("Events", EVENT_COLUMNS, "id", pagination=50).props('data-testid="timeline"')
        self._table.bind_filter_from(search, "value")
        self._table.add_slot("body", EVENT_ROW)
        self._name_groups()
        for chosen in (self._span, self._level, self._groups):
            chosen.on_value_change(self._name_groups)
            chosen.on_value_change(on_change)

    def filters(self) -> dict[str, Any]:
        """The arguments of the job `runs`."""
        span = self._span.value
        return {
            "since": time.time() - span if span else None,
            "groups": list(self._groups.value or ()),
            "levels": list(LEVELS[LEVELS.index(self._level.value) :]),
        }

    def show(self) -> None:
        rows = [_event_row(event) for event in self._feed.shown(**self.filters())]
        if rows != self._table.rows:
            self._table.rows = rows
        newest = f"The newest {MOST} events are shown." if len(rows) == MOST else f"{amount(len(rows))} events."
        troubles = "".join(
            f" The spool of {one_line(w)} cannot be read: {why}." for w, why in self._feed.troubles.items()
        )
        set_status(self.note, newest + troubles)

    def _name_groups(self) -> None:
        chosen = self._groups.value or []
        self._groups.props["display-value"] = f"{len(chosen)} of {len(GROUPS)} kinds"
        self._groups.update()


def _event_row(event: ShownEvent) -> dict[str, Any]:
    icon, colour = OF_LEVEL[event.level]
    where = f"{event.table}: " if event.table and event.table not in event.message else ""
    about = [f"unit: {event.unit}"] if event.unit is not None else []
    about += [f"run: {one_line(event.run)}"] if event.run else []
    return {
        "id": event.id,
        "at": utc(event.at),
        "level": event.level,
        "icon": icon,
        "colour": f"is-{colour}",
        "kind": one_line(event.kind),
        "message": one_line(where + event.message),
        "found": "\n".join(filter(None, (details_text(event.details), *about))),
    }


class RunUnits:
    """The units of the last hour as charts, and the newest and the slowest ones as a table."""

    def __init__(self) -> None:
        self._result: dict[str, Any] = {}
        with ui.row().classes("full-width no-wrap"):
            self._records = ui.echart(charts.bars("records per minute", {}), renderer="svg")
            self._seconds = ui.echart(charts.lines("seconds per unit", {}), renderer="svg")
            for chart in (self._records, self._seconds):
                chart.style("height: 220px; width: 50%")
        self._steps = ui.echart(charts.bars("seconds by step", {}), renderer="svg").classes("full-width")
        self._steps.style("height: 240px").props('data-testid="steps"').set_visibility(False)
        with ui.row().classes("items-center").style("gap: 12px"):
            heading("Units", 2)
            self._order = ui.toggle(ORDERS, value="newest", on_change=self._list)
            self._order.props('no-caps unelevated padding="4px 12px" aria-label="Which units"')
        self._table = table("Units", UNIT_COLUMNS, "unit", pagination=15).props('data-testid="units"')

    def show(self, result: dict[str, Any]) -> None:
        """`result` is that of the job `runs`."""
        self._result = result
        minutes, steps = result["minutes"], result["steps"]
        draw(self._records, charts.bars("records per minute, last hour", _records(minutes)))
        draw(self._seconds, charts.lines("seconds per unit, last hour", _seconds(minutes)))
        self._steps.set_visibility(bool(steps))
        if steps:
            title = "seconds by step, per minute, summed over tasks; read includes waiting for Kafka"
            draw(self._steps, charts.bars(title, by_minute(steps)))
        self._list()

    def _list(self) -> None:
        rows = [_unit_row(unit) for unit in self._result.get(self._order.value, [])]
        columns = [*UNIT_COLUMNS, STEPS] if any(row["steps"] for row in rows) else UNIT_COLUMNS
        if columns != self._table.columns:
            self._table.columns = columns
        if rows != self._table.rows:
            self._table.rows = rows


def _records(minutes: list[list[Any]]) -> Series:
    """By kind of unit."""
    return by_minute((minute, kind, records) for minute, kind, _, records, _, _ in minutes)


def _seconds(minutes: list[list[Any]]) -> Series:
    """The mean and the longest of each minute."""
    sums: dict[float, tuple[int, float, float]] = {}
    for minute, _, units, _, spent, longest in minutes:
        if spent is not None:
            many, total, most = sums.get(minute, (0, 0.0, 0.0))
            sums[minute] = (many + units, total + spent, max(most, longest))
    if not sums:
        return {}
    return {
        "mean": [(minute, round(total / many, 3)) for minute, (many, total, _) in sums.items()],
        "longest": [(minute, round(most, 3)) for minute, (_, _, most) in sums.items()],
    }


def by_minute(values: Iterable[Sequence[Any]]) -> Series:
    """(minute, name, value) as series by name. ECharts stacks points by position, so all get the same minutes."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    for minute, name, value in values:
        found[charts.short(name)][minute] = round(value or 0.0, 3)
    minutes = sorted({minute for points in found.values() for minute in points})
    return {name: [(minute, points.get(minute, 0.0)) for minute in minutes] for name, points in found.items()}


def _unit_row(unit: dict[str, Any]) -> dict[str, Any]:
    details = unit["details"]
    return {
        "unit": unit["unit"],
        "at": utc(unit["at"]),
        "kind": one_line(str(details.get("kind", "-"))),
        "records": _number(details.get("records")),
        "seconds": _number(details.get("seconds")),
        "range": _range(details.get("range")),
        "steps": steps_text(details.get("steps")),
    }


def steps_text(steps: Any) -> str:
    """The share of each step, the longest first; "" if they are not known."""
    numbers = {name: _number(value) for name, value in steps.items()} if isinstance(steps, dict) else {}
    known = {name: value for name, value in numbers.items() if value is not None and value > 0}
    total = sum(known.values())
    longest = sorted(known.items(), key=lambda one: -one[1])
    return one_line(", ".join(f"{name} {value / total:.0%}" for name, value in longest))


def _range(value: Any) -> str:
    if not isinstance(value, dict):
        return "-"
    pairs = [(name, pair) for name, pair in value.items() if isinstance(pair, list) and len(pair) == 2]
    ranges = ", ".join(f"{name} {_offset(pair[0])} to {_offset(pair[1])}" for name, pair in pairs[:MOST_RANGES])
    return one_line(ranges + (f" and {len(pairs) - MOST_RANGES} more" if len(pairs) > MOST_RANGES else ""))


def _offset(value: Any) -> str:
    return amount(_number(value))


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
