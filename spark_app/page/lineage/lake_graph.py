"""Makes the graph of a lake from its state, its tables and the settings.

The reasons: docs/decisions/lineage.md.
"""

from __future__ import annotations

import functools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake import sql_tables
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.lake import Lake
from spark_app.lake.sql_tables import SqlTable
from spark_app.model.catalog import SchemaKey, read_schema_key
from spark_app.model.errors import ConfigurationError, ContractError, UsageError
from spark_app.model.record_schemas import LANDED, LINEAGE_SCHEMA
from spark_app.model.text import near
from spark_app.page.lineage.columns import (
    Shape,
    bronze_edges,
    dropped_sources,
    gold_edges,
    message_columns,
    record_columns,
    record_edges,
    schemas_of,
    shapes_of,
    side_edges,
    side_outputs,
    silver_edges,
)
from spark_app.page.lineage.graph import APP, By, Edge, Endpoint, Graph, Node
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.recovery.backtest.scan import scan
from spark_app.settings.models import Settings
from spark_app.tables.admission import TableAdmission
from spark_app.tables.definitions import projections_of
from spark_app.tables.fixed_settings import check_fixed_settings

KEYS = ("_topic", "_schema_id", "_schema_guid", "_definition")
COLUMNS = pa.schema([*LINEAGE_SCHEMA, ("_schema_guid", pa.string()), ("_definition", pa.int64())])


@dataclass(frozen=True)
class RowOrigins:
    """The origins of the rows of a silver table.

    Attributes:
        topics: sorted.
        schemas: key of a schema -> rows that it wrote.
        definitions: number of a definition -> schemas that wrote its rows; 0 = rows without one. That of the row which
            landed last comes first.
    """

    rows: int = 0
    topics: tuple[str, ...] = ()
    schemas: Mapping[SchemaKey, int] = field(default_factory=dict)
    definitions: Mapping[int, frozenset[SchemaKey]] = field(default_factory=dict)

    @staticmethod
    def of(tables: Tables, table: str) -> RowOrigins:
        """
        Raises:
            UnreachableError, ContractError: as `scan`.
        """
        parts = []
        for batch in scan(tables.storage, tables.files(table), COLUMNS, (*KEYS, LANDED)):
            grouped = pa.table(batch).group_by(list(KEYS), use_threads=False)
            parts.append(grouped.aggregate([(LANDED, "max"), ([], "count_all")]))
        return _summed(pa.concat_tables(parts).to_pylist()) if parts else RowOrigins()


def _summed(groups: list[dict[str, Any]]) -> RowOrigins:
    """
    Args:
        groups: the rows with the same values, each batch by itself.
    """
    rows: Counter[SchemaKey] = Counter()
    wrote: defaultdict[int, set[SchemaKey]] = defaultdict(set)
    landed: dict[int, Any] = {}
    for one in groups:
        key = read_schema_key(str(one["_schema_guid"] or one["_schema_id"]))
        rows[key] += one["count_all"]
        number, moment = one["_definition"] or 0, one[f"{LANDED}_max"]
        wrote[number].add(key)
        landed[number] = max(landed.get(number, moment), moment)
    newest_first = sorted(landed, key=lambda number: (landed[number], number), reverse=True)
    topics = sorted({one["_topic"] for one in groups})
    definitions = {number: frozenset(wrote[number]) for number in newest_first}
    return RowOrigins(rows.total(), tuple(topics), dict(rows), definitions)


NOTHING = pa.schema([])
ATTEMPTS, RETRY_S = 5, 0.2
Found = TypeVar("Found")


