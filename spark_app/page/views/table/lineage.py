"""The origins of a table's columns, and the versions of their schemas that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_app.lake.delta.table_schema import open_table
from spark_app.lake.lake import Lake
from spark_app.model.catalog import SchemaKey
from spark_app.page.format import shortened
from spark_app.page.lineage.graph import Edge, Graph, source_texts
from spark_app.page.lineage.lake_graph import LakeGraph, RowOrigins
from spark_app.page.views.table.jobs import files_of
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings

MOST_VERSIONS = 6  # that a text names
LONGEST_TEXT = 400


def lineage(lake: Lake, settings: Settings, table: str) -> dict[str, Any]:
    """
    Returns:
        "columns": name -> {"made", "numbers", "versions"}, texts of the newest rows; "messages": the message types of
        the rows.
    """
    if table not in lake.tables() or table == settings.layout.events:
        return {"columns": {}, "messages": []}
    own = LakeGraph(settings)
    graph = own.of(table, _newest(lake, settings, table))
    columns: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        if edge.target.node == table and edge.target.column and "." not in edge.target.column:
            columns.setdefault(edge.target.column, []).append(edge)
    labels = _labels(own.ledger)
    return {
        "columns": {name: _column(graph, edges, labels) for name, edges in columns.items()},
        "messages": list(graph.nodes[table].details.get("messages", ())),
    }


def _newest(lake: Lake, settings: Settings, table: str) -> RowOrigins:
    """The definition of the newest rows, by the bounds of their file: no row is read."""
    layout = settings.layout
    silver = table
    if layout.is_gold(table):
        silver = layout.silver_of(layout.gold_name_of(table))
    if not lake.has_table(silver):
        return RowOrigins()
    files = files_of(open_table(lake, silver), silver)
    number = next((file.bounds["_definition"] for file in files), None)
    return RowOrigins(definitions={number or 0: frozenset()})


def _labels(ledger: Ledger) -> Mapping[SchemaKey, str]:
    """Names of the schemas for people, in the order in which they were resolved."""
    return {
        key: f"schema {key}" if entry.version is None else f"v{entry.version}" for key, entry in ledger.entries.items()
    }


def _column(graph: Graph, edges: Sequence[Edge], labels: Mapping[SchemaKey, str]) -> dict[str, str]:
    fields = [edge for edge in edges if edge.by.number and edge.by.kind != "lookup"]
    numbers = sorted({edge.by.number for edge in fields})
    return {
        "made": shortened("; ".join(source_texts(graph, edges)), LONGEST_TEXT),
        "numbers": ", ".join(map(str, numbers)),
        "versions": "; ".join(_versions(graph, fields, labels)),
    }


def _versions(graph: Graph, fields: Sequence[Edge], labels: Mapping[SchemaKey, str]) -> list[str]:
    """For each message that has the column a text such as "since v2"."""
    having: dict[str, set[SchemaKey]] = {}
    for edge in fields:
        having.setdefault(edge.origin.node, set()).update(edge.by.schemas)
    texts = []
    for node, keys in having.items():
        every = [one["schema"] for one in graph.nodes[node].details.get("schemas", ())]
        text = versions_text([labels.get(key, f"schema {key}") for key in every], [key in keys for key in every])
        texts.append(text if len(having) == 1 else f"{node.partition(':')[2]}: {text}")
    return texts


def versions_text(names: Sequence[str], has: Sequence[bool]) -> str:
    """Which of the versions, oldest first, have a column."""
    found = [number for number, one in enumerate(has) if one]
    if not found:
        return ""
    first, last = found[0], found[-1]
    if len(found) == len(names):
        return "all" if len(names) > 1 else names[0]
    if len(found) == last - first + 1 and len(found) > 1:
        return f"since {names[first]}" if last == len(names) - 1 else f"{names[first]} to {names[last]}"
    if first == last == len(names) - 1:
        return f"since {names[first]}"
    more = f" and {len(found) - MOST_VERSIONS} more" if len(found) > MOST_VERSIONS else ""
    return ", ".join(names[number] for number in found[:MOST_VERSIONS]) + more
