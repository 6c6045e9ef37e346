"""Renames the map entries of compiled schemas to the names that protoc requires.

protoc accepts a map entry in a descriptor only with protoc's own name for it: `ItemsEntry` for the field `items`.
Confluent's registry compiles `map<>` text to entries named `itemsEntry`.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto


def name_entries(file: FileDescriptorProto) -> None:
    """Rename each map entry of the file, in place, as protoc names it."""
    for message in file.message_type:
        _name_within(message, f".{file.package}.{message.name}" if file.package else f".{message.name}")


def _name_within(message: DescriptorProto, path: str) -> None:
    """`path` is the message's full name with a leading dot."""
    for nested in message.nested_type:
        _name_within(nested, f"{path}.{nested.name}")
        if nested.options.map_entry:
            before, full_name = nested.name, f"{path}.{nested.name}"
            for field in message.field:
                if f".{full_name}".endswith(f".{field.type_name}"):  # a serializer may write a relative name
                    nested.name = entry_name(field.name)
                    field.type_name = f"{field.type_name.removesuffix(before)}{nested.name}"


def entry_name(field: str) -> str:
    """protoc's name for the entry of a map field: the first letter and each letter after an underscore become capitals,
    and underscores are removed."""
    return "".join(word[:1].upper() + word[1:] for word in field.split("_")) + "Entry"


def holds_entry_and_other(file: FileDescriptorProto) -> bool:
    """Whether some message of the file contains both map entries and other nested messages, at any depth."""
    return any(_holds_both(message) for message in file.message_type)


def _holds_both(message: DescriptorProto) -> bool:
    kinds = {nested.options.map_entry for nested in message.nested_type}
    return len(kinds) == 2 or any(_holds_both(nested) for nested in message.nested_type)
