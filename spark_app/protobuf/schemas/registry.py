"""Fetches schemas by id, with their imports, from any server with Confluent's API.

Output: source files by import name, as .proto text or as a compiled FileDescriptorProto. Servers differ: they return
the same schema as text (Confluent), in base64 as its serializer registered it (Apicurio), or in base64 on request.

The reasons: docs/decisions/registry.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaReference
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from spark_app.model.http import time_limit
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits, SchemaLookupError, check_name
from spark_app.protobuf.schemas.registry_client import Client, HttpError, Login, TooLarge, remedy_of
from spark_app.protobuf.schemas.well_known import is_well_known
from spark_app.settings.connections import RegistrySettings, context_of, name_in_context, qualify

NOT_THERE = frozenset({400, 404, 410, 422})  # the schema does not exist; other error statuses are not about the schema
MOST_VERSIONS = 1000  # newest versions of a subject; older ones are resolved when a record needs them
MOST_CONTEXTS = 16  # most contexts in which the subjects of a GUID are looked up
T = TypeVar("T")
ROOT = ""  # the import name of the schema itself: no file imports it


class RegistryUnreachable(SchemaLookupError):
    """The registry did not respond, or its response is not about the schema (a server error, a gateway's page).

    Attributes:
        status: the HTTP status, if the response was an error; else 0.
    """

    status = 0


class RegistryAccessDenied(RegistryUnreachable):
    """The registry responds but denies access: 401, 403, or a failed TLS handshake.

    Attributes:
        remedy: the settings to check.
    """

    def __init__(self, text: str, remedy: str):
        super().__init__(f"{text}: {remedy}")
        self.remedy = remedy


class NoRegistry(SchemaLookupError):
    """Something else than a schema registry responds, or the registry is at another path of the server."""


class SchemaNotFound(SchemaLookupError):
    """The registry does not know the id (yet)."""


@dataclass
class Sources:
    """One schema: its own file under `ROOT`, its imports under their names. `size` is the bytes of all, `encrypted` the
    rule of its rule set that encrypts payloads or fields, "" = none."""

    size: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    compiled: dict[str, FileDescriptorProto] = field(default_factory=dict)
    encrypted: str = ""

    def names(self) -> set[str]:
        return {*self.texts, *self.compiled}


class Registry:
    """A client of the registry, with limits on schemas and responses.

    It does not use Confluent's client: that has no limit on the size of a response, caches every response for ever
    without regard to the request's parameters, and drops the schema id that the response contains.
    """

    def __init__(self, settings: RegistrySettings, caps: SchemaLimits):
        self._login = Login(settings)
        self._client = Client(settings, self._login, caps.response_bytes)
        self._caps = caps
        self.form = settings.format
        self._context = context_of(settings.subject)
        self._time_limit = partial(time_limit, 2 * settings.timeout_s)
        self.url = settings.url

    def fetch(self, key: int | str, form: str = "") -> Sources:
        """The schema and all its imports. If several schema references have one import name, the first one is used.

        Args:
            key: a schema id, or a GUID as text with dashes.
            form: `text` or `serialized`, instead of the setting; a server may ignore it.

        Raises:
            SchemaNotFound, RegistryUnreachable, SchemaInvalid
        """
        path = f"schemas/ids/{key}" if isinstance(key, int) else f"schemas/guids/{quote(key, safe='')}"
        sources = Sources()
        with self._time_limit():
            response = self._get_schema(path, form, **_within(self._context))
            returned = response.schema_id if isinstance(key, int) else response.guid and str(response.guid).lower()
            if returned is not None and returned != (key if isinstance(key, int) else key.lower()):
                raise RegistryUnreachable(f"the request was for {key}, but the answer is about {str(returned)[:50]}")
            self._add(sources, ROOT, response.schema, form, self._context)
            sources.encrypted = _encrypting(response.schema)
        return sources

    def subject_versions(self, subject: str) -> dict[int, int]:
        """schema id -> version of the subject, for the newest `MOST_VERSIONS`; empty if there is no such subject.

        Raises:
            NoRegistry: the text has the address to set.
            RegistryUnreachable
        """
        found: dict[int, int] = {}
        path = f"subjects/{quote(subject, safe='')}/versions"
        if not (versions := self._list(path, int)[-MOST_VERSIONS:]):
            self.subjects()
        for version in versions:
            with suppress(SchemaNotFound, SchemaInvalid):  # deleted since the list was read, or over the size limit
                schema_id = self._get_schema(f"{path}/{version}").schema_id
                if isinstance(schema_id, int):
                    found.setdefault(schema_id, version)
        return found

    def subjects(self) -> list[str]:
        """All subjects, which any registry lists; none if the list is too long, or this client has no right to it.

        Raises:
            NoRegistry: the server has no such list; the text has the address to set.
        """
        try:
            if isinstance(said := self._get("subjects"), list):
                return list(map(str, said))
        except (SchemaInvalid, RegistryUnreachable):
            return []
        except SchemaNotFound as error:
            said = error
        server = "{0.scheme}://{0.netloc}".format(urlsplit(self.url.partition(",")[0]))
        remedy = f"set it to {server}/apis/ccompat/v7 for Apicurio, else to the address below which /subjects is"
        raise NoRegistry(f"it answers, but not as a schema registry ({self._clean(str(said))}): {remedy}")

    def id_of(self, subject: str, version: str) -> int:
        """The schema id of a version of a subject, which is a number or `latest`.

        Raises:
            SchemaNotFound, RegistryUnreachable
        """
        return self._id_in(self._get(f"subjects/{quote(subject, safe='')}/versions/{version}"))

    def register(self, subject: str, text: str) -> int:
        """The schema id of a text of Protobuf, which becomes the newest version of the subject if it is none yet.

        Raises:
            SchemaInvalid: it is not compatible with the newest version, or the registry refuses it.
            RegistryUnreachable
        """
        schema, path = {"schemaType": "PROTOBUF", "schema": text}, quote(subject, safe="")
        with suppress(SchemaNotFound):  # who may not register may use what others have
            return self._id_in(self._get(f"subjects/{path}", schema))
        with suppress(SchemaNotFound):  # the first version
            said = self._get(f"compatibility/subjects/{path}/versions/latest", schema, verbose=True)
            if isinstance(said, dict) and said.get("is_compatible") is False:
                reasons = "; ".join(map(str, said.get("messages") or ["the registry does not say why"]))
                raise SchemaInvalid(f"{subject}: not compatible with the newest version: {self._clean(reasons)}")
        try:
            return self._id_in(self._get(f"subjects/{path}/versions", schema))
        except SchemaNotFound as error:
            raise SchemaInvalid(f"{subject}: {error}") from None

    def _id_in(self, response: Any) -> int:
        if isinstance(response, dict) and isinstance(found := response.get("id"), int):
            return found
        raise RegistryUnreachable("the answer has no schema id")

    def versions_before(self, subject: str, version: int) -> Iterator[tuple[int, int]]:
        """(version, schema id) of the earlier versions of a subject of the context, the newest first.

        Raises:
            RegistryUnreachable
        """
        path = f"subjects/{quote(qualify(subject, self._context), safe='')}/versions"
        for earlier in sorted((number for number in self._list(path, int) if number < version), reverse=True):
            with suppress(SchemaNotFound, SchemaInvalid):  # deleted since the list was read, or over the size limit
                schema_id = self._get_schema(f"{path}/{earlier}").schema_id
                if isinstance(schema_id, int):
                    yield earlier, schema_id

    def subjects_of(self, key: int | str) -> dict[str, int]:
        """subject -> version of the schema in it; the subjects without their context. Empty if the registry does not
        know the schema, or does not support this request.

        Raises:
            RegistryUnreachable
        """
        found: dict[str, int] = {}
        with self._time_limit():
            for schema_id, context in [(key, self._context)] if isinstance(key, int) else self._ids_of(key):
                found |= self._subjects_of_id(schema_id, context)
        return found

    def _ids_of(self, guid: str) -> list[tuple[int, str]]:
        """(id, context) of a GUID, which is the same in all contexts."""
        items = self._list(f"schemas/guids/{quote(guid, safe='')}/ids", dict)[:MOST_CONTEXTS]
        found = [(item.get("id"), context_of(f":{str(item.get('context')).strip(':')}:")) for item in items]
        return [(schema_id, context) for schema_id, context in found if isinstance(schema_id, int)]

    def _subjects_of_id(self, schema_id: int, context: str) -> dict[str, int]:
        found = self._list(f"schemas/ids/{schema_id}/versions", dict, deleted=True, **_within(context))
        pairs = [(one.get("subject"), one.get("version")) for one in found]
        return {name_in_context(s): v for s, v in pairs if isinstance(s, str) and isinstance(v, int)}

    def _list(self, path: str, kind: type[T], **query: Any) -> list[T]:
        """The items of type `kind` in a list of the registry; none if the registry has no such list."""
        try:
            response = self._get(path, **query)
        except SchemaNotFound:
            return []
        except SchemaInvalid as error:
            raise RegistryUnreachable(str(error)) from None
        return [item for item in response if isinstance(item, kind)] if isinstance(response, list) else []

    def _add(self, sources: Sources, name: str, schema: Schema, form: str, context: str) -> None:
        text = schema.schema_str
        if not isinstance(text, str) or not text:
            raise RegistryUnreachable("the answer has no schema")
        if schema.schema_type != "PROTOBUF":
            raise SchemaInvalid(f"its type is {str(schema.schema_type or 'AVRO')[:50]}, not PROTOBUF")
        size = _size(text)
        self._caps.check_source(sources, name, size)
        sources.size += size
        compiled = _as_descriptor(text)
        if compiled is None:
            sources.texts[name] = text
        else:
            sources.compiled[name] = compiled
        references = [r for r in schema.references or [] if r.name]
        for reference in references:
            check_name(reference.name)
        self._caps.check_files(len(sources.names() | {str(r.name) for r in references}))
        for reference in references:
            if reference.name not in sources.names() and not is_well_known(str(reference.name)):
                path, inner = _version_path(reference, context)
                response = self._get_schema(path, form, deleted=True)
                self._add(sources, str(reference.name), response.schema, form, inner)

    def _get_schema(self, path: str, form: str = "", **query: Any) -> RegisteredSchema:
        form = form or self.form
        response = self._get(path, **query, **({} if form == "text" else {"format": form}))
        return self._call(partial(RegisteredSchema.from_dict, response))

    def _get(self, path: str, value: Any = None, **query: Any) -> Any:
        """`value` is posted."""
        with self._time_limit():
            return self._call(partial(self._client.get, path, query, value))

    def _call(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except HttpError as error:
            message = self._clean(f"HTTP {error.status}: {error}")
            if error.status in NOT_THERE:
                raise SchemaNotFound(message) from None
            raise _unreachable(message, error.status) from None
        except TooLarge as error:
            raise SchemaInvalid(str(error)) from None
        except Exception as error:  # network, TLS, or a response that is not JSON
            raise _unreachable(self._clean(f"{type(error).__name__}: {error}"), error=error) from None

    def _clean(self, text: str) -> str:
        """The first 500 characters without the secret, which a server may send back: logs and the ledger contain it."""
        return self._login.mask(text)[:500]


def _encrypting(schema: Schema) -> str:
    rules = schema.rule_set and [*(schema.rule_set.encoding_rules or ()), *(schema.rule_set.domain_rules or ())]
    encrypting = (rule for rule in rules or () if str(rule.type).startswith("ENCRYPT") and not rule.disabled)
    found = (f"{str(rule.type)[:50]} (rule {str(rule.name)[:100]})" for rule in encrypting)
    return next(found, "")


def _within(context: str) -> dict[str, str]:
    """The query parameters for an id in the context. They name only the context and no subject in it: the schemas of a
    topic's records may have several subjects, and with a subject a registry does not search the others."""
    return {"subject": context} if context else {}


def _unreachable(text: str, status: int = 0, error: Exception | None = None) -> RegistryUnreachable:
    remedy = remedy_of(status, error)
    unreachable = RegistryUnreachable(text) if remedy is None else RegistryAccessDenied(text, remedy)
    unreachable.status = status
    return unreachable


def _version_path(reference: SchemaReference, context: str) -> tuple[str, str]:
    """(path of a reference's schema, the reference's own context), for a reference in a schema of `context`.

    Subject and version come from outside, so each must stay one segment of the path.

    Raises:
        SchemaInvalid: the subject or the version is not valid.
    """
    subject, version = reference.subject, reference.version
    if not isinstance(subject, str) or subject in ("", ".", "..") or _size(subject) > 4096:
        raise SchemaInvalid(f"reference {reference.name} has the invalid subject {str(subject)[:100]!r}")
    if version is None or version == -1:
        version_text = "latest"
    elif isinstance(version, int) and not isinstance(version, bool) and 0 < version < 1 << 31:
        version_text = str(version)
    else:
        raise SchemaInvalid(f"reference {reference.name} has the invalid version {str(version)[:100]!r}")
    subject = qualify(subject, context)
    return f"subjects/{quote(subject, safe='')}/versions/{version_text}", context_of(subject)


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:  # JSON can contain half of a surrogate pair
        raise SchemaInvalid("the schema is not Unicode text") from None


def _as_descriptor(schema: str) -> FileDescriptorProto | None:
    """The compiled file, if the schema is one in base64; else None. .proto text is never valid base64."""
    try:
        file = FileDescriptorProto()
        file.ParseFromString(base64.b64decode(schema, validate=True))
        return file
    except (binascii.Error, DecodeError, ValueError):
        return None


MOST_KEPT = 16  # most subjects of a schema that are kept: one that is shared widely may be in thousands


@dataclass(frozen=True)
class Subjects:
    """The subjects of the topics' own schemas.

    Attributes:
        configured: the subjects of the settings; the subject of the values is first.
        topics: their subjects `<topic>-value`, `<topic>-key` and `<topic>-<message>` count, too.
        wrapped: the records contain wrapped messages, whose subjects are not configured.
    """

    configured: tuple[str, ...]
    topics: tuple[str, ...] = ()
    wrapped: bool = False

    def version(self, found: Mapping[str, int]) -> int | None:
        """The schema's version in the first configured subject that contains it; None if no configured subject does.

        Args:
            found: the result of `Registry.subjects_of`.
        """
        names = map(name_in_context, self.configured)
        return next((found[name] for name in names if name in found), None)

    def is_of_keys(self, subject: str) -> bool:
        """Whether it is the subject of the record keys; `subject` is without context."""
        return subject in map(name_in_context, self.configured[1:])

    def kept(self, found: Mapping[str, int]) -> dict[str, int]:
        """At most `MOST_KEPT` of a schema's subjects: those of the settings first, then by name. The first one is that
        in which the schema is compared with the version before it."""
        configured = [name_in_context(name) for name in self.configured]
        names = [*(name for name in configured if name in found), *sorted(found.keys() - set(configured))]
        return {name: found[name] for name in dict.fromkeys(names[:MOST_KEPT])}

    def own(self, found: Mapping[str, int], messages: Collection[str], known: Collection[str]) -> bool:
        """Whether a schema belongs to the topics.

        It belongs to them if one of its subjects is configured, or has the name of a topic, of a topic and a message,
        or of a known message alone. The schema of a wrapped message belongs to them if its message is known.

        Args:
            found: the schema's subjects, the result of `Registry.subjects_of`.
            messages: the full names of its messages.
            known: the full names of the messages of which the tables have rows.
        """
        endings = ("value", "key", *messages)
        ours = {f"{topic}-{ending}" for topic in self.topics for ending in endings}
        ours.update(map(name_in_context, self.configured), known)
        return not ours.isdisjoint(found) or (self.wrapped and not set(known).isdisjoint(messages))
