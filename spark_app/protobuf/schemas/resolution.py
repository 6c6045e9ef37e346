"""Fetches and compiles a schema by its id or GUID, and finds its registered form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_app.model.catalog import Form
from spark_app.protobuf.decode.google_parser import own_file
from spark_app.protobuf.schemas.descriptors import (
    OWN_FILE,
    CompileUnavailable,
    ProtocRejected,
    compile_schema,
    has_entry_and_other,
)
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import ROOT, Registry, RegistryUnreachable, SchemaNotFound, Sources


@dataclass(frozen=True)
class Resolved:
    """A resolved schema.

    Attributes:
        descriptor_set, comments: see `Compiled`.
        encrypted: see `Sources`.
        form: the registered form of the file whose messages an index names; writers number its messages by this form.
    """

    descriptor_set: bytes
    form: Form
    comments: Mapping[str, str]
    encrypted: str = ""


def resolve(registry: Registry, key: int | str, caps: SchemaLimits) -> Resolved:
    """Fetch and compile a schema. An unexpected error becomes `CompileUnavailable`, so that one schema cannot stop the
    app at every start.

    Raises:
        SchemaNotFound, RegistryUnreachable, SchemaInvalid, CompileUnavailable
    """
    try:
        return _resolve(registry, key, caps)
    except (SchemaNotFound, RegistryUnreachable, SchemaInvalid, CompileUnavailable):
        raise
    except Exception as error:
        raise CompileUnavailable(f"{type(error).__name__}: {str(error)[:500]}") from error


def _resolve(registry: Registry, key: int | str, caps: SchemaLimits) -> Resolved:
    refusals: dict[str, None] = {}
    for sources in _forms(registry, key):
        try:
            compiled = compile_schema(sources, caps)
            form = _form_of(sources, compiled.descriptor_set)
            return Resolved(compiled.descriptor_set, form, compiled.comments, sources.encrypted)
        except ProtocRejected as error:
            refusals[str(error)] = None
    raise ProtocRejected("; in another form: ".join(refusals))


def _forms(registry: Registry, key: int | str) -> Iterator[Sources]:
    """The forms of the schema, in the order in which they are compiled until one succeeds.

    A registry prints text from a descriptor, and protoc cannot always read it: not if map entries are written out as
    messages, as Confluent's serializers register them. Some registries fail to return the compiled form. A compiled
    form that the registry made from `map<>` text has lost the position of the maps among the messages, and so the
    message indexes of some writers: in this case the text is first, whatever the setting.
    """
    requested = registry.fetch(key)
    other = None
    if registry.form == "serialized" and any(map(has_entry_and_other, requested.compiled.values())):
        other = _fetch_other(registry, key)
        if other is not None and other != requested:
            yield other
    yield requested
    other = other or _fetch_other(registry, key)
    if other is None or other == requested:
        return
    if len(requested.names()) > 1:
        yield _mix(requested, other)
    yield other


def _fetch_other(registry: Registry, key: int | str) -> Sources | None:
    """The form that the settings do not request; None if the registry cannot return it."""
    try:
        return registry.fetch(key, "text" if registry.form == "serialized" else "serialized")
    except SchemaNotFound:
        return None
    except RegistryUnreachable as error:
        if error.status == 500:  # the first request has just succeeded, so the registry cannot return this form
            return None
        raise


def _mix(requested: Sources, other: Sources) -> Sources:
    """The schema's own file from `requested`, its imports from `other`."""
    mixed = Sources(max(requested.size, other.size), encrypted=requested.encrypted)
    for own, files in ((True, requested), (False, other)):
        mixed.texts |= {name: text for name, text in files.texts.items() if (name == ROOT) is own}
        mixed.compiled |= {name: file for name, file in files.compiled.items() if (name == ROOT) is own}
    return mixed


def _form_of(sources: Sources, descriptor_set: bytes) -> Form:
    name = own_file(FileDescriptorSet.FromString(descriptor_set).file).name
    return "descriptor" if (ROOT if name == OWN_FILE else name) in sources.compiled else "text"
