"""Names of map entries in what a registry has compiled.

protoc takes a map entry in a descriptor only under the name that it gives one itself: `ItemsEntry` for the field
`items`. Confluent's registry calls those that it makes of `map<>` text `itemsEntry`.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto


def name_entries(file: FileDescriptorProto) -> None:
    """Give each entry of a map field the name that protoc gives it."""
    for message in file.message_type:
        _name_within(message, f".{file.package}.{message.name}" if file.package else f".{message.name}")


def _name_within(message: DescriptorProto, path: str) -> None:
    """`path` is the message's full name, behind a dot."""
    for nested in message.nested_type:
        _name_within(nested, f"{path}.{nested.name}")
        if nested.options.map_entry:
            before, full_name = nested.name, f"{path}.{nested.name}"
            for field in message.field:
                if f".{full_name}".endswith(f".{field.type_name}"):  # serializers may leave out where it is
                    nested.name = entry_name(field.name)
                    field.type_name = f"{field.type_name.removesuffix(before)}{nested.name}"


def entry_name(field: str) -> str:
    """As protoc makes it of a field's name: letters behind underscores become capitals, which it leaves out."""
    return "".join(word[:1].upper() + word[1:] for word in field.split("_")) + "Entry"


def holds_entry_and_other(file: FileDescriptorProto) -> bool:
    """Whether some message of the file has both map entries and other messages in it, at any depth."""
    return any(_holds_both(message) for message in file.message_type)


def _holds_both(message: DescriptorProto) -> bool:
    kinds = {nested.options.map_entry for nested in message.nested_type}
    return len(kinds) == 2 or any(_holds_both(nested) for nested in message.nested_type)
