"""Google's message classes of the lake's schemas, from its ledger, descriptor sets and fixed settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from spark_app.audit.expected import names_of
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.model.catalog import MessageIndex, SchemaKey
from spark_app.model.record_schemas import RESERVED

COUNTS, SKIPS = True, False  # whether a writer counts map entries when it numbers messages


@dataclass(frozen=True)
class Reading:
    """The class of the message that an index names; and, if the lake has a fixed setting for message indexes, the class
    of the message that the same index names for writers of the other kind."""

    kind: type[Message]
    other: type[Message] | None = None

    def belongs_to_other_index(self, payload: bytes) -> bool:
        """Whether only the other class has all fields of the payload."""
        return self.other is not None and not _knows(self.kind, payload) and _knows(self.other, payload)


class Schemas:
    """The ledger and the lake's numbering of messages at the start of the audit."""

    def __init__(self, lake: Lake):
        self._storage, self._folder = lake.storage, lake.schemas
        fixed = read_durable(lake.storage, lake.fixed_settings) or {}
        self._numbering = fixed.get("decode.message_index")
        self.routing: str | None = fixed.get("event.routing")  # the routing field, as the lake began to call it
        self._entries = {entry["key"]: entry for entry in read_durable(lake.storage, lake.ledger, list) or []}
        self._pools: dict[str, DescriptorPool] = {}  # they own the descriptors
        self._readings: dict[tuple[SchemaKey, MessageIndex], Reading | None] = {}

    def is_decodable(self, key: SchemaKey) -> bool:
        return bool(self._entries.get(key, {}).get("outcome") == "decodable")

    def reading(self, key: SchemaKey, index: MessageIndex) -> Reading | None:
        """The classes for a message of a decodable schema; None if the index names no message."""
        if (key, index) not in self._readings:
            self._readings[key, index] = self._find(key, index)
        return self._readings[key, index]

    def _find(self, key: SchemaKey, index: MessageIndex) -> Reading | None:
        own, way = self._own(key), self._way(key)
        found = {each: _at(own, index, each) for each in (COUNTS, SKIPS)}
        if found[COUNTS] == found[SKIPS]:
            way = COUNTS
        if way is None:
            return None
        one, other = found[way], found[not way]
        if one is None:
            return None
        if other is None or other == one or self._numbering is None:
            return Reading(message_factory.GetMessageClass(one))
        return Reading(message_factory.GetMessageClass(one), message_factory.GetMessageClass(other))

    def _way(self, key: SchemaKey) -> bool | None:
        """Whether the schema's writers count map entries, by the lake's numbering; None = the ledger lacks the form in
        which the schema was registered."""
        if self._numbering == "without_map_entries":
            return SKIPS
        if self._numbering == "registered":
            return {"text": SKIPS, "descriptor": COUNTS}.get(self._entries[key].get("form"))
        return COUNTS

    def messages(self) -> Iterator[Descriptor]:
        """Every message of the decodable schemas."""
        for key in self._entries:
            if self.is_decodable(key):
                yield from (message for _, message in _all(self._own(key), COUNTS))

    def both_forms(self) -> Iterator[tuple[Descriptor, Descriptor]]:
        """Every message of the decodable schemas with the names of its fields, and with those of its columns; none if
        these are the same."""
        are_other = any(entry.get("decoded") for entry in self._entries.values())
        for key, entry in self._entries.items():
            if are_other and self.is_decodable(key):
                registered, decoded = self._declared(entry["digest"]), self._own(key)
                pairs = zip(_all(registered, COUNTS), _all(decoded, COUNTS), strict=True)
                yield from ((message, columns) for (_, message), (_, columns) in pairs)

    def index_of(self, key: SchemaKey, full_name: str) -> MessageIndex:
        """The index of the message; () if the schema has no message of that name."""
        every = _all(self._own(key), self._way(key) is not SKIPS)
        return next((index for index, message in every if message.full_name == full_name), ())

    def descriptor_set(self, key: SchemaKey) -> bytes:
        """The descriptor set of a decodable schema, with the names of its columns."""
        return self._storage.get(f"{self._folder}/{self._digest(key)}.fds")

    def _digest(self, key: SchemaKey) -> str:
        return str(self._entries[key].get("decoded") or self._entries[key]["digest"])

    def _own(self, key: SchemaKey) -> list[Descriptor]:
        """The top-level messages of the schema's own file, or of the file that it re-exports if it declares no type."""
        return self._declared(self._digest(key))

    def _declared(self, digest: str) -> list[Descriptor]:
        """As `_own`, of a descriptor set."""
        files = FileDescriptorSet.FromString(self._storage.get(f"{self._folder}/{digest}.fds")).file
        if digest not in self._pools:
            self._pools[digest] = DescriptorPool()
            for file in files:
                self._pools[digest].Add(file)
        declaring = _declaring_file(files[-1], {file.name: file for file in files}) or files[-1]
        own = self._pools[digest].FindFileByName(declaring.name)
        return [own.message_types_by_name[message.name] for message in declaring.message_type]


