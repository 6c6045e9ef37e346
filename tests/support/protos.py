"""Schemas for tests: .proto text in, what the app's compiler makes of it out; Google's classes for messages."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_app.model.catalog import Catalog, Decodable, SchemaKey
from spark_app.protobuf.changes.differences import Change, Version, differences
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.schemas.descriptors import compile_sources, digest
from spark_app.protobuf.schemas.ledger import message_types
from spark_app.protobuf.schemas.limits import SchemaLimits
from spark_app.protobuf.schemas.registry import ROOT, Sources

CAPS = SchemaLimits(
    max_text_bytes=1 << 20, max_files=100, max_columns=2000, max_compile_cpu_s=5, max_compile_bytes=512 << 20
)
PROTO3 = 'syntax = "proto3";\n'


def compile_text(text: str, references: dict[str, str] | None = None, schema_id: SchemaKey = 1) -> Decodable:
    """A schema and its references (import name -> text), compiled as the app does it."""
    descriptor_set = compile_sources(Sources(texts={ROOT: text} | (references or {})), CAPS)
    return Decodable(schema_id, descriptor_set, digest(descriptor_set), "text")


def renamed(decodable: Decodable, key: SchemaKey, package: str) -> Decodable:
    """The same schema, which imports nothing, in a package of its own."""
    files = FileDescriptorSet.FromString(decodable.descriptor_set)
    files.file[0].package = package
    data = files.SerializeToString()
    return Decodable(key, data, digest(data), "text")


def message_class(decodable: Decodable, name: str) -> Any:
    """Google's class of a message by its full name."""
    return message_factory.GetMessageClass(_pool(decodable.descriptor_set).FindMessageTypeByName(name))


@functools.lru_cache(64)
def _pool(descriptor_set: bytes) -> Any:
    return load_files(descriptor_set)[0]


def catalog_of(*decodables: Decodable, refused: dict[SchemaKey, tuple[str, str]] | None = None) -> Catalog:
    """A catalog as the ledger builds it, in the order given."""
    return Catalog({d.key: d for d in decodables}, refused or {}, frozenset(), *message_types(decodables))


def changes_between(old: bytes, new: bytes) -> list[Change]:
    """As `differences`, if all columns have the names of their fields."""
    return differences(Version(old, old), Version(new, new))
