"""The SQL files that the settings name."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

MOST_BYTES = 1 << 20


def files_of(patterns: Sequence[str]) -> list[str]:
    """The files, each once; a pattern that no file fits is there as it is."""
    return list(dict.fromkeys(file for pattern in patterns for file in sorted(glob.glob(pattern)) or [pattern]))


def read(file: str) -> str:
    """
    Raises:
        OSError, UnicodeDecodeError: it cannot be read; the text says what to do.
    """
    if not os.path.isfile(file):
        raise OSError("there is no such file: correct tables.sql, whose paths begin where the app was started")
    if os.path.getsize(file) > MOST_BYTES:
        raise OSError(f"the file has more than {MOST_BYTES:,} bytes: split it")
    with open(file, encoding="utf-8") as source:
        return source.read()
