"""From a schema id, or a GUID, to its descriptor set."""

from __future__ import annotations

from contextlib import suppress

from spark_app.schemas.caps import Caps
from spark_app.schemas.descriptors import NotCompiled, compile_sources
from spark_app.schemas.registry import ROOT, Registry, SchemaNotFound


def resolve(registry: Registry, key: int | str, caps: Caps) -> bytes:
    """A serialized FileDescriptorSet; see `compile_sources`.

    Registries print text from descriptors, and not always so that protoc reads it: text that it refuses is asked for
    once more, compiled.

    Raises:
        SchemaNotFound, RegistryUnreachable, SchemaRefused, CompileFailed
    """
    sources = registry.fetch(key)
    try:
        return compile_sources(sources, caps)
    except NotCompiled:
        if ROOT in sources.texts:
            with suppress(SchemaNotFound):
                again = registry.fetch(key, "serialized")
                if ROOT in again.compiled:
                    return compile_sources(again, caps)
        raise
