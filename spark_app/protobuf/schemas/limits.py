"""Limits on the size and the compile cost of a schema, which may come from anybody.

| limit | limited quantity | outcome if exceeded |
|---|---|---|
| response size | 5 x `max_text_bytes` per response of the registry, uncompressed | refused |
| response time | 2 x `registry.timeout_s` for a schema with all its imports | waits |
| `max_text_bytes` | the schema and its imports as the registry returns them, UTF-8 | refused |
| `max_files` | the schema and its imports | refused before more are requested |
| `max_compile_cpu_s` | CPU time of protoc | refused |
| wall-clock time | `clocks` x `max_compile_cpu_s` for protoc, doubled at each retry | waits: the machine is busy |
| `max_compile_bytes` | address space of protoc | refused |
| descriptor size | 8 x `max_text_bytes` for the output of protoc | refused |
| `max_messages` | messages of the schema's own file, nested ones included | refused |
| `max_columns` | columns of one message, nested ones included | refused |
| `max_total_columns` | columns of all messages of the schema's own file | refused |
| depth | `types.DEEPEST` levels of messages become structs | deeper messages become JSON text |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from spark_app.model.text import one_line
from spark_app.protobuf.columns.types import ONE_VALUE, is_json, is_map, map_fields
from spark_app.protobuf.decode.numbering import with_nested

IMPORT_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}")


class SchemaLookupError(Exception):
    """A schema lookup failed. The text may contain text of the registry or of the schema's author, so it is escaped: it
    is shown in logs, tables and terminals."""

    def __init__(self, text: str):
        super().__init__(one_line(text))


class SchemaInvalid(SchemaLookupError):
    """The schema can never be used; the text is the reason."""


class _Sized(Protocol):
    size: int  # bytes, of all files

    def names(self) -> set[str]: ...


@dataclass(frozen=True)
class SchemaLimits:
    """The limits; `settings.models.Schemas` has their units."""

    max_text_bytes: int
    max_files: int
    max_columns: int
    max_compile_cpu_s: float
    max_compile_bytes: int
    max_messages: int = 1000
    max_total_columns: int = 20_000
    clocks: float = 3.0  # wall-clock seconds per second of CPU time

    @property
    def response_bytes(self) -> int:
        return 5 * self.max_text_bytes

    @property
    def descriptor_bytes(self) -> int:
        return 8 * self.max_text_bytes

    @property
    def compile_clock_s(self) -> float:
        return self.clocks * self.max_compile_cpu_s

    def check_source(self, sources: _Sized, name: str, size: int) -> None:
        """Check a source file before it is added to `sources`.

        Args:
            name: its import name; "" = the schema itself.
            size: its bytes.

        Raises:
            SchemaInvalid: the name is not valid, or there are too many bytes or files.
        """
        if name:
            check_name(name)
        if sources.size + size > self.max_text_bytes:
            raise SchemaInvalid(f"{sources.size + size} bytes are over the cap of {self.max_text_bytes}")
        self.check_files(len(sources.names()) + 1)

    def check_files(self, files: int) -> None:
        if files > self.max_files:
            raise SchemaInvalid(f"{files} files are over the cap of {self.max_files}")

    def check_file(self, file: FileDescriptorProto) -> None:
        """Check the number of messages in the schema's own file, before the messages are linked.

        Raises:
            SchemaInvalid: there are too many.
        """
        messages = sum(_count_messages(message) for message in file.message_type)
        if messages > self.max_messages:
            raise SchemaInvalid(f"{messages} messages are over the cap of {self.max_messages}")

    def check_messages(self, messages: list[Descriptor]) -> None:
        """Check the number of columns of the messages, before Arrow types are built.

        Raises:
            SchemaInvalid: there are too many.
        """
        total = 0
        for message in with_nested(messages):
            columns = count_columns(message, self.max_columns)
            if columns > self.max_columns:
                raise SchemaInvalid(
                    f"{message.full_name[:200]} would become more columns than the cap of {self.max_columns}"
                )
            total += columns
        if total > self.max_total_columns:
            raise SchemaInvalid(f"all messages would become {total} columns, over the cap of {self.max_total_columns}")


def check_name(name: object) -> None:
    """Check an import name.

    Raises:
        SchemaInvalid: it is not a plain relative path.
    """
    if not isinstance(name, str) or not IMPORT_NAME.fullmatch(name):
        raise SchemaInvalid(f"reference name {str(name)[:100]!r} is not a plain relative path")


def count_columns(message: Descriptor, most: int, above: tuple[str, ...] = ()) -> int:
    """The number of columns of a message, nested ones included. Counting stops above `most`, because a few bytes of
    schema can nest billions of columns."""
    inside = (*above, message.full_name)
    columns = 0
    for field in message.fields:
        value = field
        if is_map(field):
            columns += 1
            _, value = map_fields(field)
        columns += _count_value(value, most - columns, inside)
        if columns > most:
            break
    return columns or 1


def _count_value(field: FieldDescriptor, most: int, above: tuple[str, ...]) -> int:
    message = field.message_type
    if message is None or message.full_name in ONE_VALUE or is_json(message, above):
        return 1
    return count_columns(message, most, above)


def _count_messages(message: DescriptorProto) -> int:
    return 1 + sum(_count_messages(nested) for nested in message.nested_type)
