"""What each column of a silver table is made of, by the definitions of its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_app.model.catalog import SchemaKey
from spark_app.model.projections import AS_SENT, Join, Projection
from spark_app.page.lineage.graph import APP, By, Edge, Place
from spark_app.page.lineage.sent_columns import Source, Sources
from spark_app.protobuf.unwrap import COLUMN
from spark_app.settings.references import Reference
from spark_app.tables.sql.expressions import calls_hmac
from spark_app.tables.sql.names import columns_in


@dataclass(frozen=True)
class Shape:
    """Definitions whose rows get their columns in the same way. The rules and the versions of the reference tables do
    not count.

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
            yield Edge(origin, Place(table, path), replace(by, definitions=some))
        if not found:
            yield Edge(Place(APP), Place(table, field.name), By("unknown"))


def dropped_sources(sent: Sources, projection: Projection) -> dict[str, tuple[Source, ...]]:
    """Dropped column -> what it would be made of."""
    return {name: _named(name, sent) for name in projection.drops}


def _written_by(schemas: frozenset[SchemaKey], sent: Sources) -> Sources:
    """The columns of rows that these schemas wrote. A row does not name the schema of its wrapper."""
    return {
        path: tuple(
            (place, by)
            for place, by in sources
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
    return found or [(Place(APP), By("expression", sql=sql, hashed=hashed))]


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
        yield Place(f"reference:{join.reference}", originals.get(column, column)), how
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
