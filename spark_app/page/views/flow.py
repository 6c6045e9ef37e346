"""The way of the records, from the topics to gold: counts, rates, ages, and what is wrong."""

from __future__ import annotations

from typing import Any

from nicegui import events, ui

from spark_app.model.text import one_line
from spark_app.page import charts
from spark_app.page.context import PageContext
from spark_app.page.flow_graph import FlowGraph, ShownTables, flow_graph
from spark_app.page.frame import live
from spark_app.page.layers import pause_text, troubled_tables
from spark_app.page.observations import NO_APP
from spark_app.page.said import ago, amount, per_second, seconds
from spark_app.page.widgets import NUMBER, draw, figure, heading, link_cells, table

ROWS_PER_PAGE = 25
SLOW_S = 5.0  # between two refreshes of the charts and of the list, which may have a thousand rows
RATE, AGE = "records/s, last minute", "age, produced to visible, s"
FIGURES = ("records/s, last minute", "age, produced to visible", "lag", "rows in bronze", "in quarantine", "deferred")
EXECUTORS = "executors, of those that the load needs"
COLUMNS: list[dict[str, Any]] = [
    {"name": "name", "label": "table", "field": "name", "align": "left", "sortable": True},
    {"name": "silver", "label": "silver rows", "field": "silver", "sortable": True, ":format": NUMBER},
    {"name": "rate", "label": "rows/s, last minute", "field": "rate", "sortable": True, ":format": NUMBER},
    {"name": "gold", "label": "gold rows", "field": "gold", "sortable": True, ":format": NUMBER},
    {"name": "new", "label": "new rows", "field": "new"},
    {"name": "state", "label": "state", "field": "state", "align": "left", "sortable": True},
]


def show(context: PageContext) -> None:
    """Figures, troubles, the graph, two charts, and the list of all tables."""
    observed = context.observed
    topics = context.settings.topics
    heading("Flow", 1)
    figures = _Figures(has_executors=observed.newest.number("executors", "now") is not None)
    troubles = ui.column().classes("full-width")
    shown = ShownTables(observed, context.layout)
    flow = flow_graph(observed, topics, context.layout, shown.names())
    with ui.element("div").style("width: 100%; overflow-x: auto").props('role=region aria-label="Graph" tabindex=0'):
        graph = ui.echart(charts.graph(flow), on_point_click=lambda event: _open(event, flow), renderer="svg")
    with ui.row().classes("full-width no-wrap"):
        rate = ui.echart(charts.lines(RATE, {}), renderer="svg").style("height: 180px; width: 50%")
        age = ui.echart(charts.lines(AGE, {}), renderer="svg").style("height: 180px; width: 50%")
    listed, drawn_at = _tables(), 0.0

    def refresh() -> None:
        nonlocal flow, drawn_at
        flow = flow_graph(observed, topics, context.layout, shown.names())
        draw(graph, charts.graph(flow))
        graph.style(f"width: {charts.width(flow)}px; height: {charts.height(flow)}px")
        figures.refresh(context)
        _show_troubles(troubles, context)
        if observed.newest.moment - drawn_at >= SLOW_S:
            drawn_at = observed.newest.moment
            told = list(observed.seconds)
            draw(rate, charts.lines(RATE, {"rate": [(one.at, one.rate) for one in told]}))
            draw(age, charts.lines(AGE, {"age": [(one.at, one.age_s) for one in told]}))
            listed.rows = _rows(context)

    live(context, refresh)


class _Figures:
    def __init__(self, has_executors: bool) -> None:
        """`has_executors`: the executors of a cluster follow the load."""
        with ui.element("div").classes("figures"):
            self._values = [figure(name) for name in ((*FIGURES, EXECUTORS) if has_executors else FIGURES)]

    def refresh(self, context: PageContext) -> None:
        reading = context.observed.newest
        up = reading.is_up
        said = (
            per_second(reading.number("rate") if up else None),
            seconds(reading.age_s),
            amount(reading.number("lag") if up else None),
            amount(reading.number("bronze")),
            amount(sum(reading.counts("quarantine").values())),
            amount(reading.number("deferred")),
        )
        executors = f"{amount(reading.number('executors', 'now'))} of {amount(reading.number('executors', 'wanted'))}"
        for label, text in zip(self._values, (*said, executors), strict=False):
            label.set_text(text)


def _open(event: events.EChartPointClickEventArguments, flow: FlowGraph) -> None:
    path = next((node.path for node in flow.nodes if node.key == event.name), "")
    if path:
        ui.navigate.to(path)


def _tables() -> ui.table:
    with ui.element("div").classes("full-width"):
        search = ui.input(placeholder="search tables").props('dense outlined clearable aria-label="Search tables"')
        order = {"rowsPerPage": ROWS_PER_PAGE, "sortBy": "silver", "descending": True}
        found = table("Silver tables", COLUMNS, "name", pagination=order)
        found.bind_filter_from(search, "value")
        link_cells(found, "name", "props.row.path")
    return found


def _rows(context: PageContext) -> list[dict[str, Any]]:
    """A row for each silver table."""
    observed = context.observed
    reading, troubled = observed.newest, troubled_tables(observed.newest, context.layout)
    gold = reading.each("tables", "gold")
    rates = ((name, rows, observed.rate_of(name)) for name, rows in reading.each("tables", "silver").items())
    return [
        {
            "name": name,
            "path": f"/tables/{context.layout.silver_of(name)}",
            "silver": rows,
            "rate": None if rate is None else round(rate, 1),
            "gold": gold.get(name),
            "new": ago(observed.silent_s(name)),
            "state": troubled.get(name, ""),
        }
        for name, rows, rate in rates
    ]


def _show_troubles(place: ui.column, context: PageContext) -> None:
    """A line for whatever keeps records from silver or gold; only drawn anew when it changes."""
    found = list(_troubles(context))
    if getattr(place, "said", None) == found:
        return
    place.said = found  # type: ignore[attr-defined]
    place.clear()
    with place:
        for line in found:
            ui.label(line).classes("trouble")


def _troubles(context: PageContext) -> list[str]:
    reading = context.observed.newest
    if context.observed.state == NO_APP:
        return ["No app has worked on this lake yet. The page follows it as soon as it starts."]
    is_fine = reading.problem is None or reading.state == "stopped"
    found = [] if is_fine else [f"The app is not healthy: {reading.problem}"]
    for name, pause in sorted(reading.objects("paused").items()):
        if isinstance(pause, dict):
            found.append(f"{name} is paused: {pause_text(pause)}")
    for key, said in sorted(reading.objects("schema_warnings", "stopped").items()):
        found.append(f"Schema {key} is kept out: {said}")
    for file, why in sorted(reading.objects("source", "named").items()):
        found.append(one_line(f"The file {file} cannot be taken: {why}"))
    for gold, why in sorted(reading.objects("gold_failed").items()):
        found.append(f"{gold} failed, and is recomputed later: {why}")
    return found