class LakeGraph:
    """Of one lake with its settings.

    Raises:
        ConfigurationError: there is no lake, or the settings are not those of the lake.
        ContractError: a state file of the lake is damaged.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._lake = Lake(settings.lake_address)
        if not self._lake.storage.exists(self._lake.state):
            raise ConfigurationError(f"lake.path: no lake at {self._lake.uri}")
        self._there = frozenset(self._lake.tables())
        if self._there:
            check_fixed_settings(self._lake, settings)
        self._layout = settings.layout
        self._tables = Tables(self._lake, settings.lake, self._layout)
        admission = TableAdmission(self._lake, settings.event, settings.tables)
        self._messages = {name: admission.messages.get(name, ()) for name in admission.admitted.values()}
        self._topics = self._read_topics()

    @functools.cached_property
    def ledger(self) -> Ledger:
        """It is read after the tables: the app writes it before the columns of its schemas."""
        return Ledger(self._lake)

    def _read_topics(self) -> list[str]:
        """The topics of the records in bronze; before the first record those of the settings."""
        manifests = Manifests(self._lake, self._layout)
        last = manifests.last_ingest.source["end"] if manifests.last_ingest else {}
        return sorted({*manifests.began().get("start", {}), *last}) or sorted(self._settings.topics)

    def overview(self) -> Graph:
        """All tables without their columns. The joins of reference tables are missing: only rows name them."""
        graph = Graph()
        self._add_records(graph)
        for name in sorted(self._messages):
            self._add_silver(graph, name)
        graph.add(*map(self._reference, self._settings.reference))
        for one in sql_tables.every(self._lake):
            self._add_sql(graph, one)
        return graph

    def of(self, table: str, origins: RowOrigins | None = None) -> Graph:
        """A table with its columns, and with what it comes from and goes to. For bronze these are all silver tables,
        with the columns about the record only.

        Args:
            origins: what is known of the rows of the silver table in it. None = all of its rows are read.

        Raises:
            UsageError: the lake has no such table.
            UnreachableError, ContractError: the table cannot be read.
        """
        return self._retried(lambda: self._of(table, origins))

    def _of(self, table: str, origins: RowOrigins | None) -> Graph:
        graph, layout = Graph(), self._layout
        self._add_records(graph)
        routed = {made: name for name in self._messages for made in (layout.silver_of(name), *layout.all_gold_of(name))}
        name = routed.get(table)
        if name is not None:
            self._add_silver(graph, name)
        elif table == layout.bronze:
            graph = self.overview()
            self._add_copies(graph)
        made = list(sql_tables.every(self._lake))
        if table in {one.table for one in made}:
            return self.overview()
        for one in made:
            self._add_sql(graph, one)
        if table not in graph.names():
            raise self._unknown(table)
        self._add_record_columns(graph, layout.bronze if name else table)
        if name is not None:
            self._add_silver_columns(graph, name, origins)
            self._add_gold_columns(graph, name)
        return graph

    def _add_sql(self, graph: Graph, one: SqlTable) -> None:
        """A table by SQL, if the graph has one of the tables that it reads."""
        sources = [f"reference:{name}" if isinstance(version, str) else name for name, version in one.sources.items()]
        if one.table in self._there and any(name in graph.nodes for name in sources):
            graph.add(Node(one.table, "sql", {"exists": True, "mode": one.mode, "statement": f"{one.file}:{one.line}"}))
            known = (name for name in sources if name in graph.nodes)
            graph.connect(Edge(Endpoint(name), Endpoint(one.table), By("statement")) for name in known)

    def _unknown(self, table: str) -> UsageError:
        return UsageError(f"the lake has no table {table[:100]}; {near(table, self.overview().names())}")

    def column_of(self, graph: Graph, table: str, column: str) -> Endpoint:
        """A column of the table, or of a struct in it, as the table spells it.

        Args:
            graph: the result of `of`.

        Raises:
            UsageError: the table has no such column.
        """
        known = {edge.target.column.casefold(): edge.target.column for edge in graph.edges if edge.target.node == table}
        if not column or column.casefold() not in known:
            is_dropped = column in graph.nodes[table].details.get("dropped", ())
            hint = "the projection of its rows drops it" if is_dropped else near(column, known.values())
            raise UsageError(f"{table} has no column {column[:100]}; {hint}")
        return Endpoint(table, known[column.casefold()])

    def _retried(self, read: Callable[[], Found]) -> Found:
        """The app may remove a log entry while a table is opened; a table that is damaged stays so."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return read()
            except DeltaError as error:
                reason = str(error)
            time.sleep(RETRY_S if attempt < ATTEMPTS else 0)
        raise ContractError(f"a table cannot be opened ({reason})", "run `doctor`, which tells how to restore it")

    def _columns(self, table: str) -> pa.Schema:
        return (self._tables.columns(table) if table in self._there else None) or NOTHING

    def _add_records(self, graph: Graph) -> None:
        """The topics, bronze and the side outputs."""
        bronze = self._layout.bronze
        graph.add(Node(APP, "app"), *(Node(f"topic:{topic}", "topic") for topic in self._topics))
        graph.add(Node(bronze, "bronze", {"exists": bronze in self._there}))
        graph.connect(Edge(Endpoint(f"topic:{topic}"), Endpoint(bronze), By("ingest")) for topic in self._topics)
        for table, (kind, how, origin) in side_outputs(self._layout).items():
            if table in self._there:
                graph.add(Node(table, kind, {"exists": True}))
                graph.connect([Edge(Endpoint(origin), Endpoint(table), By(how))])
        if self._layout.lost in self._there:
            graph.add(Node(self._layout.lost, "lost", {"exists": True}))

    def _add_record_columns(self, graph: Graph, table: str) -> None:
        """The columns of bronze or of a side output, and of the tables that its records come from."""
        columns = self._columns(table).names
        if table == self._layout.bronze:
            graph.connect(bronze_edges(table, columns, self._topics))
        elif table == self._layout.lost:
            graph.connect(side_edges(table, columns, "", ()))
        else:
            origin = side_outputs(self._layout)[table][2]
            graph.connect(side_edges(table, columns, origin, self._columns(origin).names))
            self._add_record_columns(graph, origin)

    def _add_copies(self, graph: Graph) -> None:
        """The columns that other tables have from bronze as they are."""
        for table in graph.tables("silver"):
            if table in self._there:
                graph.connect(record_edges(table, self._layout.bronze))
        for table in [table for table in side_outputs(self._layout) if table in self._there]:
            self._add_record_columns(graph, table)

    def _add_silver(self, graph: Graph, name: str) -> None:
        """A silver table with its messages and its gold."""
        silver = self._layout.silver_of(name)
        graph.add(Node(silver, "silver", {"exists": silver in self._there, "messages": list(self._messages[name])}))
        graph.connect([Edge(Endpoint(self._layout.bronze), Endpoint(silver), By("decode"))])
        for message in self._messages[name]:
            for kind in message.split("/"):
                graph.add(Node(f"message:{kind}", "message"))
                graph.connect([Edge(Endpoint(f"message:{kind}"), Endpoint(silver), By("message"))])
        for spec in GoldSpec.all_of(self._settings):
            gold = self._layout.gold_of(name, spec.kind)
            if gold in self._there:
                graph.add(Node(gold, "gold", {"exists": True, "key": ", ".join(spec.group)}))
                graph.connect([Edge(Endpoint(silver), Endpoint(gold), By("aggregate"))])

    def _add_silver_columns(self, graph: Graph, name: str, known: RowOrigins | None) -> None:
        silver, messages = self._layout.silver_of(name), self._messages[name]
        columns = self._columns(silver)
        nothing = RowOrigins() if known is None else known
        origins = RowOrigins.of(self._tables, silver) if known is None and silver in self._there else nothing
        shapes = shapes_of(origins.definitions, projections_of(self._lake))
        sent = {
            **message_columns(self.ledger, messages, self._settings.wrapper.names),
            **record_columns(self._layout.bronze),
        }
        graph.connect(silver_edges(silver, columns, sent, shapes, self._settings.reference))
        newest = shapes[0].projection
        dropped = {
            column: [{"node": endpoint.node, "column": endpoint.column} for endpoint, _ in sources]
            for column, sources in dropped_sources(sent, newest).items()
        }
        details = {
            **graph.nodes[silver].details,
            "rows": origins.rows,
            "topics": list(origins.topics),
            "schemas": [{**self._schema(key), "rows": rows} for key, rows in self._ordered(origins.schemas)],
            "definitions": list(shapes[0].numbers),
            "older_definitions": sorted(number for shape in shapes[1:] for number in shape.numbers),
            "dropped": dropped,
        }
        graph.add(Node(silver, "silver", details))
        for kind in {kind for message in messages for kind in message.split("/")}:
            keys = schemas_of(self.ledger, kind)
            graph.add(Node(f"message:{kind}", "message", {"schemas": [self._schema(key) for key in keys]}))
        self._add_references(graph, silver, shapes)

    def _ordered(self, rows: Mapping[SchemaKey, int]) -> list[tuple[SchemaKey, int]]:
        """In the order in which the schemas were resolved."""
        positions = {key: position for position, key in enumerate(self.ledger.entries)}
        return sorted(rows.items(), key=lambda item: positions.get(item[0], -1))

    def _schema(self, key: SchemaKey) -> dict[str, object]:
        entry = self.ledger.entries.get(key)
        version, subjects = (entry.version, dict(entry.subjects)) if entry else (None, {})
        return {"schema": key, "version": version, "subjects": subjects}

    def _add_references(self, graph: Graph, silver: str, shapes: list[Shape]) -> None:
        for join in dict.fromkeys(join for shape in shapes for join in shape.projection.joins):
            node = self._reference(join.reference)
            graph.add(node)
            graph.connect(
                [Edge(Endpoint(node.name), Endpoint(silver), By("join", on=join.on, key=node.details.get("key", "")))]
            )

    def _reference(self, name: str) -> Node:
        settings = self._settings.reference.get(name)
        details = {"path": settings.path, "key": settings.key} if settings else {}
        return Node(f"reference:{name}", "reference", details)

    def _add_gold_columns(self, graph: Graph, name: str) -> None:
        silver = self._layout.silver_of(name)
        for spec in GoldSpec.all_of(self._settings):
            gold = self._layout.gold_of(name, spec.kind)
            graph.connect(gold_edges(gold, self._columns(gold), silver, self._columns(silver), spec))
