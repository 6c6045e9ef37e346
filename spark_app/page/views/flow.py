"""The way of the records, from the topics to gold: counts, rates, ages, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from nicegui import events, ui

from spark_app.model.table_names import TableNames
from spark_app.model.text import one_line
from spark_app.page import charts
from spark_app.page.context import PageContext, live
from spark_app.page.format import ago, amount, per_second, seconds
from spark_app.page.metrics.reading import Reading
from spark_app.page.observations import NO_APP, Observations, gold_state, pause_text, troubled_tables
from spark_app.page.widgets import (
    COLOURS,
    INK,
    LINE,
    NUMBER,
    PALE_INK,
    PAPER,
    draw,
    heading,
    link_cells,
    live_figures,
    redrawn,
    table,
)

ROWS_PER_PAGE = 25
SLOW_S = 5.0  # between two refreshes of the charts and of the list, which may have a thousand rows
RATE, AGE = "records/s, last minute", "age, produced to visible, s"
COLUMNS: list[dict[str, Any]] = [
    {"name": "name", "label": "table", "field": "name", "align": "left", "sortable": True},
    {"name": "silver", "label": "silver rows", "field": "silver", "sortable": True, ":format": NUMBER},
    {"name": "rate", "label": "rows/s, last minute", "field": "rate", "sortable": True, ":format": NUMBER},
    {"name": "gold", "label": "gold rows", "field": "gold", "sortable": True, ":format": NUMBER},
    {"name": "new", "label": "new rows", "field": "new"},
    {"name": "state", "label": "state", "field": "state", "align": "left", "sortable": True},
]
MOST_TABLES = 12  # that the graph shows; the list below it has all
STAYS_S = 30.0
LATE_S = 60.0
BEND = 1.5  # column of the bends
COLUMN = {"topic": 0, "bronze": 1, "silver": 2, "gold": 3, "sink": 4}
WIDE, HIGH = 300, 70  # of a node and the space around it, in pixels
NODE = (232, 58)
MARGIN = 8


def show(context: PageContext) -> None:
    """Figures, troubles, the graph, two charts, and the list of all tables."""
    observed = context.observed
    topics = context.settings.topics
    heading("Flow", 1)
    live_figures(context, lambda: _figures(context))
    troubles = redrawn(ui.column().classes("full-width"), lambda: _troubles(context), _draw_troubles)
    shown = ShownTables(observed, context.layout)
    flow = flow_graph(observed, topics, context.layout, shown.names())
    with ui.element("div").style("width: 100%; overflow-x: auto").props('role=region aria-label="Graph" tabindex=0'):
        graph = ui.echart(drawing(flow), on_point_click=lambda event: _open(event, flow), renderer="svg")
    with ui.row().classes("full-width no-wrap"):
        rate = ui.echart(charts.lines(RATE, {}), renderer="svg").style("height: 180px; width: 50%")
        age = ui.echart(charts.lines(AGE, {}), renderer="svg").style("height: 180px; width: 50%")
    listed, drawn_at = _tables(), 0.0

    def refresh() -> None:
        nonlocal flow, drawn_at
        flow = flow_graph(observed, topics, context.layout, shown.names())
        draw(graph, drawing(flow))
        graph.style(f"width: {width(flow)}px; height: {height(flow)}px")
        troubles()
        if observed.newest.moment - drawn_at >= SLOW_S:
            drawn_at = observed.newest.moment
            history = list(observed.seconds)
            draw(rate, charts.lines(RATE, {"rate": [(one.at, one.rate) for one in history]}))
            draw(age, charts.lines(AGE, {"age": [(one.at, one.age_s) for one in history]}))
            listed.rows = _rows(context)

    live(context, refresh)


def _figures(context: PageContext) -> dict[str, str]:
    reading = context.observed.newest
    now, wanted = (reading.number("executors", part) for part in ("now", "wanted"))
    found = {
        "records/s, last minute": per_second(reading.number("rate") if reading.is_up else None),
        "age, produced to visible": seconds(reading.age_s),
        "lag": amount(reading.number("lag") if reading.is_up else None),
        "rows in bronze": amount(reading.number("bronze")),
        "in quarantine": amount(sum(reading.counts("quarantine").values())),
        "deferred": amount(reading.number("deferred")),
    }
    if now is not None:  # the executors of a cluster follow the load
        found["executors, of those that the load needs"] = f"{amount(now)} of {amount(wanted)}"
    return found


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


def _draw_troubles(found: list[str]) -> None:
    for line in found:
        ui.label(line).classes("trouble")


def _troubles(context: PageContext) -> list[str]:
    """A line for whatever keeps records from silver or gold."""
    reading = context.observed.newest
    if context.observed.state == NO_APP:
        return ["No app has worked on this lake yet. The page follows it as soon as it starts."]
    is_fine = reading.problem is None or reading.state == "stopped"
    found = [] if is_fine else [f"The app is not healthy: {reading.problem}"]
    for name, pause in sorted(reading.objects("paused").items()):
        if isinstance(pause, dict):
            found.append(f"{name} is paused: {pause_text(pause)}")
    for key, why in sorted(reading.objects("schema_warnings", "stopped").items()):
        found.append(f"Schema {key} is kept out: {why}")
    for key, why in sorted(reading.objects("awaited").items()):
        found.append(f"Records wait for schema {key}: {why}")
    found += [f"{setting}: {why}" for setting, why in sorted(reading.objects("faults").items())]
    for file, why in sorted(reading.objects("source", "named").items()):
        found.append(one_line(f"The file {file} cannot be ingested: {why}"))
    for gold, why in sorted(reading.objects("gold_failed").items()):
        found.append(f"{gold} failed, and is recomputed later: {why}")
    for name, sink in _sinks(reading).items():
        if sink.get("state") in ("failed", "paused", "down"):
            text = f"The sink {name} is {sink['state']}, and {sink.get('waiting', 0):,} rows wait"
            found.append(one_line(f"{text}: {sink.get('reason', '')}"))
    return found


@dataclass(frozen=True)
class Node:
    """
    Attributes:
        lines: below its name.
        colour: a word of `COLOURS`.
        path: the view that it leads to; "" = none.
    """

    key: str
    name: str
    lines: tuple[str, ...]
    colour: str
    column: int
    row: float
    path: str = ""


@dataclass(frozen=True)
class Bend:
    """Where the line from bronze to a table turns."""

    key: str
    column: float
    row: float


@dataclass(frozen=True)
class FlowGraph:
    """`edges`: keys of nodes and bends."""

    nodes: tuple[Node, ...]
    bends: tuple[Bend, ...]
    edges: tuple[tuple[str, str], ...]


def flow_graph(observed: Observations, topics: Sequence[str], layout: TableNames, shown: Sequence[str]) -> FlowGraph:
    """The graph of the newest reading, with some of the tables."""
    reading = observed.newest
    more = len(reading.objects("tables")) - len(shown)
    targets = [_silver(observed, layout, name, number) for number, name in enumerate(shown)]
    if more > 0:
        lines = (f"{amount(more)} more tables", "the list below has all")
        targets.append(Node("more", "...", lines, "calm", COLUMN["silver"], len(shown)))
    gold = [_gold(reading, layout, name, number) for number, name in enumerate(shown)]
    asides = _asides(reading, layout)
    row = max(0.0, (max(len(targets), 1) - len(asides)) / 2 - 0.5)
    bronze = _bronze(observed, layout, row)
    below = [replace(node, row=row + 1 + number) for number, node in enumerate(asides)]
    bends = [Bend(f"to {node.key}", BEND, node.row) for node in (bronze, *targets) if targets]
    edges = [("topic", "bronze"), *([("bronze", "to bronze")] if targets else [])]
    edges += [("to bronze", bend.key) for bend in bends[1:]]
    edges += [(f"to {node.key}", node.key) for node in targets]
    edges += [(f"silver/{name}", f"gold/{name}") for name in shown]
    edges += list(pairwise(("bronze", *(node.key for node in below))))
    sinks = [_sink(name, sink, number) for number, (name, sink) in enumerate(_sinks(reading).items())]
    for node, sink in zip(sinks, _sinks(reading).values(), strict=True):
        layer = str(sink.get("from", "")).partition(".")[0]  # a table by SQL is not drawn
        chosen = [name for name in shown if name in (sink.get("tables") or shown)]
        edges += [(f"{layer}/{name}", node.key) for name in chosen if layer in ("silver", "gold")]
    nodes = (_topic(observed, topics, row), bronze, *below, *targets, *gold, *sinks)
    return FlowGraph(nodes, tuple(bends), tuple(edges))


class ShownTables:
    """Which of many tables a graph shows: those in trouble, then the busiest. A choice stays for some seconds, so that
    nobody's eyes lose a table."""

    def __init__(self, observed: Observations, layout: TableNames):
        self._observed = observed
        self._layout = layout
        self._names: list[str] = []
        self._troubled: frozenset[str] = frozenset()
        self._until = 0.0

    def names(self) -> list[str]:
        """Routing names in their order."""
        reading = self._observed.newest
        silver, troubled = reading.each("tables", "silver"), frozenset(troubled_tables(reading, self._layout))
        stays = reading.moment < self._until and troubled == self._troubled and silver.keys() >= {*self._names}
        if not stays or len(self._names) < min(len(silver), MOST_TABLES):

            def weight(name: str) -> tuple[bool, float, float, str]:
                return (name not in troubled, -(self._observed.rate_of(name) or 0.0), -silver[name], name)

            self._names = sorted(sorted(silver, key=weight)[:MOST_TABLES])
            self._troubled, self._until = troubled, reading.moment + STAYS_S
        return self._names


