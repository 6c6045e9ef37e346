"""What the app does and has done: alerts, requests, the events, the starts, and the units."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from spark_app.model.text import one_line
from spark_app.page.context import PageContext
from spark_app.page.event_feed import EventFeed
from spark_app.page.moments import utc
from spark_app.page.rereading import Rereading
from spark_app.page.run_summary import Run, runs_of
from spark_app.page.said import amount, seconds
from spark_app.page.views.run_notices import RunNotices
from spark_app.page.views.run_units import RunUnits
from spark_app.page.views.timeline import Timeline
from spark_app.page.widgets import NUMBER, failure, heading, say, status, table

EVERY_S = 1.0
ASK_S = 10.0  # between two questions to the table of events, which changes all the time
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


def show(context: PageContext) -> None:
    """The events of spools are there within a second, those of the table within ten."""
    heading("Runs", 1)
    runs = _Runs(context)
    ui.timer(EVERY_S, runs.tick)
    ui.timer(EVERY_S, runs.ask_if_due)


class _Runs:
    def __init__(self, context: PageContext):
        self._context = context
        self._feed = EventFeed(context.lake)
        self._answer: dict[str, Any] = {}
        self._answers = Rereading(context, "runs", self._version, ASK_S)
        self._is_other, self._was_up = True, context.observed.newest.is_up
        self._notices = RunNotices(context)
        with ui.tabs().props("align=left no-caps dense inline-label") as tabs:
            events = ui.tab("Events", icon="list")
            starts = ui.tab("Starts", icon="restart_alt")
            units = ui.tab("Units", icon="bar_chart")
        with ui.tab_panels(tabs, value=events, animated=False, keep_alive=True).classes("full-width bg-transparent"):
            with ui.tab_panel(events).classes("q-px-none"):
                self._timeline = Timeline(self._feed, self._ask_anew)
            with ui.tab_panel(starts).classes("q-px-none"):
                self._said = status()
                self._starts = table("Starts", STARTS, "run", pagination=25).props('data-testid="starts"')
                self._starts.add_slot("body-cell-how", ENDED)
            with ui.tab_panel(units).classes("q-px-none"):
                self._units = RunUnits()

    def tick(self) -> None:
        self._notices.refresh()
        if self._feed.read_spools():
            self._show()
        elif self._context.observed.newest.is_up != self._was_up:
            self._show_starts()

    def _ask_anew(self) -> None:
        self._is_other = True
        say(self._timeline.note, "The events are read ...")

    async def ask_if_due(self) -> None:
        """Ask the table of events: at once for other events, else if it has changed and somebody looks at it."""
        if not (self._is_other or (self._answers.is_due and await _is_visible())):
            return
        self._is_other = False
        answer = await self._answers.ask(**self._timeline.question())
        if "failed" in answer:
            failure("The events cannot be read", answer["failed"], self._timeline.note)
            return
        self._answer = answer
        self._feed.set_table(answer["events"])
        self._units.show(answer)
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
        runs = runs_of(self._feed.events(), self._answer.get("sums", {}), is_up)
        bumps, failed = sum(run.is_bump for run in runs), sum(run.level == "ERROR" for run in runs)
        self._said.set_text(
            f"In the span of the events: {amount(len(runs))} starts, {amount(bumps)} ended by a bump, "
            f"{amount(failed)} by an error."
        )
        rows = [_row(run) for run in runs]
        if rows != self._starts.rows:
            self._starts.rows = rows


async def _is_visible() -> bool:
    try:
        return bool(await ui.run_javascript("return document.visibilityState === 'visible'", timeout=2.0))
    except TimeoutError:
        return False


def _row(run: Run) -> dict[str, Any]:
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
