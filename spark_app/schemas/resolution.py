"""From a schema id, or a GUID, to its descriptor set."""

from __future__ import annotations

from contextlib import suppress

from spark_app.schemas.caps import Caps, SchemaRefused
from spark_app.schemas.descriptors import CompileFailed, NotCompiled, compile_sources
from spark_app.schemas.registry import Registry, RegistryUnreachable, SchemaNotFound


def resolve(registry: Registry, key: int | str, caps: Caps) -> bytes:
    """A serialized FileDescriptorSet; see `compile_sources`. What trips up our own code waits: else its id would end
    the app at each start.

    Raises:
        SchemaNotFound, RegistryUnreachable, SchemaRefused, CompileFailed
    """
    try:
        return _resolve(registry, key, caps)
    except (SchemaNotFound, RegistryUnreachable, SchemaRefused, CompileFailed):
        raise
    except Exception as error:
        raise CompileFailed(f"{type(error).__name__}: {str(error)[:500]}") from error


def _resolve(registry: Registry, key: int | str, caps: Caps) -> bytes:
    """Registries print text from descriptors, and not always so that protoc reads it; some cannot give the compiled
    form, but try. What protoc refuses is asked for once more, in the other form.
    """
    try:
        return compile_sources(registry.fetch(key), caps)
    except NotCompiled:
        with suppress(SchemaNotFound, NotCompiled):
            return _resolve_other(registry, key, caps)
        raise


def _resolve_other(registry: Registry, key: int | str, caps: Caps) -> bytes:
    try:
        sources = registry.fetch(key, "text" if registry.form == "serialized" else "serialized")
    except RegistryUnreachable as error:
        if error.status == 500:  # it has just answered: now it tells that it cannot do this
            raise SchemaNotFound(str(error)) from None
        raise
    return compile_sources(sources, caps)
