"""The graph of a lake: what its tables and columns are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from spark_app.model.catalog import SchemaKey

APP = "app"  # the node of what comes from no record: the app makes it
Kind = Literal[
    "ingest",  # bronze has the records of a topic
    "decode",  # silver has the decoded records of bronze
    "message",  # silver has rows of the message type
    "quarantine",
    "defer",
    "drop",
    "replay",  # the table has records of quarantine that a replay has placed
    "record",  # the column has what the record has, whatever its message
    "derived",  # the column is computed from what the record has, such as the schema id in the frame of its value
    "field",  # the column is a field of the message
    "wrapper",  # the column has other fields of the message that carried the event
    "expression",  # the column is made by SQL of the settings
    "join",  # the column is one of a reference table
    "lookup",  # the row of the reference table is found by the value
    "key",  # gold has a row for each value
    "aggregate",
    "made",  # the app makes the column
    "unknown",  # neither the rows of the table nor the settings tell
]


@dataclass(frozen=True)
class Place:
    """A node, or a column of it.

    Attributes:
        node: the name of a table, `topic:NAME`, `message:TYPE`, `reference:NAME`, or `app`.
        column: "" = the whole node. Inside of a struct it is a path with dots.
    """

    node: str
    column: str = ""


@dataclass(frozen=True)
class By:
    """How a column is made. An attribute that says nothing is empty.

    Attributes:
        number: of the field.
        message: full name of the message that declares the field.
        schemas: those that have the field so.
        sql: the expression.
        reads: the column, as it was sent, that the expression names.
        hashed: the expression calls `hmac()`.
        on: the column, as it was sent, that is looked up.
        key: the key of the reference table.
        function: of the aggregate.
        definitions: numbers of the definitions whose rows have the column so; 0 = rows without one. Empty = all rows.
    """

    kind: Kind
    number: int = 0
    message: str = ""
    schemas: tuple[SchemaKey, ...] = ()
    sql: str = ""
    reads: str = ""
    hashed: bool = False
    on: str = ""
    key: str = ""
    function: str = ""
    definitions: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class Edge:
    """The target is made of the origin."""

    origin: Place
    target: Place
    by: By

    def to_json(self) -> dict[str, Any]:
        ends = {"from": self.origin, "to": self.target}
        places = {
            name: {"node": end.node} | ({"column": end.column} if end.column else {}) for name, end in ends.items()
        }
        return places | {"by": self.by.to_json()}


@dataclass(frozen=True)
class Node:
    """
    Attributes:
        kind: topic, bronze, silver, gold, quarantine, deferred, dropped, resolved, lost, message, reference or app.
        details: what else is known, as JSON values. A table of the lake has `exists`: whether a unit has begun it.
    """

    name: str
    kind: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Graph:
    """Nodes by their names, and the edges between them, each once."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[Edge, None] = {}

    def add(self, *nodes: Node) -> None:
        self.nodes |= {node.name: node for node in nodes}

    def connect(self, edges: Iterable[Edge]) -> None:
        self.edges |= dict.fromkeys(edges)

    def into(self, table: str, column: str) -> list[Edge]:
        """The edges to a column, and to what it contains; those to the table itself for the column ""."""
        return [edge for edge in self.edges if edge.target.node == table and _is_in(edge.target.column, column)]

    def tables(self, kind: str) -> list[str]:
        return [node.name for node in self.nodes.values() if node.kind == kind]

    def names(self) -> list[str]:
        """The names of the tables that the lake has or is about to begin."""
        return [node.name for node in self.nodes.values() if "exists" in node.details]

    def around(self, place: Place) -> Graph:
        """What a column comes from and goes to, over any number of edges. A table as a whole is no column."""
        start = {edge.target for edge in self.into(place.node, place.column)} | {place}
        found = {**self._follow(start, up=True), **self._follow(start, up=False)}
        part = Graph()
        part.connect(edge for edge in self.edges if edge in found)
        named = {place.node, *(end.node for edge in found for end in (edge.origin, edge.target))}
        part.add(*(node for node in self.nodes.values() if node.name in named))
        return part

    def _follow(self, start: set[Place], up: bool) -> dict[Edge, None]:
        by_end: dict[Place, list[Edge]] = {}
        for edge in self.edges:
            by_end.setdefault(edge.target if up else edge.origin, []).append(edge)
        found: dict[Edge, None] = {}
        seen, left = set(start), list(start)
        while left:
            for edge in by_end.get(left.pop(), ()):
                found[edge] = None
                end = edge.origin if up else edge.target
                if end.column and end not in seen:
                    seen.add(end)
                    left.append(end)
        return found

    def to_json(self) -> dict[str, Any]:
        nodes = [{"node": node.name, "kind": node.kind, **node.details} for node in self.nodes.values()]
        return {"nodes": nodes, "edges": [edge.to_json() for edge in self.edges]}


def _is_in(path: str, column: str) -> bool:
    return path == column or bool(column and path.startswith(f"{column}."))
