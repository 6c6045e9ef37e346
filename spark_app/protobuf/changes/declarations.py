"""Fields and messages as a .proto file declares them, without options and comments, and under the names of columns.

On the wire a field is its number. So with the names of columns written over those of fields in a compiled schema, the
same payloads are read, and everything that is made from the descriptors then has the names of the columns: decoders,
types, rules and JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

from spark_app.protobuf.columns.types import is_map, map_fields, ordered_fields
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.schemas.well_known import is_well_known

FieldKey = tuple[str, int]  # full name of a message, number of its field


def with_names(descriptor_set: bytes, names: Mapping[FieldKey, str]) -> bytes:
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


def other_names(registered: bytes, decoded: bytes) -> dict[FieldKey, tuple[str, str]]:
    """(name of the field, name of its column) of the fields for which they differ.

    Args:
        decoded: the result of `with_names`.
    """
    if registered == decoded:
        return {}
    fields, columns = _names(registered), _names(decoded)
    return {key: (name, columns[key]) for key, name in fields.items() if columns[key] != name}


def with_comments(comments: Mapping[str, str], names: Mapping[FieldKey, tuple[str, str]]) -> dict[str, str]:
    """The comments under the names of the columns. The comment of a column that has another name than its field names
    both.

    Args:
        comments: full name of a message or field -> comment.
        names: the result of `other_names`.
    """
    moved = {}
    for (message, _), (field, column) in names.items():
        comment = comments.get(f"{message}.{field}", "")
        moved[f"{message}.{column}"] = f"{comment} (field {field})".strip()
    stale = {f"{message}.{field}" for (message, _), (field, _) in names.items()}
    return {name: text for name, text in comments.items() if name not in stale} | moved


def _names(descriptor_set: bytes) -> dict[FieldKey, str]:
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


T = FieldDescriptor
NAMES = {getattr(T, name): name.removeprefix("TYPE_").lower() for name in dir(T) if name.startswith("TYPE_")}
INDENT = "  "


def declared(field: FieldDescriptor) -> str:
    """The field, without a semicolon."""
    return f"{_label(field)}{type_name(field)} {field.name} = {field.number}"


def type_name(field: FieldDescriptor) -> str:
    """The type of one value of the field; of a message or enum its full name."""
    if is_map(field):
        key, value = map_fields(field)
        return f"map<{type_name(key)}, {type_name(value)}>"
    kind = field.message_type or field.enum_type
    return str(kind.full_name) if kind is not None else NAMES[field.type]


def _label(field: FieldDescriptor) -> str:
    if is_map(field):
        return ""
    if field.is_repeated:
        return "repeated "
    if field.is_required:
        return "required "
    is_optional = field.has_presence and field.message_type is None and oneof_of(field) is None
    return "optional " if is_optional else ""


def oneof_of(field: FieldDescriptor) -> str | None:
    """The oneof that a file declares for the field; None without. A proto3 `optional` has a hidden one."""
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and oneof.name == f"_{field.name}"):
        return None
    return str(oneof.name)


def reserved_names(message: Descriptor) -> set[str]:
    return set(_proto(message).reserved_name)


def reserved(message: Descriptor, field: FieldDescriptor) -> str:
    """How the message reserves a removed field; "" = not at all."""
    proto = _proto(message)
    if any(part.start <= field.number < part.end for part in proto.reserved_range):
        return f"reserved {field.number}"
    return f'reserved "{field.name}"' if field.name in proto.reserved_name else ""


def _proto(message: Descriptor) -> DescriptorProto:
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return proto


def file_lines(descriptor_set: bytes) -> list[str]:
    """The messages and enums of a compiled schema in .proto form: those of its own file last, after those of the files
    that it imports. Google's and Confluent's files are left out."""
    pool, own = load_files(descriptor_set)
    names = [name for name in _file_names(descriptor_set) if not is_well_known(name)]
    lines: list[str] = []
    for name in names:
        file = pool.FindFileByName(name)
        is_own = bool(own) and file.name == own[0].file.name
        lines += [*([] if is_own else [f"// {name}"]), *([f"package {file.package};"] if file.package else [])]
        for enum in file.enum_types_by_name.values():
            lines += _enum_lines(enum, "")
        for message in file.message_types_by_name.values():
            lines += _message_lines(message, "")
    return lines


def _file_names(descriptor_set: bytes) -> list[str]:
    return [file.name for file in FileDescriptorSet.FromString(descriptor_set).file]


def _message_lines(message: Descriptor, indent: str) -> Iterator[str]:
    inside = indent + INDENT
    yield f"{indent}message {message.name} {{"
    proto = _proto(message)
    for part in proto.reserved_range:
        last = part.end - 1
        yield f"{inside}reserved {part.start}{f' to {last}' if last > part.start else ''};"
    for name in proto.reserved_name:
        yield f'{inside}reserved "{name}";'
    for enum in message.enum_types:
        yield from _enum_lines(enum, inside)
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            yield from _message_lines(nested, inside)
    for field in ordered_fields(message):
        oneof = oneof_of(field)
        yield f"{inside}{declared(field)};{f'  // of oneof {oneof}' if oneof else ''}"
    yield f"{indent}}}"


def _enum_lines(enum: EnumDescriptor, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for value in enum.values:
        yield f"{indent}{INDENT}{value.name} = {value.number};"
    yield f"{indent}}}"
