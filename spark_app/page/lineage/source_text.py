"""What a column is made of, in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from spark_app.model.catalog import SchemaKey
from spark_app.page.lineage.graph import Edge, Graph

LONGEST_SQL = 300  # characters
UNKNOWN = "unknown: neither the schemas, nor the definitions of the rows, nor the settings name it"


def source_texts(graph: Graph, edges: Iterable[Edge]) -> list[str]:
    """A text for each source of one column; an expression is one, whatever it reads."""
    kept = [edge for edge in edges if edge.by.kind != "lookup"]
    texts: list[str] = []
    for sql, own in itertools.groupby(kept, lambda edge: edge.by.sql):
        said = [_text(graph, edge) for edge in own]
        shown = sql if len(sql) <= LONGEST_SQL else f"{sql[:LONGEST_SQL]}..."
        texts += [f"{shown} from {_listed(said)}" if any(said) else shown] if sql else said
    return texts


def use_text(edge: Edge) -> str:
    """What the target does with the column that it is made of."""
    by = edge.by
    texts = {"key": "a row for each value", "aggregate": by.function, "record": "the same"}
    return texts.get(by.kind, by.kind)


def _text(graph: Graph, edge: Edge) -> str:
    by, origin = edge.by, edge.origin
    place = ".".join(part for part in (origin.node.partition(":")[2] or origin.node, origin.column) if part)
    if by.kind == "aggregate":
        lacks = f"{by.reads}, which {place} has not got" if by.reads and not origin.column else place
        return f"{by.function} of {lacks if by.reads else f'the rows of {place}'}"
    texts = {
        "key": f"{place}, a row for each value",
        "wrapper": f"the other fields of {place}",
        "join": f"{place}, looked up by {by.on}",
        "derived": f"computed from {place}",
        "made": "made by the app",
        "unknown": UNKNOWN,
    }
    if by.sql and origin.node == "app":
        return ""
    return texts.get(by.kind, f"{place}{_numbered(graph, edge)}")


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