def _topic(observed: Observations, topics: Sequence[str], row: float) -> Node:
    reading = observed.newest
    lag = reading.number("lag") if reading.is_up else None
    name = topics[0] if len(topics) == 1 else f"{len(topics)} topics"
    if reading.objects("source"):
        return _files(reading, name, row)
    waits = "lag unknown" if lag is None else f"lag {amount(lag)}"
    blocked = sum(reading.counts("held_back").values())
    lines = (waits, f"{amount(blocked)} offsets blocked") if blocked else (waits,)
    return Node("topic", name, lines, "warn" if blocked else "accent", COLUMN["topic"], row)


def _files(reading: Reading, name: str, row: float) -> Node:
    ingested, waiting, broken = (reading.number("source", part) or 0 for part in ("taken", "waiting", "broken"))
    some = [f"{amount(broken)} cannot be ingested"] if broken else []
    lines = (f"{amount(ingested)} files ingested", f"{amount(waiting)} waiting", *some)
    return Node("topic", name, lines, "warn" if broken else "accent", COLUMN["topic"], row)


def _bronze(observed: Observations, layout: TableNames, row: float) -> Node:
    reading = observed.newest
    rate = reading.number("rate") if reading.is_up else None
    age = reading.age_s
    late = age is not None and age > LATE_S and reading.number("lag") != 0
    colour = "bad" if observed.state in ("held", "dead") else "warn" if late or observed.state == "silent" else "good"
    lines = (f"{amount(reading.number('bronze'))} rows · {per_second(rate)}", f"age {seconds(age)}")
    return Node("bronze", layout.bronze, lines, colour, COLUMN["bronze"], row, f"/tables/{layout.bronze}")


