"""Reads protovalidate's rules from the options of a schema, with the bundled copy of its options.

The copy (`buf/validate/validate.fds`, compiled from the .proto beside it) reads the bytes of the options, whatever
version of the file a schema registers: numbers of fields never change their meaning. What another version added are
unknown fields.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, duration_pb2, field_mask_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

NUMBER = 1159  # of protovalidate's extensions, which its package reserves
COPY = Path(__file__).with_name("buf") / "validate" / "validate.fds"
_KINDS = {
    "field": ("google.protobuf.FieldOptions", "buf.validate.field"),
    "message": ("google.protobuf.MessageOptions", "buf.validate.message"),
    "oneof": ("google.protobuf.OneofOptions", "buf.validate.oneof"),
}


class RulesUnreadable(ValueError):
    """The bytes of the option are not rules."""


def has_rules(descriptor_set: bytes) -> bool:
    """Whether the schema has protovalidate's options, and not others with their numbers."""
    files = FileDescriptorSet.FromString(descriptor_set).file
    return any(
        file.package == "buf.validate"
        and any(e.number == NUMBER and e.extendee == ".google.protobuf.FieldOptions" for e in file.extension)
        for file in files
    )


def field_rules(field: FieldDescriptor) -> Any:
    """The `FieldRules` of a field; None if it has none.

    Raises:
        RulesUnreadable
    """
    return _read("field", field)


def message_rules(message: Descriptor) -> Any:
    """As `field_rules`, the `MessageRules` of a message."""
    return _read("message", message)


def oneof_rules(oneof: OneofDescriptor) -> Any:
    """As `field_rules`, the `OneofRules` of a oneof."""
    return _read("oneof", oneof)


def has_unknown(rules: Message) -> bool:
    """Whether the rules have a field that the copy does not know, apart from those of messages inside."""
    return len(UnknownFieldSet(rules)) > 0


def _read(kind: str, owner: Any) -> Any:
    data = owner.GetOptions().SerializePartialToString()
    if not data:
        return None
    options, extension = _kinds()[kind]
    try:
        read: Any = options.FromString(data)
    except DecodeError:
        raise RulesUnreadable("the option cannot be read") from None
    return read.Extensions[extension] if read.HasExtension(extension) else None


@functools.cache
def _kinds() -> dict[str, tuple[type[Message], FieldDescriptor]]:
    """Kind -> (class of the options, the extension)."""
    pool = DescriptorPool()
    for module in (descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in FileDescriptorSet.FromString(COPY.read_bytes()).file:
        pool.Add(file)
    return {
        kind: (
            message_factory.GetMessageClass(pool.FindMessageTypeByName(options)),
            pool.FindExtensionByName(extension),
        )
        for kind, (options, extension) in _KINDS.items()
    }
