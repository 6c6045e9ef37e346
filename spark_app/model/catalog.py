"""The schemas that a task works with, and how they are named. Travels to the workers: frozen, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

# A message index as Confluent frames it: the path from the file to the message, [0] being the first message.
MessageIndex = tuple[int, ...]

# What names a schema in a frame: its id, or its GUID in the usual text form.
SchemaKey = int | str


def read_schema_key(text: str) -> SchemaKey:
    """The key whose `str` the text is."""
    return int(text) if text.isdecimal() else text


Numbering = Literal["registered", "descriptor", "without_map_entries"]  # see `worker/decode/numbering`

Form = Literal["text", "descriptor"]  # as what the file whose messages an index names came from the registry


@dataclass(frozen=True)
class Decodable:
    """A schema that the pass can decode: its compiled files."""

    key: SchemaKey
    descriptor_set: bytes  # a serialized FileDescriptorSet, dependencies first, the writer's own file last
    digest: str  # of `descriptor_set`: the key of every cache of what is built from it
    form: Form | None = None  # None = a ledger of an earlier release does not say
    numbering: Numbering | None = None  # the lake's rule; None = a lake of an earlier release, which has none

    @property
    def counts_entries(self) -> bool | None:
        """Whether map entries count in a message index; None = it is not known."""
        if self.numbering == "registered":
            return None if self.form is None else self.form == "descriptor"
        return self.numbering != "without_map_entries"


@dataclass(frozen=True)
class DecodeOptions:
    """How payloads are read.

    Attributes:
        strict: the reference parser judges each record. Else only batches in which the fast decoder refuses one:
            faster, but what is slightly corrupt may land.
        defaults: a field without presence that is not on the wire lands as its default. Else as NULL, and so does one
            that was sent as its default: on the wire they are the same.
    """

    strict: bool = True
    defaults: bool = True


@dataclass(frozen=True)
class Catalog:
    """The closed set of schemas a pass works with; outside it a schema is new. Travels to the executors."""

    decodable: Mapping[SchemaKey, Decodable]
    refused: Mapping[SchemaKey, tuple[str, str]]  # -> (cause, detail)
    waiting: frozenset[SchemaKey]  # those that cannot be settled now
    columns: Mapping[str, pa.Schema]  # message type -> every column that a version of it ever had
    types: Mapping[tuple[SchemaKey, str], str] = field(default_factory=dict)  # (schema, full name) -> another type

    def type_of(self, key: SchemaKey, full_name: str) -> str:
        """The message type: the full name, with a number where schemas of that name contradict each other."""
        return self.types.get((key, full_name), full_name)
