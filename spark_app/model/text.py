"""Text that others wrote, made harmless where people read it."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text without a character that could steer a terminal or end the line: control characters, line ends and marks
    that turn the direction of writing are spelt out (`\\x1b`, `\\n`, `\\u202e`). What is spelt out stays as it is."""
    return text if text.isprintable() else "".join(map(_spell, text))


def _spell(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