def _silver(observed: Observations, layout: TableNames, name: str, row: int) -> Node:
    reading = observed.newest
    pause = reading.objects("paused").get(name)
    first = f"{amount(reading.each('tables', 'silver').get(name))} rows · {per_second(observed.rate_of(name))}"
    second, colour = f"new rows {ago(observed.silent_s(name))}", "good"
    if isinstance(pause, dict):
        how = "are let in" if pause.get("let_in") else "wait"
        second, colour = f"paused: {amount(pause.get('rows'))} rows {how}", "bad"
    table = layout.silver_of(name)
    return Node(f"silver/{name}", table, (first, second), colour, COLUMN["silver"], row, f"/tables/{table}")


def _gold(reading: Reading, layout: TableNames, name: str, row: int) -> Node:
    table, state = layout.gold_of(name), gold_state(reading, layout, layout.gold_of(name))
    lines = (f"{amount(reading.each('tables', 'gold').get(name))} rows", state)
    colour = "bad" if state == "failed" else "good"
    return Node(f"gold/{name}", table, lines, colour, COLUMN["gold"], row, f"/tables/{table}")


def _sinks(reading: Reading) -> dict[str, dict[str, Any]]:
    return {name: sink for name, sink in sorted(reading.objects("sinks").items()) if isinstance(sink, dict)}


