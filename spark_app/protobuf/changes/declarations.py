"""Fields and messages as a .proto file declares them, without options and comments."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from spark_app.protobuf.columns.types import is_map, map_fields, ordered_fields
from spark_app.protobuf.decode.reference import load_files
from spark_app.protobuf.schemas.well_known import is_well_known

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
