"""Bytes and messages as text that somebody can read, of a bounded length."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from spark_app.page.said import amount

PER_LINE = 16
MOST_DUMPED = 4096  # bytes
MOST_CHARACTERS = 40_000  # of a message
PRINTED = bytes(byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256))
NOTHING = DescriptorPool()  # has no types, so that `Any` stays as it is


class _Full(Exception):
    pass


class _Paper:
    """Takes what a printer writes, up to a number of characters."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._parts: list[str] = []

    def write(self, text: str) -> None:
        self._parts.append(text[: self._left])
        self._left -= len(text)
        if self._left < 0:
            raise _Full

    @property
    def text(self) -> str:
        return "".join(self._parts)


def hex_dump(data: bytes) -> str:
    """The first bytes as lines of offset, hex and ASCII."""
    lines = []
    for at in range(0, min(len(data), MOST_DUMPED), PER_LINE):
        part = data[at : min(at + PER_LINE, MOST_DUMPED)]
        both = part[:8].hex(" "), part[8:].hex(" ")
        lines.append(f"{at:08x}  {'  '.join(both):<48}  {part.translate(PRINTED).decode('ascii')}")
    return "\n".join(lines)


def message_text(message: Message) -> tuple[str, str]:
    """(text format of a message, why it is not all of it; "" = it is). Unknown fields have numbers."""
    own: Any = message.DESCRIPTOR.file.pool
    for shown, pool in ((message, own), (message, NOTHING), (_unnamed(message), NOTHING)):
        paper = _Paper(MOST_CHARACTERS)
        why = ""
        try:
            text_format.PrintMessage(shown, paper, as_utf8=True, descriptor_pool=pool, print_unknown_fields=True)
        except _Full:
            why = f"Only the first {amount(MOST_CHARACTERS)} characters are shown."
        except RecursionError:
            why = "Its fields are nested too deep to show all of them."
        except (DecodeError, UnicodeError):  # of a text that is not UTF-8, or of a message inside of an Any
            continue
        return plain(paper.text), why
    return "", "Google's library cannot print it."


def _unnamed(message: Message) -> Message:
    """The same fields without their names."""
    found = Empty()
    found.ParseFromString(message.SerializePartialToString())
    return found


def plain(text: str) -> str:
    """The text with all characters escaped that are not seen, or that turn the direction, but line breaks."""
    if text.isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else ascii(one)[1:-1] for one in text)
