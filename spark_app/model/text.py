"""Text from outside: escaped for people, quoted for SQL, and the known names that a wrong one comes near."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def one_line(text: str) -> str:
    """The text with control characters, line breaks and direction marks escaped (`\\x1b`, `\\n`, `\\u202e`), so that
    it cannot control a terminal. Escaping a second time changes nothing."""
    return text if text.isprintable() else "".join(map(_spell, text))


def _spell(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def quoted(name: str) -> str:
    """The name of a table or a column as SQL takes it, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def in_backticks(name: str) -> str:
    """The name as Spark's SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def near(name: str, known: Iterable[str], most: int = 3) -> str:
    """Which of the known names a wrong one may be; case does not count where none is near."""
    names = sorted(set(known))
    folded = {one.casefold(): one for one in names}
    close = difflib.get_close_matches(name, names, most)
    close = close or [folded[one] for one in difflib.get_close_matches(name.casefold(), folded, most)]
    if close or not names:
        return f"did you mean {' or '.join(close)}?" if close else "there is none"
    return f"there are {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}"
