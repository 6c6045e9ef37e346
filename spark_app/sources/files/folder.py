"""The folder of a file source, on a disk; `open_folder` finds the class for others.

Only `DiskFolder` and `BucketFolder` list and open its files. A key is a file's path below the folder, with "/" between
the parts.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spark_app.lake.files import beneath
from spark_app.lake.files.beneath import NotRegular
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

HIDDEN = (".", "_")  # other programs write half a file under such a name, and marks such as _SUCCESS
MOST_BYTES = 128 << 20  # of a small file, such as an entry of a log
TOO_LARGE = f"it has more than {MOST_BYTES >> 20} MiB"
REFUSED = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}  # what only who made a folder can mend
NO_TEXT = "its name is not UTF-8: give it another one"


class Changed(Exception):
    """A file is not the listed one any more; the text says what became of it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as it was listed.

    Attributes:
        size: bytes.
        changed: nanoseconds since 1970 of the last change. On a disk that of content or name (ctime): unlike the time
            of the content it cannot be set, so a copied file with an old time is not taken for a settled one.
        time: nanoseconds since 1970 of the content (mtime).
        tag: the e-tag that a bucket gives the content; "" on a disk.
    """

    key: str
    size: int
    changed: int
    time: int
    tag: str = ""

    def is_same(self, size: int, changed: int, tag: str) -> bool:
        return (self.size, self.changed, self.tag) == (size, changed, tag)


class SourceFolder(ABC):
    """A folder that every worker sees. It may be pickled, and holds no secret.

    Attributes:
        path: the name under which people know it.
        refused: folder below it -> why it cannot be listed, as of the last list of everything.
    """

    path: str
    refused: Mapping[str, str] = {}

    def uri(self, key: str) -> str:
        """The name under which people know the file.

        Raises:
            ValueError: the key leaves the folder.
        """
        if key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise ValueError(f"{key!r} is not below {self.path}")
        return f"{self.path}/{key}"

    @property
    @abstractmethod
    def delta_options(self) -> dict[str, str]:
        """How delta-rs reaches the files. They may hold secrets."""

    @abstractmethod
    def exists(self, key: str = "") -> bool:
        """Whether there is such a folder; without a key, whether there is the folder of the source.

        Raises:
            OSError: that cannot be said now.
        """

    def require(self) -> None:
        """
        Raises:
            OSError: the folder of the source is not there, or that cannot be said now.
        """
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, "the folder is not there", self.path)

    @abstractmethod
    def files(self, after: str = "") -> Iterator[Listed]:
        """The files whose keys come after `after` in the order of keys, in no order. What is removed meanwhile is left
        out, and hidden files are.

        Raises:
            OSError: a folder cannot be read.
        """

    @abstractmethod
    def look(self, key: str) -> Listed | None:
        """The file as it is now; None if it does not exist."""

    def look_at_all(self, keys: Iterable[str]) -> dict[str, Listed]:
        """Those of the files that exist."""
        return {key: found for key in keys if (found := self.look(key)) is not None}

    @abstractmethod
    def check(self, listed: Listed) -> None:
        """Called before and after a file is read.

        Raises:
            Changed: what was read may be of another file than the listed one.
        """

    @abstractmethod
    def open_input(self, listed: Listed) -> pa.NativeFile:
        """A file to read at any position.

        Raises:
            FileNotFoundError
            Changed: also later, when the file is read.
        """

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The content of a small file.

        Raises:
            FileNotFoundError
        """

    @abstractmethod
    def names(self, folder: str, after: str = "") -> list[str]:
        """The names in a folder that come after `after`, sorted; empty if there is no such folder."""

    def check_regular(self, folder: str) -> None:  # noqa: B027 - a bucket has nothing else
        """Called before a library reads what is in a folder by itself.

        Raises:
            NotRegular: something there is no file, or its JSON is too large.
        """


