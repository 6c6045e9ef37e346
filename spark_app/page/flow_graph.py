"""The way of the records as a graph: which nodes there are, what they say, and where they stand. No drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from spark_app.model.table_names import TableNames
from spark_app.page.layers import gold_state, troubled_tables
from spark_app.page.metrics.reading import Reading
from spark_app.page.observations import Observations
from spark_app.page.said import ago, amount, per_second, seconds

MOST_TABLES = 12  # that the graph shows; the list below it has all
STAYS_S = 30.0
LATE_S = 60.0
BEND = 1.5  # column of the bends
COLUMN = {"topic": 0, "bronze": 1, "silver": 2, "gold": 3}


@dataclass(frozen=True)
class Node:
    """
    Attributes:
        lines: what it says below its name.
        colour: a word of `style.COLOURS`.
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
    """A place where the line from bronze to a table turns."""

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
    targets = [_silver(observed, layout, name, row) for row, name in enumerate(shown)]
    if more > 0:
        lines = (f"{amount(more)} more tables", "the list below has all")
        targets.append(Node("more", "...", lines, "calm", COLUMN["silver"], len(shown)))
    gold = [_gold(reading, layout, name, row) for row, name in enumerate(shown)]
    asides = _asides(reading, layout)
    place = max(0.0, (max(len(targets), 1) - len(asides)) / 2 - 0.5)
    bronze = _bronze(observed, layout, place)
    below = [replace(node, row=place + 1 + number) for number, node in enumerate(asides)]
    bends = [Bend(f"to {node.key}", BEND, node.row) for node in (bronze, *targets) if targets]
    edges = [("topic", "bronze"), *([("bronze", "to bronze")] if targets else [])]
    edges += [("to bronze", bend.key) for bend in bends[1:]]
    edges += [(f"to {node.key}", node.key) for node in targets]
    edges += [(f"silver/{name}", f"gold/{name}") for name in shown]
    edges += list(pairwise(("bronze", *(node.key for node in below))))
    return FlowGraph((_topic(observed, topics, place), bronze, *below, *targets, *gold), tuple(bends), tuple(edges))


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
    taken, waiting, broken = (reading.number("source", part) or 0 for part in ("taken", "waiting", "broken"))
    some = [f"{amount(broken)} cannot be taken"] if broken else []
    lines = (f"{amount(taken)} files taken", f"{amount(waiting)} waiting", *some)
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
    table, state = layout.gold_of(name), gold_state(reading, layout, name)
    lines = (f"{amount(reading.each('tables', 'gold').get(name))} rows", state)
    colour = "bad" if state == "failed" else "good"
    return Node(f"gold/{name}", table, lines, colour, COLUMN["gold"], row, f"/tables/{table}")


def _asides(reading: Reading, layout: TableNames) -> list[Node]:
    """What is not in silver: quarantined, deferred and dropped records."""
    causes = reading.counts("quarantine")
    quarantined, deferred, dropped = sum(causes.values()), reading.number("deferred"), reading.number("dropped")
    worst = max(causes, key=lambda cause: causes[cause], default="")
    open_records = (f"{amount(quarantined)} open records", f"most for {worst}" if quarantined else "nothing is open")
    to_decode = (f"{amount(deferred)} records", "wait for a schema or a table")
    by_rules = (f"{amount(dropped)} records", "by expectations")
    column, colour = COLUMN["bronze"], "warn" if deferred else "calm"
    return [
        Node("quarantine", "quarantine", open_records, "warn" if quarantined else "calm", column, 0, "/quarantine"),
        Node("deferred", "deferred", to_decode, colour, column, 0, f"/tables/{layout.deferred}"),
        Node("dropped", "dropped", by_rules, "calm", column, 0, f"/tables/{layout.dropped}"),
    ]
