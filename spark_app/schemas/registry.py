"""Schemas by id, from any server with Confluent's API, with their references.

Out: source files by import name, as .proto text or as a compiled FileDescriptorProto. Servers differ: the same schema
comes as text (Confluent) or in base64 as its serializer registered it (Apicurio).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from spark_app import config
from spark_app.schemas.caps import Caps, SchemaRefused

SAYS_NO = frozenset({400, 404, 410, 422})  # other errors say nothing about the schema
T = TypeVar("T")
ROOT = ""  # the import name of the schema itself: nobody imports it


class RegistryUnreachable(Exception):
    """No answer, or one that says nothing about the schema (a server error, a gateway's page)."""


class SchemaNotFound(Exception):
    """The registry does not know the id; it may later."""


@dataclass
class Sources:
    """One schema: its own file under `ROOT`, its references under their import names."""

    size: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    compiled: dict[str, FileDescriptorProto] = field(default_factory=dict)

    def names(self) -> set[str]:
        return {*self.texts, *self.compiled}


class Registry:
    """A client with this project's caps."""

    def __init__(self, settings: config.Registry, caps: Caps):
        self._client = SchemaRegistryClient(client_settings(settings))
        self._caps = caps
        self.url = settings.url

    def fetch(self, schema_id: int) -> Sources:
        """The schema and all it refers to.

        Raises:
            SchemaNotFound, RegistryUnreachable, SchemaRefused
        """
        schema = _ask(partial(self._client.get_schema, schema_id))
        sources = Sources()
        self._add(sources, ROOT, schema)
        return sources

    def subject_versions(self, subject: str) -> dict[int, int]:
        """schema id -> version of the subject; empty when there is no such subject."""
        found: dict[int, int | None] = {}
        try:
            for version in _ask(partial(self._client.get_versions, subject)) or []:
                found[version] = _ask(partial(self._client.get_version, subject, version)).schema_id
        except SchemaNotFound:
            pass  # no such subject, or a version deleted meanwhile
        return {schema_id: version for version, schema_id in found.items() if schema_id is not None}

    def _add(self, sources: Sources, name: str, schema: Schema) -> None:
        text = schema.schema_str
        if not isinstance(text, str) or not text:
            raise RegistryUnreachable("the answer holds no schema")
        if schema.schema_type != "PROTOBUF":
            raise SchemaRefused(f"its type is {schema.schema_type or 'AVRO'}, not PROTOBUF")
        self._caps.check_source(sources, name, text)
        sources.size += len(text)
        compiled = _as_descriptor(text)
        if compiled is None:
            sources.texts[name] = text
        else:
            sources.compiled[name] = compiled
        for reference in schema.references or []:
            if reference.name and reference.name not in sources.names():
                ask = partial(
                    self._client.get_version, reference.subject or "", reference.version or "latest", deleted=True
                )
                self._add(sources, reference.name, _ask(ask).schema)


def client_settings(settings: config.Registry) -> dict[str, object]:
    """The keys of Confluent's client, from ours; nothing else is passed on."""
    conf: dict[str, object] = {"url": settings.url, "timeout": settings.timeout_s, "max.retries": 1}
    if settings.username:
        password = config.read_secret(settings.password_file, "registry.password_file")
        conf["basic.auth.user.info"] = f"{settings.username}:{password}"
    files = {
        "ssl.ca.location": settings.ca_file,
        "ssl.certificate.location": settings.certificate_file,
        "ssl.key.location": settings.key_file,
    }
    return conf | {key: path for key, path in files.items() if path}


def _ask(question: Callable[[], T]) -> T:
    try:
        return question()
    except SchemaRegistryError as error:
        if error.http_status_code in SAYS_NO:
            raise SchemaNotFound(error.error_message) from None
        raise RegistryUnreachable(f"HTTP {error.http_status_code}: {error.error_message}") from None
    except SchemaRefused:
        raise
    except Exception as error:  # the client lets through whatever its HTTP library raises
        raise RegistryUnreachable(f"{type(error).__name__}: {error}") from None


def _as_descriptor(schema: str) -> FileDescriptorProto | None:
    """The compiled file when the answer is one in base64; .proto text never is valid base64."""
    try:
        file = FileDescriptorProto()
        file.ParseFromString(base64.b64decode(schema, validate=True))
        return file
    except (binascii.Error, DecodeError, ValueError):
        return None