class DiskFolder(SourceFolder):
    """A folder on a disk that every worker sees under the same path. Who writes to it need not be trusted: links lead
    nowhere unless `links`, and a key below a link does not exist."""

    delta_options: dict[str, str] = {}

    def __init__(self, path: str, links: bool = False):
        self.path = os.path.abspath(path)
        self.refused: dict[str, str] = {}
        self._links = links

    def exists(self, key: str = "") -> bool:
        try:
            return stat.S_ISDIR(os.stat(self.uri(key) if key else self.path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError as error:
            if key:
                raise
            raise ConfigurationError(f"source.path: {error}: let the user of the app read the folder") from None

    def files(self, after: str = "") -> Iterator[Listed]:
        folders = [""]
        self.refused = {} if not after else self.refused
        while folders:
            folder = folders.pop()
            for entry in self._entries(folder):
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(HIDDEN):
                    continue
                if entry.is_dir(follow_symlinks=False):  # links could make a circle
                    if f"{key}0" > after:  # "0" is the character after "/"
                        folders.append(key)
                elif key > after and (found := self._of(key, partial(entry.stat, follow_symlinks=self._links))):
                    yield found

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            return list(os.scandir(self.uri(folder) if folder else self.path))
        except FileNotFoundError:
            if not folder:
                raise
        except OSError as error:
            if not folder or error.errno not in REFUSED:
                raise
            self.refused[folder] = f"it cannot be listed: {error.strerror}"
        return []

    def look(self, key: str) -> Listed | None:
        self.uri(key)
        return self._of(key, lambda: beneath.look(self.path, key, self._links))

    def _of(self, key: str, look: Callable[[], os.stat_result]) -> Listed | None:
        try:
            found = look()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link to itself
                return None
            raise
        return Listed(key, found.st_size, found.st_ctime_ns, found.st_mtime_ns)

    def check(self, listed: Listed) -> None:
        now = self.look(listed.key)
        if now is None:
            raise Changed("is gone")
        if not now.is_same(listed.size, listed.changed, listed.tag):
            raise Changed("was changed while it was read")

    def open_input(self, listed: Listed) -> pa.NativeFile:
        from pyarrow import OSFile

        opened = self._open(listed.key)
        try:
            return OSFile(f"/dev/fd/{opened}", "rb")  # opens the same file again, wherever its name leads by now
        finally:
            os.close(opened)

    def get(self, key: str) -> bytes:
        with open(self._open(key), "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise NotRegular(TOO_LARGE)
        return content

    def _open(self, key: str) -> int:
        self.uri(key)
        return beneath.open_file(self.path, key, self._links)

    def check_regular(self, folder: str) -> None:
        for name in self.names(folder):
            try:
                found = beneath.look(self.path, f"{folder}/{name}", self._links)
                beneath.check_regular(found)
                if name.endswith(".json") and found.st_size > MOST_BYTES:
                    raise NotRegular(TOO_LARGE)
            except FileNotFoundError:
                continue
            except NotRegular as error:
                raise NotRegular(f"{as_text(f'{folder}/{name}')}: {error}") from None

    def names(self, folder: str, after: str = "") -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.uri(folder)) if name > after)
        except (FileNotFoundError, NotADirectoryError):
            return []


def is_text(key: str) -> bool:
    """Whether a key is Unicode: a name on a disk may be any bytes, and a log of Delta may have half of a character."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(key: str) -> str:
    """A key as people can read it, with escapes for what is no text."""
    try:
        return os.fsencode(key).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return key.encode("ascii", "backslashreplace").decode()


def open_folder(address: StorageAddress, links: bool = False) -> SourceFolder:
    """The folder at an address.

    Args:
        links: whether links in a folder on a disk are followed.
    """
    if not address.scheme:
        return DiskFolder(address.root, links)
    from spark_app.sources.files.bucket_folder import BucketFolder  # its libraries take time to load

    return BucketFolder(address)
