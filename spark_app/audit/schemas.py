"""What a schema id means, from the lake's ledger and descriptor sets, as Google's classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from spark_app.lake import read_durable
from spark_app.records import MessageIndex, SchemaKey


class Schemas:
    """The ledger as it was when the audit began."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._entries = {entry["key"]: entry for entry in read_durable(folder / "ledger.json", list) or []}
        self._pools: dict[str, DescriptorPool] = {}  # they own the descriptors
        self._classes: dict[tuple[SchemaKey, MessageIndex], type[Message] | None] = {}

    def is_decodable(self, key: SchemaKey) -> bool:
        return bool(self._entries.get(key, {}).get("outcome") == "decodable")

    def message(self, key: SchemaKey, index: MessageIndex) -> type[Message] | None:
        """The class of a decodable schema's message; None where the index names none."""
        if (key, index) not in self._classes:
            self._classes[key, index] = self._find(key, index)
        return self._classes[key, index]

    def _find(self, key: SchemaKey, index: MessageIndex) -> type[Message] | None:
        messages, found = self._own(key), None
        for position in index:
            if position >= len(messages):
                return None
            found = messages[position]
            messages = list(found.nested_types)
        return None if found is None or found.GetOptions().map_entry else message_factory.GetMessageClass(found)

    def index_of(self, key: SchemaKey, full_name: str) -> MessageIndex:
        """The index of the message, () where the schema has none of that name."""
        return next((index for index, message in _all(self._own(key)) if message.full_name == full_name), ())

    def _own(self, key: SchemaKey) -> list[Descriptor]:
        """The top-level messages of the schema's own file."""
        digest = self._entries[key]["digest"]
        files = FileDescriptorSet.FromString((self._folder / f"{digest}.fds").read_bytes()).file
        if digest not in self._pools:
            self._pools[digest] = DescriptorPool()
            for file in files:
                self._pools[digest].Add(file)
        own = self._pools[digest].FindFileByName(files[-1].name)
        return [own.message_types_by_name[message.name] for message in files[-1].message_type]


def _all(messages: list[Descriptor]) -> Iterator[tuple[MessageIndex, Descriptor]]:
    for position, message in enumerate(messages):
        yield (position,), message
        for index, inner in _all(list(message.nested_types)):
            yield (position, *index), inner
