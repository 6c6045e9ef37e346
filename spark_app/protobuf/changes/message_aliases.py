"""Finds the other names of the columns of messages, from their schemas with both names."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor

from spark_app.model.catalog import SchemaKey
from spark_app.model.columns import Aliases, Path
from spark_app.model.record_schemas import RESERVED
from spark_app.protobuf.changes.differences import Version
from spark_app.protobuf.columns.fields import struct_of
from spark_app.protobuf.columns.types import column_names, ordered_fields
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import with_nested


class _Named(NamedTuple):
    """A field of a message or of a struct in it, and its column."""

    at: Path
    field: str
    column: str


def find_aliases(
    versions: Iterable[tuple[SchemaKey, Version]], types: Mapping[tuple[SchemaKey, str], str]
) -> dict[str, Aliases]:
    """Message type -> the other names of its columns, the newest last; without types that have none.

    A name is another one if no version before has a column of this name. Of several columns with one other name the
    first counts. So a later version never changes what a name means for the rows of earlier ones.

    Args:
        versions: in the order in which they were resolved.
        types: message types by schema and full name, see `Catalog.types`.
    """
    columns: dict[str, set[tuple[Path, str]]] = defaultdict(set)
    found: dict[str, dict[Path, dict[str, str]]] = {}
    for key, version in versions:
        for full_name, fields in _fields_of(version).items():
            kind = types.get((key, full_name), full_name)
            columns[kind] |= {(one.at, one.column.casefold()) for one in fields}
            for one in fields:
                if (one.at, one.field.casefold()) not in columns[kind] and not _is_own(one):
                    names = found.setdefault(kind, {}).setdefault(one.at, {})
                    names[one.field] = names.pop(one.field, one.column)
    return dict(found)


def _is_own(one: _Named) -> bool:
    """Whether the field has the name of one of Protolake's own columns."""
    return not one.at and one.field.casefold() in RESERVED


@functools.lru_cache(maxsize=1024)
def _fields_of(version: Version) -> dict[str, tuple[_Named, ...]]:
    """Full name -> the fields of a message of the schema's own file, and those inside its structs."""
    (_, registered), (_, decoded) = (load_files(data) for data in (version.registered, version.decoded))
    pairs = zip(with_nested(registered), with_nested(decoded), strict=True)
    return {message.full_name: tuple(_fields_within(message, columns, (), ())) for message, columns in pairs}


def _fields_within(message: Descriptor, columns: Descriptor, at: Path, above: tuple[str, ...]) -> Iterator[_Named]:
    """
    Args:
        message, columns: a message with the names of its fields, and with those of its columns.
        above: the messages that contain it.
    """
    names, inner = column_names(columns, frozenset() if at else RESERVED), (*above, columns.full_name)
    for field, column in zip(ordered_fields(message), ordered_fields(columns), strict=True):
        name = names[column.number]
        yield _Named(at, field.name, name)
        struct = None if column.is_repeated else struct_of(column, inner)
        if struct is not None and field.message_type is not None:
            yield from _fields_within(field.message_type, struct, (*at, name), inner)
