"""The fields of a message that its columns come from, see `types`, and their comments as those of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spark_app.model.columns import Path
from spark_app.model.record_schemas import RESERVED
from spark_app.protobuf.columns.types import ONE_VALUE, column_names, is_json, is_map, map_fields, ordered_fields

Fields = tuple[FieldDescriptor, ...]


def column_fields(message: Descriptor) -> Iterator[tuple[Path, Fields]]:
    """(path of a column, the fields on the way to it) for the columns of a message and all that they contain."""
    yield from _fields_within(message, column_names(message, RESERVED), (), ())


def owner_of(field: FieldDescriptor) -> str:
    """Full name of the message that declares the field."""
    message = field.containing_type
    assert message is not None
    return message.full_name


def _fields_within(
    message: Descriptor, names: Mapping[int, str], at: Path, above: Fields
) -> Iterator[tuple[Path, Fields]]:
    """`at` is the path of the struct, and `above` are the fields on the way to it."""
    for field in ordered_fields(message):
        path, fields = (*at, names[field.number]), (*above, field)
        yield path, fields
        nested = struct_of(field, tuple(map(owner_of, fields)))
        if nested is not None:
            yield from _fields_within(nested, column_names(nested), path, fields)


def struct_of(field: FieldDescriptor, above: tuple[str, ...]) -> Descriptor | None:
    """The message whose fields become those of a struct, in the column itself, its list or its map values."""
    value = map_fields(field)[1] if is_map(field) else field
    message = value.message_type
    is_struct = message is not None and message.full_name not in ONE_VALUE and not is_json(message, above)
    return message if is_struct else None


def column_comments(message: Descriptor, comments: Mapping[str, str]) -> dict[Path, str]:
    """Path -> comment for the columns of a message, nested ones included; the empty path has the message's own.

    Args:
        comments: full name of a message or field -> comment.
    """
    found: dict[Path, str] = {(): comments[message.full_name]} if message.full_name in comments else {}
    for path, (*_, field) in column_fields(message):
        comment = comments.get(f"{owner_of(field)}.{field.name}")
        if comment:
            found[path] = comment
    return found
