"""Lines of JSON in files that only grow: what one process has to say until another one has moved it into a table.

    <folder>/00001764106000000000.jsonl    {"number": 1764106000000000, ...}

The writer numbers its lines in ascending order. A file is named by a number that none of the files before it has
reached. The newest file stays: it has the number after which the writer goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from posixpath import basename
from typing import Any

from spark_app.lake.files import failpoints
from spark_app.lake.files.storage import Storage

PER_FILE = 100  # writes
Line = dict[str, Any]


class Spool:
    """The lines in a folder. One process at a time writes them, in one thread."""

    def __init__(self, storage: Storage, folder: str):
        self._storage = storage
        self._folder = folder
        self._last: int | None = None  # number of the last line; None = not looked for yet
        self._key: str | None = None  # of the file at hand
        self._left = 0  # writes that it may still get

    def numbered(self, row: Mapping[str, Any]) -> bytes:
        """The row as a line with the next number."""
        last = self._last_number() if self._last is None else self._last
        self._last = max(last + 1, int(time.time() * 1e6))
        return json.dumps({"number": self._last, **row}, ensure_ascii=False).encode() + b"\n"

    def write(self, lines: Sequence[bytes]) -> None:
        """Store lines of `numbered` durably, in one file.

        Raises:
            OSError: some of them may be stored.
        """
        if self._key is None or not self._left:
            self._key, self._left = f"{self._folder}/{self._last:020d}.jsonl", PER_FILE
        try:
            with failpoints.around("spool"):
                self._storage.append(self._key, b"".join(lines))
        except OSError:
            self._key = None  # the file may end within a line
            raise
        self._left -= 1

    def read(self, after: int = 0) -> dict[int, Line]:
        """The lines after a number, in their order: number -> line. The end of a line that a crash has cut is left
        out."""
        keys = self.files()
        found: dict[int, Line] = {}
        for number, key in enumerate(keys):
            if number + 1 == len(keys) or _first(keys[number + 1]) > after + 1:
                found |= _lines(self._storage.get(key))
        return {number: found[number] for number in sorted(found) if number > after}

    def forget(self, upto: int) -> None:
        """Remove the files whose lines all have a number up to this one."""
        done = [key for key, following in itertools.pairwise(self.files()) if _first(following) <= upto + 1]
        if done:
            with failpoints.around("spool.forget"):
                self._storage.delete(*done)

    def files(self) -> list[str]:
        """The keys of the files, the oldest first."""
        return [key for key in self._storage.list(self._folder) if key.endswith(".jsonl")]

    def _last_number(self) -> int:
        keys = self.files()
        return max([0, *map(_first, keys), *_lines(self._storage.get(keys[-1]))]) if keys else 0


def _first(key: str) -> int:
    return int(basename(key).removesuffix(".jsonl"))


def _lines(data: bytes) -> dict[int, Line]:
    found = {}
    for line in data.splitlines(keepends=True):
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError):  # a crash has cut the line
            value = json.loads(line if line.endswith(b"\n") else b"")
            found[int(value.pop("number"))] = value
    return found
