"""How large a schema may be. A schema comes from outside: it must not cost more than it is worth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.descriptor import Descriptor

from spark_app.worker.decode.typemap import is_json

IMPORT_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}")


class SchemaRefused(Exception):
    """The schema cannot be used, now or later; the text says why."""


class _Sized(Protocol):
    size: int  # characters, of all files

    def names(self) -> set[str]: ...


@dataclass(frozen=True)
class Caps:
    """Limits; see `config.Schemas` for units."""

    text_bytes: int
    files: int
    leaves: int
    compile_s: float
    compile_bytes: int

    def check_source(self, sources: _Sized, name: str, text: str) -> None:
        """Refuse a source file by its name, size or the number of those before it."""
        if name and not IMPORT_NAME.fullmatch(name):
            raise SchemaRefused(f"reference name {name[:100]!r} is not a plain relative path")
        if sources.size + len(text) > self.text_bytes:
            raise SchemaRefused(f"{sources.size + len(text)} characters are over the cap of {self.text_bytes}")
        if len(sources.names()) >= self.files:
            raise SchemaRefused(f"more than {self.files} files")

    def check_message(self, message: Descriptor) -> None:
        """Refuse a message that would become too many columns, before any type is built of it."""
        leaves = count_leaves(message, (), {})
        if leaves > self.leaves:
            raise SchemaRefused(f"{message.full_name} would become {leaves} columns, over the cap of {self.leaves}")


def count_leaves(message: Descriptor, above: tuple[str, ...], known: dict[tuple[str, int], int]) -> int:
    """Columns of a message with everything nested in it. Each type is counted once per depth."""
    key = (message.full_name, len(above))
    if key not in known:
        inside = (*above, message.full_name)
        nested = [f.message_type for f in message.fields]
        known[key] = sum(1 if n is None or is_json(n, inside) else count_leaves(n, inside, known) for n in nested) or 1
    return known[key]
