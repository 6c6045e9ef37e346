"""Writes values and names as SQL. It is the only place where text from a schema becomes part of a check."""

from __future__ import annotations

import unicodedata

# Categories and directions of characters that people cannot see, or that change the order of what they see.
UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
DIRECTIONS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def literal(value: str | bytes | bool | int | float) -> str:
    """An expression with exactly this value, of the type VARCHAR, BLOB, BOOLEAN, an integer or DOUBLE.

    Text that people can read is in quotes, and a quote inside is doubled. All other text is written by its bytes in
    hexadecimal digits, as bytes are. So no value ends its literal.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE"
    if isinstance(value, bytes):
        return _blob(value)
    if all(map(_is_readable, value)):
        return "'" + value.replace("'", "''") + "'"
    return f"decode({_blob(value.encode())})"


def identifier(name: str) -> str:
    """A column name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def _blob(value: bytes) -> str:
    return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"


def _is_readable(character: str) -> bool:
    return unicodedata.category(character) not in UNSEEN and unicodedata.bidirectional(character) not in DIRECTIONS
