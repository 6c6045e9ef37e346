"""The origins of the columns of each kind of table: the record, the fields that were sent, expressions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_app.followers.gold.spec import GoldSpec
from spark_app.model.catalog import SchemaKey
from spark_app.model.columns import field_of
from spark_app.model.definitions import AS_SENT, Join, Projection
from spark_app.model.record_schemas import LINEAGE_SCHEMA, NUMBER, OMITTED_SCHEMA, SOURCE_SCHEMA
from spark_app.model.table_names import TableNames
from spark_app.model.wrapper import Wrapper
from spark_app.page.lineage.graph import APP, By, Edge, Endpoint, Kind
from spark_app.protobuf.changes.declarations import other_names
from spark_app.protobuf.columns.fields import column_fields, owner_of
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.unwrap import COLUMN
from spark_app.settings.silver import Reference
from spark_app.tables.sql.expressions import calls_hmac
from spark_app.tables.sql.names import columns_in
from spark_app.units.worker.table_rows import LINEAGE_OF

OF_BRONZE = {**LINEAGE_OF, "_schema_id": "schema_id", "_schema_guid": "schema_guid", "_key": "key"}
OF_TOPIC = {
    **{name: name for name in SOURCE_SCHEMA.names},
    "topic_id": "topic",
    **dict.fromkeys(("schema_id", "schema_guid"), "value"),
    **dict.fromkeys(OMITTED_SCHEMA.names, "value"),
    NUMBER: "timestamp",
}


def side_outputs(layout: TableNames) -> dict[str, tuple[str, Kind, str]]:
    """Table -> (kind of its node, how records get there, from which table)."""
    return {
        layout.quarantine: ("quarantine", "quarantine", layout.bronze),
        layout.deferred: ("deferred", "defer", layout.bronze),
        layout.dropped: ("dropped", "drop", layout.bronze),
        layout.resolved: ("resolved", "replay", layout.quarantine),
    }


def bronze_edges(bronze: str, columns: Iterable[str], topics: Sequence[str]) -> Iterator[Edge]:
    """The edges to each column of bronze."""
    for column in columns:
        of_topic = OF_TOPIC.get(column)
        if of_topic is None:
            yield Edge(Endpoint(APP), Endpoint(bronze, column), By("made"))
        else:
            by = By("record" if column == of_topic else "derived")
            yield from (Edge(Endpoint(f"topic:{topic}", of_topic), Endpoint(bronze, column), by) for topic in topics)


def side_edges(table: str, columns: Iterable[str], origin: str, there: Iterable[str]) -> Iterator[Edge]:
    """The edges to each column of a side output.

    Args:
        there: the columns of the table that the records come from.
    """
    known = set(there) - {"table"}  # each side output means another table by it
    for column in columns:
        target = Endpoint(table, column)
        if column in known:
            yield Edge(Endpoint(origin, column), target, By("record"))
        else:
            yield Edge(Endpoint(APP), target, By("made"))


def record_edges(silver: str, bronze: str) -> Iterator[Edge]:
    """The edges to the columns about the record that every silver table has."""
    for column in LINEAGE_SCHEMA.names:
        yield Edge(Endpoint(bronze, OF_BRONZE[column]), Endpoint(silver, column), By("record"))


Source = tuple[Endpoint, By]
Sources = Mapping[str, tuple[Source, ...]]  # path of a column -> what it is made of


def record_columns(bronze: str) -> Sources:
    """The columns about the record, which all silver tables may have."""
    found: dict[str, tuple[Source, ...]] = {
        name: ((Endpoint(bronze, column), By("derived" if name == "_key" else "record")),)
        for name, column in OF_BRONZE.items()
    }
    return found | {"_definition": ((Endpoint(APP), By("made")),)}


def schemas_of(ledger: Ledger, kind: str) -> list[SchemaKey]:
    """The decodable schemas with messages of a message type."""
    name, catalog = kind.partition("#")[0], ledger.catalog()
    having = (key for key in catalog.decodable if name in ledger.message_names(key))
    return [key for key in having if catalog.type_of(key, name) == kind]


def message_columns(ledger: Ledger, messages: Iterable[str], wrapper: Wrapper | None) -> Sources:
    """The columns that the messages of a silver table give.

    Args:
        messages: message types, `Wrapper/Inner` for a wrapped one.
    """
    found: dict[tuple[str, Endpoint, By], list[SchemaKey]] = {}
    for message in messages:
        outer, _, inner = message.rpartition("/")
        for key, path, endpoint, by in _fields_of(ledger, inner):
            found.setdefault((path, endpoint, by), []).append(key)
        if outer and wrapper is not None:
            for key, path, endpoint, by in _fields_of(ledger, outer):
                if path.partition(".")[0] not in wrapper.own:
                    found.setdefault((f"{COLUMN}.{path}", endpoint, by), []).append(key)
                    found.setdefault((COLUMN, Endpoint(endpoint.node), By("wrapper")), []).append(key)
    sources: dict[str, tuple[Source, ...]] = {}
    for (path, endpoint, by), keys in found.items():
        source = endpoint, replace(by, schemas=tuple(dict.fromkeys(keys)))
        sources[path] = (*sources.get(path, ()), source)
    return sources


def _fields_of(ledger: Ledger, kind: str) -> Iterator[tuple[SchemaKey, str, Endpoint, By]]:
    """(schema, path of the column, field, how) of a message type in all its schemas."""
    for key in schemas_of(ledger, kind):
        entry = ledger.entries[key]
        message = ledger.message(key, kind.partition("#")[0])
        if message is None:
            continue
        renamed = other_names(ledger.descriptor_set(entry.digest), ledger.decoded_set(entry))
        for path, fields in column_fields(message):
            names = [renamed.get((owner_of(field), field.number), (field.name, ""))[0] for field in fields]
            by = By("field", number=fields[-1].number, message=owner_of(fields[-1]))
            yield key, ".".join(path), Endpoint(f"message:{kind}", ".".join(names)), by


@dataclass(frozen=True)
class Shape:
    """Definitions whose rows get their columns in the same way. The expectations and the versions of the reference
    tables do not count.

    Attributes:
        numbers: of the definitions, ascending; 0 = rows without one.
        schemas: those that wrote the rows.
    """

    projection: Projection
    numbers: tuple[int, ...]
    schemas: frozenset[SchemaKey]


def shapes_of(definitions: Mapping[int, frozenset[SchemaKey]], projections: Mapping[int, Projection]) -> list[Shape]:
    """The shapes of a table's rows, in the order of the definitions; a table without rows has that of `AS_SENT`.

    Args:
        definitions: see `RowOrigins`.
    """
    found: dict[Projection, list[int]] = {}
    for number in definitions or (0,):
        projection = projections.get(number, AS_SENT)
        joins = tuple(replace(join, content="") for join in projection.joins)
        found.setdefault(replace(projection, key="", joins=joins), []).append(number)
    none: frozenset[SchemaKey] = frozenset()
    return [
        Shape(projection, tuple(sorted(numbers)), none.union(*(definitions.get(number, none) for number in numbers)))
        for projection, numbers in found.items()
    ]


def silver_edges(
    table: str, columns: pa.Schema, sent: Sources, shapes: Sequence[Shape], references: Mapping[str, Reference]
) -> Iterator[Edge]:
    """The edges to each column of the table and to the columns inside of it.

    Args:
        columns: those that the table has.
        shapes: the newest first. Its rows may come with any schema, those of the others have come.
    """
    sent_by = [sent, *(_written_by(shape.schemas, sent) for shape in shapes[1:])]
    for field in columns:
        found: dict[tuple[str, Source], list[int]] = {}
        for shape, own in zip(shapes, sent_by, strict=True):
            for path, source in _sources(field, own, shape.projection, references):
                found.setdefault((path, source), []).extend(shape.numbers)
        every = sum(len(shape.numbers) for shape in shapes)
        for (path, (origin, by)), numbers in found.items():
            some = tuple(sorted(numbers)) if len(numbers) < every else ()
            yield Edge(origin, Endpoint(table, path), replace(by, definitions=some))
        if not found:
            yield Edge(Endpoint(APP), Endpoint(table, field.name), By("unknown"))


def dropped_sources(sent: Sources, projection: Projection) -> dict[str, tuple[Source, ...]]:
    """Dropped column -> what it would be made of."""
    return {name: _named(name, sent) for name in projection.drops}


def _written_by(schemas: frozenset[SchemaKey], sent: Sources) -> Sources:
    """The columns of rows that these schemas wrote. A row does not name the schema of its wrapper."""
    return {
        path: tuple(
            (endpoint, by)
            for endpoint, by in sources
            if by.kind != "field" or path.startswith(f"{COLUMN}.") or not schemas.isdisjoint(by.schemas)
        )
        for path, sources in sent.items()
    }


def _sources(
    field: pa.Field, sent: Sources, projection: Projection, references: Mapping[str, Reference]
) -> Iterator[tuple[str, Source]]:
    """(path, source) of a column and of what is inside of it; none where rows do not get the column."""
    name = field.name.casefold()
    expressions = {one.casefold(): sql for one, sql in projection.columns}
    if name in {one.casefold() for one in projection.drops}:
        return
    if name in expressions:
        made = _by_expression(expressions[name], sent, projection.joins, references)
    else:
        made = list(_joined(name, sent, projection.joins, references))
    if made:
        yield from ((field.name, source) for source in made)
        return
    for path in _paths(field):
        yield from ((path, source) for source in sent.get(path, ()))


def _by_expression(sql: str, sent: Sources, joins: Sequence[Join], references: Mapping[str, Reference]) -> list[Source]:
    """The sources of the columns that an expression reads, or the app if it reads none."""
    hashed = calls_hmac(sql)
    found: list[Source] = []
    for read in sorted(columns_in(sql)):
        joined = list(_joined(read.casefold(), sent, joins, references))
        for origin, by in joined or _named(read, sent):
            kind = by.kind if by.kind == "lookup" else "expression"
            found.append((origin, replace(by, kind=kind, sql=sql, reads=read, hashed=hashed)))
    return found or [(Endpoint(APP), By("expression", sql=sql, hashed=hashed))]


def _joined(name: str, sent: Sources, joins: Sequence[Join], references: Mapping[str, Reference]) -> Iterator[Source]:
    """The sources of a joined column; none if it is not joined."""
    for join in joins:
        column = next((one for one in join.columns if one.casefold() == name), None)
        if column is None:
            continue
        settings = references.get(join.reference)
        key = settings.key if settings else ""
        originals = {new: old for old, new in settings.renamed.items()} if settings else {}
        how = By("join", on=join.on, key=key)
        yield Endpoint(f"reference:{join.reference}", originals.get(column, column)), how
        for origin, by in _named(join.on, sent):
            yield origin, replace(by, kind="lookup", on=join.on, key=key)


def _named(name: str, sent: Sources) -> tuple[Source, ...]:
    """The sources of a column as the settings name it: case does not count."""
    return next((sources for path, sources in sent.items() if path.casefold() == name.casefold()), ())


def _paths(field: pa.Field) -> Iterator[str]:
    """The paths of a column and of the fields of its structs; lists and maps add no name of their own."""
    yield field.name
    yield from (f"{field.name}.{path}" for path in _inside(field.type))


def _inside(kind: pa.DataType) -> Collection[str]:
    if pa.types.is_struct(kind):
        return [path for one in kind for path in _paths(one)]
    if pa.types.is_map(kind):
        return _inside(kind.item_type)
    return _inside(kind.value_type) if pa.types.is_list(kind) else ()


def _column_of(field: str, there: pa.Schema) -> str:
    """The column that a field of gold is in; "" = none."""
    path, found = field_of(field, there, there.names, {})
    return path[0] if found is not None else ""


def gold_edges(gold: str, columns: pa.Schema, silver: str, there: pa.Schema, spec: GoldSpec) -> Iterator[Edge]:
    """The edges to each column of a gold table. A function of a field that silver has not got is one of the table.

    Args:
        columns: those that the gold table has.
        there: those that the silver table has.
    """
    for column in columns.names:
        target, aggregate = Endpoint(gold, column), spec.columns.get(column)
        if column in spec.group:
            field = column if column in spec.key else spec.time
            yield Edge(Endpoint(silver, _column_of(field, there) or field), target, By("key"))
        elif aggregate is None:
            yield Edge(Endpoint(APP), target, By("unknown"))
        else:
            field = spec.field_of(aggregate) if column in spec.aggregates else spec.time
            yield Edge(
                Endpoint(silver, _column_of(field, there)),
                target,
                By("aggregate", function=aggregate.function, reads=field),
            )
