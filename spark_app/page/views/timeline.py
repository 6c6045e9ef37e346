"""The events of the lake as a table, the newest first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nicegui import ui

from spark_app.model.text import one_line
from spark_app.page.event_feed import GROUPS, LEVELS, MOST, QUIET, EventFeed, ToldEvent, details_text
from spark_app.page.moments import utc
from spark_app.page.said import amount
from spark_app.page.style import OF_LEVEL
from spark_app.page.widgets import say, status, table

SPANS = {3600: "hour", 86_400: "day", 604_800: "week", 0: "all"}
FROM_LEVEL = {"INFO": "all levels", "WARN": "warnings and errors", "ERROR": "errors"}
COLUMNS: list[dict[str, Any]] = [
    {"name": "more", "label": "", "field": "id", "align": "left"},
    {"name": "at", "label": "time, UTC", "field": "at", "align": "left"},
    {"name": "level", "label": "level", "field": "level", "align": "left"},
    {"name": "kind", "label": "kind", "field": "kind", "align": "left"},
    {"name": "message", "label": "what happened", "field": "message", "align": "left"},
    {"name": "found", "label": "", "field": "found", "classes": "hidden", "headerClasses": "hidden"},
]
ROW = """
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


class Timeline:
    """The filters and the table. `asked` is called when somebody asks for other events."""

    def __init__(self, feed: EventFeed, asked: Callable[[], None]):
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
        self._table = table("Events", COLUMNS, "id", pagination=50).props('data-testid="timeline"')
        self._table.bind_filter_from(search, "value")
        self._table.add_slot("body", ROW)
        self._name_groups()
        for chosen in (self._span, self._level, self._groups):
            chosen.on_value_change(self._name_groups)
            chosen.on_value_change(asked)

    def question(self) -> dict[str, Any]:
        """The arguments of the job `runs`."""
        span = self._span.value
        return {
            "since": time.time() - span if span else None,
            "groups": list(self._groups.value or ()),
            "levels": list(LEVELS[LEVELS.index(self._level.value) :]),
        }

    def show(self) -> None:
        rows = [_row(event) for event in self._feed.shown(**self.question())]
        if rows != self._table.rows:
            self._table.rows = rows
        newest = f"The newest {MOST} events are shown." if len(rows) == MOST else f"{amount(len(rows))} events."
        troubles = "".join(
            f" The spool of {one_line(w)} cannot be read: {why}." for w, why in self._feed.troubles.items()
        )
        say(self.note, newest + troubles)

    def _name_groups(self) -> None:
        chosen = self._groups.value or []
        self._groups.props["display-value"] = f"{len(chosen)} of {len(GROUPS)} kinds"
        self._groups.update()


def _row(event: ToldEvent) -> dict[str, Any]:
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
