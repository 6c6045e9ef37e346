"""The graph of a lake: what its tables and columns are made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
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
    "replay",  # the table has records of quarantine that a replay has inserted
    "record",  # the column has what the record has, whatever its message
    "derived",  # the column is computed from what the record has, such as the schema id in the frame of its value
    "field",  # the column is a field of the message
    "wrapper",  # the column has other fields of the message that carried the event
    "expression",  # the column is made by SQL of the settings
    "join",  # the column is one of a reference table
    "lookup",  # the row of the reference table is found by the value
    "key",  # gold has a row for each value
    "aggregate",
    "statement",  # the table is made by SQL of a file
    "made",  # the app makes the column
    "unknown",  # neither the rows of the table nor the settings define it
]


@dataclass(frozen=True)
class Endpoint:
    """A node, or a column of it.

    Attributes:
        node: the name of a table, `topic:NAME`, `message:TYPE`, `reference:NAME`, or `app`.
        column: "" = the whole node. Inside of a struct it is a path with dots.
    """

    node: str
    column: str = ""


@dataclass(frozen=True)
class By:
    """How a column is made. An attribute that does not apply is empty.

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

    origin: Endpoint
    target: Endpoint
    by: By

    def to_json(self) -> dict[str, Any]:
        ends = {"from": self.origin, "to": self.target}
        endpoints = {
            name: {"node": end.node} | ({"column": end.column} if end.column else {}) for name, end in ends.items()
        }
        return endpoints | {"by": self.by.to_json()}


@dataclass(frozen=True)
class Node:
    """
    Attributes:
        kind: topic, bronze, silver, gold, sql, quarantine, deferred, dropped, resolved, lost, message, reference, app.
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
        return [edge for edge in self.edges if edge.target.node == table and is_inside(edge.target.column, column)]

    def tables(self, kind: str) -> list[str]:
        return [node.name for node in self.nodes.values() if node.kind == kind]

    def names(self) -> list[str]:
        """The names of the tables that the lake has or is about to begin."""
        return [node.name for node in self.nodes.values() if "exists" in node.details]

    def around(self, endpoint: Endpoint) -> Graph:
        """The origins and the targets of a column, over any number of edges. A table as a whole is no column."""
        start = {edge.target for edge in self.into(endpoint.node, endpoint.column)} | {endpoint}
        found = {**self._follow(start, up=True), **self._follow(start, up=False)}
        part = Graph()
        part.connect(edge for edge in self.edges if edge in found)
        named = {endpoint.node, *(end.node for edge in found for end in (edge.origin, edge.target))}
        part.add(*(node for node in self.nodes.values() if node.name in named))
        return part

    def _follow(self, start: set[Endpoint], up: bool) -> dict[Edge, None]:
        by_end: dict[Endpoint, list[Edge]] = {}
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


def is_inside(path: str, column: str) -> bool:
    return path == column or bool(column and path.startswith(f"{column}."))


LONGEST_SQL = 300  # characters
UNKNOWN = "unknown: neither the schemas, nor the definitions of the rows, nor the settings name it"


def source_texts(graph: Graph, edges: Iterable[Edge]) -> list[str]:
    """A text for each source of one column; an expression is one, whatever it reads."""
    kept = [edge for edge in edges if edge.by.kind != "lookup"]
    texts: list[str] = []
    for sql, own in itertools.groupby(kept, lambda edge: edge.by.sql):
        origins = [_text(graph, edge) for edge in own]
        shown = sql if len(sql) <= LONGEST_SQL else f"{sql[:LONGEST_SQL]}..."
        texts += [f"{shown} from {_listed(origins)}" if any(origins) else shown] if sql else origins
    return texts


def use_text(edge: Edge) -> str:
    """The use of the origin by the target."""
    by = edge.by
    texts = {"key": "a row for each value", "aggregate": by.function, "record": "the same"}
    return texts.get(by.kind, by.kind)


def _text(graph: Graph, edge: Edge) -> str:
    by, origin = edge.by, edge.origin
    name = ".".join(part for part in (origin.node.partition(":")[2] or origin.node, origin.column) if part)
    if by.kind == "aggregate":
        lacks = f"{by.reads}, which {name} has not got" if by.reads and not origin.column else name
        return f"{by.function} of {lacks if by.reads else f'the rows of {name}'}"
    texts = {
        "key": f"{name}, a row for each value",
        "wrapper": f"the other fields of {name}",
        "join": f"{name}, looked up by {by.on}",
        "derived": f"computed from {name}",
        "made": "made by the app",
        "unknown": UNKNOWN,
    }
    if by.sql and origin.node == "app":
        return ""
    return texts.get(by.kind, f"{name}{_numbered(graph, edge)}")


def _numbered(graph: Graph, edge: Edge) -> str:
    """The number of a field, and its schemas if others of the message type have it otherwise."""
    if not edge.by.number:
        return ""
    every = graph.nodes[edge.origin.node].details.get("schemas", [])
    some = f" in {schemas_text(edge.by.schemas)}" if len(edge.by.schemas) < len(every) else ""
    return f" = {edge.by.number}{some}"


def schemas_text(keys: Sequence[SchemaKey]) -> str:
    """Schema ids as ranges, and GUIDs."""
    ids, guids = [key for key in keys if isinstance(key, int)], [str(key) for key in keys if isinstance(key, str)]
    return f"schema{'s' if len(keys) > 1 else ''} {', '.join([*_ranges(ids), *guids])}"


def definitions_text(numbers: Sequence[int]) -> str:
    """Numbers of definitions as ranges; 0 = rows without one."""
    named = [number for number in numbers if number]
    parts = [f"definition{'s' if len(named) > 1 else ''} {', '.join(_ranges(named))}"] if named else []
    return " and ".join([*parts, *(["no definition"] if 0 in numbers else [])])


def _ranges(numbers: Sequence[int]) -> list[str]:
    """1, 2, 3, 7 as 1-3, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))