def _declaring_file(file: FileDescriptorProto, files: dict[str, FileDescriptorProto]) -> FileDescriptorProto | None:
    """The file itself or its nearest public import that declares a type."""
    level = [file]
    for _ in files:
        for one in level:
            if one.message_type or one.enum_type:
                return one
        level = [files[one.dependency[position]] for one in level for position in one.public_dependency]
    return None


def _at(messages: list[Descriptor], index: MessageIndex, way: bool) -> Descriptor | None:
    found = None
    for number in index:
        if number >= len(messages):
            return None
        found = messages[number]
        messages = _nested(found, way)
    return None if found is None or found.GetOptions().map_entry else found


def _nested(message: Descriptor, way: bool) -> list[Descriptor]:
    return [inner for inner in message.nested_types if way is COUNTS or not inner.GetOptions().map_entry]


def _all(messages: list[Descriptor], way: bool) -> Iterator[tuple[MessageIndex, Descriptor]]:
    for number, message in enumerate(messages):
        yield (number,), message
        for index, inner in _all(_nested(message, way), way):
            yield (number, *index), inner


def _knows(kind: type[Message], payload: bytes) -> bool:
    """Whether the class parses the payload and has all of its fields."""
    try:
        message, known = kind.FromString(payload), kind.FromString(payload)
    except DecodeError:
        return False
    known.DiscardUnknownFields()
    return bool(message.SerializePartialToString() == known.SerializePartialToString())


class RenamedFields:
    """The columns of messages, and the names of their fields that were no column's when they came."""

    def __init__(self, schemas: Schemas):
        self._columns: dict[str, set[str]] = defaultdict(set)
        self._column_of: dict[str, dict[str, str]] = defaultdict(dict)
        self._inside: dict[tuple[str, str], str] = {}  # message and column -> the message in it
        for message, decoded in schemas.both_forms():
            self._add(message, decoded, set())

    def _add(self, message: Descriptor, decoded: Descriptor, seen: set[str]) -> None:
        """`seen` are the messages that contain it, and others that were added with them."""
        name, columns = message.full_name, names_of(decoded, set(RESERVED))
        seen.add(name)
        self._columns[name] |= set(columns.values())
        there = {column.lower() for column in self._columns[name]} | RESERVED
        for field in message.fields:
            inner, other = field.message_type, decoded.fields_by_number[field.number].message_type
            if inner is not None and other is not None:
                self._inside[name, columns[field.number]] = inner.full_name
                if inner.full_name not in seen:
                    self._add(inner, other, seen)
            if field.name.lower() not in there:
                self._column_of[name].setdefault(field.name, columns[field.number])

    def column(self, message: str, name: str, columns: Collection[str]) -> str:
        """The column of a message's rows that a setting calls by this name.

        Args:
            columns: those of the schema that wrote the rows.
        """
        return self._meant(name, columns, self._column_of.get(message, {}))

    def column_in_table(self, messages: Iterable[str], name: str, columns: Collection[str]) -> str:
        """The same for the rows of a table with these message types. No version may have a column of the name.

        Args:
            columns: those that the table has by now.
        """
        kinds = [*map(_full_name, messages)]
        sent = [column for kind in kinds for column in self._columns.get(kind, ())]
        renamed: dict[str, str] = {}
        for kind in kinds:
            renamed = self._column_of.get(kind, {}) | renamed
        return self._meant(name, [*columns, *sent], renamed)

    def inside(self, messages: Iterable[str], column: str) -> list[str]:
        """The messages in a column of the rows of these message types."""
        keys = ((_full_name(message), column) for message in messages)
        return [self._inside[key] for key in keys if key in self._inside]

    @staticmethod
    def _meant(name: str, columns: Iterable[str], renamed: Mapping[str, str]) -> str:
        """The column of this name, else one that differs in case only, else that of a renamed field."""
        spelt = {column.lower(): column for column in reversed([*columns])} | {column: column for column in columns}
        others = {other.lower(): column for other, column in reversed(list(renamed.items()))}
        return spelt.get(name) or spelt.get(name.lower()) or others.get(name.lower(), name)

    def names(self) -> dict[str, str]:
        """Name of a field in lower case -> its column, of all messages."""
        every = [pair for names in self._column_of.values() for pair in names.items()]
        return {name.lower(): column for name, column in reversed(every)}


def _full_name(message: str) -> str:
    """That of a message type."""
    return message.rpartition("/")[2].partition("#")[0]
