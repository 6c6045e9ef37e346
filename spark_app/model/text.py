"""Text from outside: escaped for people, quoted for SQL, and the known names that a wrong one comes near."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def one_line(text: str) -> str:
    """The text with control characters, line breaks and direction marks escaped (`\\x1b`, `\\n`, `\\u202e`), so that
    it cannot control a terminal. Escaping a second time changes nothing."""
    return text if text.isprintable() else "".join(map(_spell, text))


def _spell(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def quoted(name: str) -> str:
    """The name of a table or a column as SQL takes it, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def near(name: str, known: Collection[str]) -> str:
    """Which of the known names a wrong one may be."""
    close = difflib.get_close_matches(name, known, n=3) or sorted(known)[:5]
    return f"there is {', '.join(close)}" if close else "there is none"
