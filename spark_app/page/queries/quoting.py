"""Names in SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name of a table or a column as SQL takes it, whatever it is."""
    return '"' + name.replace('"', '""') + '"'
