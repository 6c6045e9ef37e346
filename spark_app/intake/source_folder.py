"""The folder of a file source. Only this class lists and opens its files, so that another storage can take its place.

A key is a file's path below the folder, with "/" between the parts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

HIDDEN = (".", "_")  # other programs write half a file under such a name, and marks such as _SUCCESS


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as it was listed.

    Attributes:
        size: bytes.
        changed: nanoseconds since 1970 of the last change of content or name (ctime): unlike the time of the content it
            cannot be set, so a copied file with an old time is not taken for a settled one.
        time: nanoseconds since 1970 of the content (mtime).
    """

    key: str
    size: int
    changed: int
    time: int

    def is_same(self, size: int, changed: int) -> bool:
        return (self.size, self.changed) == (size, changed)


class SourceFolder:
    """A folder on a disk that every worker sees under the same path. It may be pickled."""

    def __init__(self, path: str):
        self.path = os.path.abspath(path)

    def uri(self, key: str) -> str:
        """The name under which people know the file.

        Raises:
            ValueError: the key leaves the folder.
        """
        if key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise ValueError(f"{key!r} is not below {self.path}")
        return f"{self.path}/{key}"

    def exists(self, key: str = "") -> bool:
        return os.path.exists(self.uri(key) if key else self.path)

    def files(self, after: str = "") -> Iterator[Listed]:
        """The files whose keys come after `after` in the order of keys, in no order. What is removed meanwhile is left
        out, and linked folders are.

        Raises:
            OSError: a folder cannot be read.
        """
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(self.uri(folder) if folder else self.path))
            except FileNotFoundError:
                if not folder:
                    raise
                continue
            for entry in entries:
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(HIDDEN):
                    continue
                if entry.is_dir(follow_symlinks=False):  # links could make a circle
                    if f"{key}0" > after:  # "0" is the character after "/"
                        folders.append(key)
                elif key > after and (found := self._look_at(entry, key)) is not None:
                    yield found

    def _look_at(self, entry: os.DirEntry[str], key: str) -> Listed | None:
        """None if it is no file, such as a link that leads nowhere or to itself."""
        try:
            return self.look(key) if entry.is_file() else None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise

    def look(self, key: str) -> Listed | None:
        """The file as it is now; None if it does not exist."""
        try:
            found = os.stat(self.uri(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Listed(key, found.st_size, found.st_ctime_ns, found.st_mtime_ns)

    def open_input(self, key: str) -> pa.NativeFile:
        """A file to read at any position.

        Raises:
            FileNotFoundError
        """
        from pyarrow import OSFile

        return OSFile(self.uri(key), "rb")

    def get(self, key: str) -> bytes:
        """The content of a small file.

        Raises:
            FileNotFoundError
        """
        with open(self.uri(key), "rb") as file:
            return file.read()

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        try:
            return sorted(os.listdir(self.uri(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []
