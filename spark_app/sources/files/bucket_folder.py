"""The folder of a file source in a bucket: the objects below a prefix.

An object is whole as soon as it is there, and is known by its size, its time and its e-tag. Each part of it is read
under the condition that it still has the listed tag, so what a task has read is always of one and the same content.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import InvalidPathError, PreconditionError
from obstore.store import ObjectStore

from spark_app.lake.files import object_clients as clients
from spark_app.lake.files.object_clients import send
from spark_app.lake.files.objects import ObjectStorage
from spark_app.lake.files.store_errors import NoBucket
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, first_message_line
from spark_app.sources.files.folder import HIDDEN, Changed, Listed, SourceFolder

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

PAGE = 1000  # objects of one answer to a list; S3 gives no more
AHEAD_BYTES = 4 << 20  # are read at once, because each request takes as long as a MiB
AT_ONCE = 16  # objects that are looked at side by side


class BucketFolder(SourceFolder):
    """A prefix in a bucket that every worker reaches."""

    def __init__(self, address: StorageAddress):
        self.address = address
        self.path = address.root.rstrip("/")

    def __reduce__(self) -> tuple[Any, ...]:
        return BucketFolder, (self.address,)

    @functools.cached_property
    def _store(self) -> ObjectStore:
        return clients.open_store(self.address)

    @property
    def delta_options(self) -> dict[str, str]:
        return ObjectStorage(self.address).delta_options

    def exists(self, key: str = "") -> bool:
        """Without a key: whether there is the bucket, because a prefix is there as soon as an object is."""
        try:
            return bool(self._page(key, "")) or not key
        except FileNotFoundError:
            return False

    def files(self, after: str = "") -> Iterator[Listed]:
        for found in self._list("", after):
            if not any(part.startswith(HIDDEN) for part in found["path"].split("/")):
                yield _listed(found)

    def _list(self, folder: str, after: str) -> Iterator[Any]:
        while page := self._page(folder, after):
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1]["path"]

    def _page(self, folder: str, after: str) -> list[Any]:
        """The first objects after a key: each page is a request of its own, so that one whose answer is cut can be
        repeated."""

        def first() -> list[Any]:
            try:
                pages = obstore.list(self._store, folder or None, offset=after or None, chunk_size=PAGE)
                return list(next(pages, ()))
            except InvalidPathError as error:
                what = f"{self.path} has an object whose name cannot be a path ({first_message_line(error)})"
                raise ConfigurationError(f"source.path: {what}: give it another name, or remove it") from None

        try:
            return self._ask(folder, first)
        except NoBucket:
            raise FileNotFoundError(f"there is no bucket {self.address.bucket}") from None

    def look(self, key: str) -> Listed | None:
        try:
            return _listed(self._ask(key, lambda: obstore.head(self._store, key)))
        except FileNotFoundError:
            return None

    def look_at_all(self, keys: Iterable[str]) -> dict[str, Listed]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return {found.key: found for found in pool.map(self.look, keys) if found is not None}

    def check(self, listed: Listed) -> None:
        """Nothing: each read has checked the tag."""

    def open_input(self, listed: Listed) -> pa.NativeFile:
        from pyarrow import PythonFile

        return PythonFile(_Reader(self, listed), mode="r")

    def read_part(self, listed: Listed, start: int, end: int) -> bytes:
        """
        Raises:
            FileNotFoundError
            Changed: the object has another tag now.
        """

        def read() -> tuple[bytes, str | None]:
            found = obstore.get(self._store, listed.key, options={"if_match": listed.tag, "range": (start, end)})
            return found.bytes().to_bytes(), found.meta["e_tag"]

        try:
            data, tag = self._ask(listed.key, read)
        except PreconditionError:
            tag = None
        if tag != listed.tag:  # a store may ignore the condition
            raise Changed("was changed while it was read")
        return data

    def get(self, key: str) -> bytes:
        return self._ask(key, lambda: obstore.get(self._store, key).bytes().to_bytes())

    def names(self, folder: str, after: str = "") -> list[str]:
        listed = self._list(folder, f"{folder}/{after}")
        names = (found["path"].removeprefix(f"{folder}/") for found in listed)
        return [name for name in names if "/" not in name]

    def _ask(self, key: str, request: Callable[[], T]) -> T:
        return send(self.uri(key) if key else self.path, self.address.endpoint, request)


def _listed(found: Any) -> Listed:
    if not found["e_tag"]:
        raise ConfigurationError(f"source.path: the object store gives {found['path']} no e-tag: use a store that does")
    moment = int(found["last_modified"].timestamp()) * 10**9  # lists say milliseconds, and answers about one seconds
    return Listed(found["path"], found["size"], moment, moment, found["e_tag"])


class _Reader(io.RawIOBase):
    """An object as a file."""

    def __init__(self, folder: BucketFolder, listed: Listed):
        super().__init__()
        self._folder = folder
        self._listed = listed
        self._at = 0
        self._known, self._from = b"", 0  # a part of it, and where it begins

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._listed.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        start, whole = self._at, self._listed.size
        end = min(start + size, whole) if size >= 0 else whole
        if start >= end:
            return b""
        if start < self._from or end > self._from + len(self._known):
            self._known = self._folder.read_part(self._listed, start, max(end, min(start + AHEAD_BYTES, whole)))
            self._from = start
        self._at = end
        return self._known[start - self._from : end - self._from]
