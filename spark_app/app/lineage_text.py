"""The graph of a lake, of a table and of a column as text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spark_app.model.catalog import SchemaKey
from spark_app.model.text import one_line
from spark_app.page.lineage.graph import Edge, Endpoint, Graph, definitions_text, is_inside, source_texts, use_text
from spark_app.protobuf.schemas.ledger import Ledger

WIDTH = 100
WIDEST = 38  # of the left column
MOST = 20  # tables or schemas
SIDE = ("quarantine", "deferred", "dropped", "resolved", "lost")


def overview_lines(graph: Graph, ledger: Ledger) -> list[str]:
    """The lake in short, and its first silver tables."""
    silver, gold = graph.tables("silver"), graph.tables("gold")
    outcomes = Counter(entry.outcome for entry in ledger.entries.values())
    rows = [
        ("topics", _few(_plain(graph.tables("topic")))),
        ("bronze", ", ".join(graph.tables("bronze"))),
        ("schemas", ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())) or "none"),
        ("message types", f"{len(graph.tables('message')):,}"),
        ("silver", f"{len(silver):,} tables"),
        ("gold", f"{len(gold):,} tables"),
        *([("tables by SQL", _few(graph.tables("sql")))] if graph.tables("sql") else []),
        ("side outputs", ", ".join(_side_outputs(graph)) or "none"),
        ("reference tables", _few(_plain(graph.tables("reference"))) or "none"),
    ]
    lines = [*_block(rows, 0), ""]
    makes = {edge.origin.node: edge.target.node for edge in graph.edges if edge.target.node in set(gold)}
    tables = []
    for table in silver[:MOST]:
        messages = graph.nodes[table].details["messages"]
        tables.append((table, f"{_few(messages)} -> {makes[table]}" if table in makes else _few(messages)))
    lines += _block(tables, 0)
    if len(silver) > MOST:
        lines.append(f"and {len(silver) - MOST:,} more silver tables")
    return [*lines, *([""] if silver else []), "`lineage TABLE` shows the columns of a table"]


def table_lines(graph: Graph, table: str) -> list[str]:
    """The origins and targets of a table, and those of its columns."""
    node = graph.nodes[table]
    title = f"{table}: {node.kind}"
    if "rows" in node.details:
        title += f", {_rows(node.details['rows'])}"
    if not node.details["exists"]:
        title += ", which no unit has begun yet"
    above = _neighbours(graph, (edge for edge in graph.edges if edge.target.node == table), up=True)
    below = _neighbours(graph, (edge for edge in graph.edges if edge.origin.node == table), up=False)
    above = [*((("topic", _few(node.details["topics"])),) if node.details.get("topics") else ()), *above]
    lines = [title, *_titled("comes from", above), *_titled("goes to", below)]
    if node.kind == "sql":
        lines += _titled("made by", [(node.details["statement"], node.details["mode"])])
    if node.kind in ("bronze", "silver"):
        lines += _titled("side outputs", [(kind, name) for name, kind in _side_outputs(graph).items()])
    if node.kind == "silver":
        lines += _titled("schemas", _schema_rows(graph, table))
    lines += _titled(_columns_title(graph, table), _column_rows(graph, table, _newest(graph, table)))
    if node.kind == "silver":
        lines += _titled("dropped", _dropped_rows(node.details["dropped"]))
        lines += _older(graph, table)
    return [one_line(line) for line in lines]


def column_lines(graph: Graph, endpoint: Endpoint) -> list[str]:
    """The origins of a column, up to the fields, and its targets, down to the aggregates.

    Args:
        graph: the result of `Graph.around`.
    """
    lines = [f"{endpoint.node}.{endpoint.column}", "  comes from"]
    lines += _ancestors(graph, endpoint, 2, frozenset()) or ["    nothing that is known"]
    below = []
    for edge in graph.edges:
        if edge.origin.node == endpoint.node and is_inside(edge.origin.column, endpoint.column):
            below.append((f"{edge.target.node}.{edge.target.column}", use_text(edge)))
    more = [("", f"and {len(below) - MOST:,} more")] if len(below) > MOST else []
    lines += _titled("goes to", [*below[:MOST], *more])
    return [one_line(line) for line in lines]


def _ancestors(graph: Graph, endpoint: Endpoint, depth: int, seen: frozenset[Endpoint]) -> list[str]:
    edges = graph.into(endpoint.node, endpoint.column)
    lines = []
    for (path, numbers), own in _by_target(edges).items():
        inside = f"{path}: " if path != endpoint.column else ""
        rows = f" (rows of {definitions_text(numbers)})" if numbers else ""
        texts = [f"{inside}{text}{rows}" for text in source_texts(graph, own)]
        if path == endpoint.column or _is_renamed(own):
            for text in texts:
                lines += textwrap.wrap(text, WIDTH, initial_indent="  " * depth, subsequent_indent="  " * (depth + 2))
    origins = dict.fromkeys(edge.origin for edge in edges if edge.origin.column)
    for origin in origins:
        if origin not in seen and graph.into(origin.node, origin.column):
            lines += _ancestors(graph, origin, depth + 1, seen | {origin})
    return lines


def _by_target(edges: Iterable[Edge]) -> dict[tuple[str, tuple[int, ...]], list[Edge]]:
    found: dict[tuple[str, tuple[int, ...]], list[Edge]] = {}
    for edge in edges:
        found.setdefault((edge.target.column, edge.by.definitions), []).append(edge)
    return found


def _newest(graph: Graph, table: str) -> tuple[int, ...]:
    return tuple(graph.nodes[table].details.get("definitions", ()))


def _columns_title(graph: Graph, table: str) -> str:
    older = graph.nodes[table].details.get("older_definitions")
    return f"columns, in rows of {definitions_text(_newest(graph, table))}" if older else "columns"


def _column_rows(graph: Graph, table: str, newest: Sequence[int]) -> Iterator[tuple[str, str]]:
    """(column, what it is made of) in the newest rows; of the fields inside of a column only those that have another
    name."""
    by_column: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        if edge.target.node == table and edge.target.column:
            by_column.setdefault(edge.target.column, []).append(edge)
    for column, edges in by_column.items():
        now = [edge for edge in edges if not edge.by.definitions or set(edge.by.definitions) & set(newest)]
        if "." not in column or _is_renamed(now):
            yield column, "; ".join(source_texts(graph, now)) or "NULL in new rows"


def _dropped_rows(dropped: Mapping[str, Sequence[Mapping[str, str]]]) -> Iterator[tuple[str, str]]:
    for name, endpoints in dropped.items():
        texts = [".".join([*_plain([endpoint["node"]]), endpoint["column"]]) for endpoint in endpoints]
        yield name, ", ".join(texts) or "no message has it"


def _is_renamed(edges: Iterable[Edge]) -> bool:
    return any(edge.target.column.rpartition(".")[2] != edge.origin.column.rpartition(".")[2] for edge in edges)


def _older(graph: Graph, table: str) -> list[str]:
    """The columns that older rows have otherwise."""
    newest = set(_newest(graph, table))
    edges = [edge for edge in graph.edges if edge.target.node == table and edge.by.definitions]
    older = _by_target(edge for edge in edges if not set(edge.by.definitions) & newest)
    every = graph.nodes[table].details["older_definitions"]
    rows = []
    for (column, numbers), own in older.items():
        which = "" if list(numbers) == every else f" (rows of {definitions_text(numbers)})"
        if "." not in column:
            rows.append((column, f"{'; '.join(source_texts(graph, own))}{which}"))
    return _titled(f"columns that older rows have otherwise, of {definitions_text(every)}", rows)


def _neighbours(graph: Graph, edges: Iterable[Edge], up: bool) -> list[tuple[str, str]]:
    """(kind, name) of the tables around; many of one kind are counted."""
    names: dict[str, dict[str, None]] = {}
    for edge in edges:
        end = edge.origin if up else edge.target
        kind = graph.nodes[end.node].kind
        if kind not in ("app", *(() if up else SIDE)):
            names.setdefault(kind, {})[end.node] = None
    rows = [(kind, _few(_plain(found))) for kind, found in names.items() if kind != "reference"]
    for name in names.get("reference", ()):
        details = graph.nodes[name].details
        path = f"{details['path']}, by its column {details['key']}" if details else "not in the settings of now"
        rows.append(("reference", f"{name.partition(':')[2]}: {path}"))
    return rows


def _schema_rows(graph: Graph, table: str) -> Iterator[tuple[str, str]]:
    """(schema, its versions and message types, and how many rows it wrote)."""
    node = graph.nodes[table]
    wrote = {one["schema"]: one["rows"] for one in node.details["schemas"]}
    known: dict[SchemaKey, list[str]] = {key: [] for key in wrote}
    versions = {one["schema"]: _versions(one) for one in node.details["schemas"]}
    for name in dict.fromkeys(kind for message in node.details["messages"] for kind in message.split("/")):
        for one in graph.nodes[f"message:{name}"].details["schemas"]:
            known.setdefault(one["schema"], []).append(name)
            versions[one["schema"]] = _versions(one)
    shown = sorted(known, key=lambda key: (-wrote.get(key, 0), str(key)))
    for key in shown[:MOST]:
        parts = [versions[key], ", ".join(known[key]), _rows(wrote.get(key, 0))]
        yield str(key), ", ".join(part for part in parts if part)
    if len(shown) > MOST:
        yield "", f"and {len(shown) - MOST:,} more"


def _versions(schema: Mapping[str, Any]) -> str:
    """The versions of a schema; an earlier release has not stored their subjects."""
    named = [f"v{version} of {subject}" for subject, version in schema["subjects"].items()]
    return ", ".join(named) or ("" if schema["version"] is None else f"v{schema['version']}")


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _side_outputs(graph: Graph) -> dict[str, str]:
    """Table -> its kind."""
    return {name: kind for kind in SIDE for name in graph.tables(kind)}


def _plain(names: Iterable[str]) -> list[str]:
    """The names of nodes without their kinds."""
    return [name.partition(":")[2] or name for name in names]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _titled(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    block = _block(list(rows), 4)
    return [f"  {title}", *block] if block else []


def _block(rows: Sequence[tuple[str, str]], indent: int) -> list[str]:
    """Two columns; what does not fit into the width goes on below."""
    escaped = [(one_line(left), one_line(right)) for left, right in rows]
    wide = min(max((len(left) for left, _ in escaped), default=0), WIDEST) + 2
    lines = []
    for left, right in escaped:
        room = WIDTH - indent - wide
        first, *more = textwrap.wrap(right, room) or [""]
        if len(left) + 2 > wide:
            lines.append(f"{'':<{indent}}{left}")
            left = ""
        lines.append(f"{'':<{indent}}{left:<{wide}}{first}".rstrip())
        lines += [f"{'':<{indent + wide}}{one}" for one in more]
    return lines
