"""Escapes text from outside before it is shown to people, and names before they are part of SQL."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with control characters, line breaks and direction marks escaped (`\\x1b`, `\\n`, `\\u202e`), so that
    it cannot control a terminal. Escaping a second time changes nothing."""
    return text if text.isprintable() else "".join(map(_spell, text))


def _spell(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def quoted(name: str) -> str:
    """The name of a table or a column as SQL takes it, whatever it is."""
    return '"' + name.replace('"', '""') + '"'
