"""The schemas that a task knows, and their keys. All classes are frozen and picklable: they are sent to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from spark_app.model.columns import NO_IDS, Aliases, FieldIds

# A message index of Confluent's frame: the path from the file to the message; [0] is the first message.
MessageIndex = tuple[int, ...]

# The name of a schema in a frame: its id, or its GUID as text with dashes.
SchemaKey = int | str


OF_CHANGE = "change:"


def read_schema_key(text: str) -> SchemaKey:
    """The inverse of `str` and of `wait_for_change` for a schema key: decimal digits give an id, any other text is a
    GUID."""
    text = text.removeprefix(OF_CHANGE)
    return int(text) if text.isdecimal() else text


def wait_for_change(key: SchemaKey) -> str:
    """What the records of a schema wait for until a person has decided about its changes."""
    return f"{OF_CHANGE}{key}"


Numbering = Literal["registered", "descriptor", "without_map_entries"]  # see `protobuf/decode/numbering`

# The form in which the registry returned the file whose messages an index names.
Form = Literal["text", "descriptor"]


@dataclass(frozen=True)
class Decodable:
    """A schema that a task can decode, as compiled files."""

    key: SchemaKey
    descriptor_set: bytes  # a serialized FileDescriptorSet, dependencies first, the writer's own file last
    digest: str  # SHA-256 of `descriptor_set`, hex; every cache of decoders uses it as its key
    form: Form | None = None  # None = the ledger of an earlier release does not contain it
    numbering: Numbering | None = None  # of the lake; None = a lake of an earlier release without one
    encrypted: str = ""  # what its rule set encrypts, see `Sources`

    @property
    def counts_entries(self) -> bool | None:
        """Whether map entries count in a message index; None = unknown."""
        if self.numbering == "registered":
            return None if self.form is None else self.form == "descriptor"
        return self.numbering != "without_map_entries"


@dataclass(frozen=True)
class DecodeOptions:
    """How payloads are decoded.

    Attributes:
        strict: True = Google's parser checks each payload. False = it checks only batches in which the fast
            decoder rejects a payload: faster, but slightly corrupt payloads may be accepted.
        defaults: True = a field without presence that is absent gets its default value. False = it becomes NULL, and
            so does a field that was sent with its default value, because the two are equal on the wire.
        wire_types: True = a payload that has a field of another wire type than in the schema is rejected.
    """

    strict: bool = True
    defaults: bool = True
    wire_types: bool = False


@dataclass(frozen=True)
class Catalog:
    """The schemas that a task knows; it reports any other schema as new. Sent to the executors."""

    decodable: Mapping[SchemaKey, Decodable]
    refused: Mapping[SchemaKey, tuple[str, str]]  # -> (cause, detail)
    waiting: frozenset[SchemaKey]  # schemas that cannot be decoded now
    columns: Mapping[str, pa.Schema]  # message type -> the columns of all its versions
    # (schema, full name) -> message type, where it is not the full name
    types: Mapping[tuple[SchemaKey, str], str] = field(default_factory=dict)
    field_ids: FieldIds = NO_IDS  # of the columns that the files of a task have
    # message type -> the other names of its columns, where it has some
    aliases: Mapping[str, Aliases] = field(default_factory=dict)
    paused: frozenset[SchemaKey] = frozenset()  # waiting schemas about whose changes a person has to decide

    def type_of(self, key: SchemaKey, full_name: str) -> str:
        """The message type: the full name, plus a number if schemas with this name contradict each other."""
        return self.types.get((key, full_name), full_name)
