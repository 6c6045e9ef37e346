"""Writes the names of columns over the names of fields in a compiled schema.

On the wire a field is its number, so the same payloads are read, and everything that is made from the descriptors then
has the names of the columns: decoders, types, rules and JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

Place = tuple[str, int]  # full name of a message, number of its field


def with_names(descriptor_set: bytes, names: Mapping[Place, str]) -> bytes:
    """The descriptor set with other names of some fields. All else stays: numbers, types, defaults, options, and the
    JSON names that are no names of other fields now."""
    if not names:
        return descriptor_set
    files = FileDescriptorSet.FromString(descriptor_set)
    for file in files.file:
        for full_name, message in _messages(file.package, file.message_type):
            for field in message.field:
                name = names.get((full_name, field.number))
                if name is not None:
                    _rename(message, field, name)
            _part_json_names(message)
    data: bytes = files.SerializeToString(deterministic=True)
    return data


def other_names(registered: bytes, decoded: bytes) -> dict[Place, tuple[str, str]]:
    """(name of the field, name of its column) of the fields for which they differ.

    Args:
        decoded: the result of `with_names`.
    """
    if registered == decoded:
        return {}
    fields, columns = _names(registered), _names(decoded)
    return {place: (name, columns[place]) for place, name in fields.items() if columns[place] != name}


def with_comments(comments: Mapping[str, str], names: Mapping[Place, tuple[str, str]]) -> dict[str, str]:
    """The comments under the names of the columns. The comment of a column that has another name than its field names
    both.

    Args:
        comments: full name of a message or field -> comment.
        names: the result of `other_names`.
    """
    moved = {}
    for (message, _), (field, column) in names.items():
        said = comments.get(f"{message}.{field}", "")
        moved[f"{message}.{column}"] = f"{said} (field {field})".strip()
    stale = {f"{message}.{field}" for (message, _), (field, _) in names.items()}
    return {name: text for name, text in comments.items() if name not in stale} | moved


def _names(descriptor_set: bytes) -> dict[Place, str]:
    return {
        (full_name, field.number): field.name
        for file in FileDescriptorSet.FromString(descriptor_set).file
        for full_name, message in _messages(file.package, file.message_type)
        for field in message.field
    }


def _messages(parent: str, messages: Iterable[DescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    """(full name, message) of messages and of those that they declare."""
    for message in messages:
        full_name = f"{parent}.{message.name}" if parent else message.name
        yield full_name, message
        yield from _messages(full_name, message.nested_type)


def _rename(message: DescriptorProto, field: FieldDescriptorProto, name: str) -> None:
    """`optional` in proto3 is a oneof with the name of the field, which readers know by this name."""
    if field.proto3_optional:
        oneof, hidden = message.oneof_decl[field.oneof_index], f"_{name}"
        if oneof.name == f"_{field.name}" and hidden not in _symbols(message):
            oneof.name = hidden
    field.name = name


def _part_json_names(message: DescriptorProto) -> None:
    """A JSON name cannot be the name of another field. Nothing that is made from these descriptors uses JSON names."""
    names = {field.name for field in message.field}
    for field in message.field:
        if field.json_name in names:
            field.json_name = field.name


def _symbols(message: DescriptorProto) -> set[str]:
    return {one.name for one in (*message.field, *message.oneof_decl)} | declared_names(message)


def declared_names(message: DescriptorProto) -> set[str]:
    """The names that a message declares besides its fields: no field can have one of them."""
    values = (value.name for enum in message.enum_type for value in enum.value)
    declared = (*message.nested_type, *message.enum_type, *message.extension)
    return {*(one.name for one in declared), *values, *(one.name for one in message.oneof_decl)}
