"""Comments of a message's fields as comments of the columns that the fields become, see `typemap`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spark_app.decode.typemap import WRAPPERS, column_names, is_json, is_map, map_fields, ordered_fields
from spark_app.model.comments import Path
from spark_app.model.record_schemas import RESERVED

ONE_VALUE = WRAPPERS | {"google.protobuf.Timestamp", "google.protobuf.Duration"}


def column_comments(message: Descriptor, comments: Mapping[str, str]) -> dict[Path, str]:
    """Path -> comment for the columns of a message, nested ones included; the empty path has the message's own.

    Args:
        comments: full name of a message or field -> comment.
    """
    found: dict[Path, str] = {(): comments[message.full_name]} if message.full_name in comments else {}
    found.update(_comments_within(message, comments, column_names(message, RESERVED), (), ()))
    return found


def _comments_within(
    message: Descriptor, comments: Mapping[str, str], names: Mapping[int, str], at: Path, above: tuple[str, ...]
) -> Iterator[tuple[Path, str]]:
    """`at` is the path of the struct; `above` names the messages that contain the message."""
    inside = (*above, message.full_name)
    for field in ordered_fields(message):
        path = (*at, names[field.number])
        comment = comments.get(f"{message.full_name}.{field.name}")
        if comment:
            yield path, comment
        nested = struct_of(field, inside)
        if nested is not None:
            yield from _comments_within(nested, comments, column_names(nested), path, inside)


def struct_of(field: FieldDescriptor, above: tuple[str, ...]) -> Descriptor | None:
    """The message whose fields become those of a struct, in the column itself, its list or its map values."""
    value = map_fields(field)[1] if is_map(field) else field
    message = value.message_type
    is_struct = message is not None and message.full_name not in ONE_VALUE and not is_json(message, above)
    return message if is_struct else None