def _sink(name: str, sink: Mapping[str, Any], row: int) -> Node:
    waiting, rejected = amount(sink.get("waiting")), sink.get("rejected")
    lines = (f"{amount(sink.get('accepted'))} rows sent · {waiting} wait", str(sink.get("state")))
    if rejected:
        lines = (lines[0], f"{lines[1]} · {amount(rejected)} rejected")
    colour = {"running": "warn" if rejected else "good", "down": "warn"}.get(str(sink.get("state")), "bad")
    return Node(f"sink/{name}", f"sink {name}", lines, colour, COLUMN["sink"], row)


def _asides(reading: Reading, layout: TableNames) -> list[Node]:
    """Records that are not in silver: quarantined, deferred and dropped records."""
    causes = reading.counts("quarantine")
    quarantined, deferred, dropped = sum(causes.values()), reading.number("deferred"), reading.number("dropped")
    worst = max(causes, key=lambda cause: causes[cause], default="")
    open_records = (f"{amount(quarantined)} open records", f"most for {worst}" if quarantined else "nothing is open")
    to_decode = (f"{amount(deferred)} records", "wait for a schema or a table")
    by_expectations = (f"{amount(dropped)} records", "by expectations")
    column, colour = COLUMN["bronze"], "warn" if deferred else "calm"
    return [
        Node("quarantine", "quarantine", open_records, "warn" if quarantined else "calm", column, 0, "/quarantine"),
        Node("deferred", "deferred", to_decode, colour, column, 0, f"/tables/{layout.deferred}"),
        Node("dropped", "dropped", by_expectations, "calm", column, 0, f"/tables/{layout.dropped}"),
    ]


def drawing(flow: FlowGraph) -> dict[str, Any]:
    """The nodes are where `flow_graph` puts them: one pixel of ECharts is one of the page."""
    return {
        "animation": False,
        "tooltip": {"show": False},
        "aria": {"enabled": True, "label": {"description": "The way of the records, from the topic to gold"}},
        "series": [
            {
                "type": "graph",
                "layout": "none",
                "left": MARGIN + NODE[0] / 2,
                "top": MARGIN + NODE[1] / 2,
                "width": width(flow) - 2 * MARGIN - NODE[0],
                "height": height(flow) - 2 * MARGIN - NODE[1],
                "symbol": "rect",
                "symbolSize": list(NODE),
                "edgeSymbol": ["none", "none"],
                "lineStyle": {"color": LINE, "width": 1.2, "curveness": 0},
                "emphasis": {"disabled": True},
                "data": [*map(_drawn_node, flow.nodes), *map(_drawn_bend, flow.bends)],
                "links": [{"source": source, "target": target} for source, target in flow.edges],
            }
        ],
    }


def width(flow: FlowGraph) -> int:
    return round(max(node.column for node in flow.nodes) * WIDE) + NODE[0] + 2 * MARGIN


def height(flow: FlowGraph) -> int:
    return round(max(node.row for node in flow.nodes) * HIGH) + NODE[1] + 2 * MARGIN


def _drawn_node(node: Node) -> dict[str, Any]:
    return {
        "id": node.key,
        "name": node.key,
        "value": node.row,  # NiceGUI hands on no click on a point without one
        "x": node.column * WIDE,
        "y": node.row * HIGH,
        "cursor": "pointer" if node.path else "default",
        "itemStyle": {"color": PAPER, "borderColor": COLOURS[node.colour], "borderWidth": 2},
        "label": {
            "show": True,
            "formatter": "\n".join((f"{{name|{charts.short(node.name)}}}", *node.lines)),
            "color": PALE_INK,
            "fontSize": 11.5,
            "lineHeight": 16,
            "rich": {"name": {"fontWeight": "bold", "fontSize": 12.5, "color": INK, "lineHeight": 18}},
        },
    }


def _drawn_bend(bend: Bend) -> dict[str, Any]:
    return {"id": bend.key, "name": bend.key, "x": bend.column * WIDE, "y": bend.row * HIGH, "symbolSize": 0.1}
