"""The files of a lake on a local disk; and how the files at any address are opened."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from spark_app.lake.files import beneath
from spark_app.lake.files.storage import Storage
from spark_app.model.address import StorageAddress

if TYPE_CHECKING:  # `status`, which the health check of a container calls every few seconds, needs no Arrow
    import pyarrow as pa
    from pyarrow.fs import FileSystem

T = TypeVar("T")

BUFFER_BYTES = 256 << 10  # Parquet makes one write call per page and one per page header


class LocalStorage(Storage):
    """A lake's root folder."""

    is_local = True

    def __init__(self, root: str | os.PathLike[str]):
        self.root = os.path.abspath(root)

    @property
    def delta_options(self) -> dict[str, str]:
        return {}

    def probe(self, key: str) -> None:
        self.replace(key, b"", durable=False)
        self.delete(key)

    def path(self, key: str) -> Path:
        """The path of a file or folder, for code that is correct for local disks only."""
        return Path(self.root, key)

    def within(self, folder: str) -> LocalStorage:
        return LocalStorage(self.uri(folder))

    def list(self, folder: str, prefix: str = "") -> list[str]:
        try:
            names = os.listdir(self.uri(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [f"{folder}/{name}" if folder else name for name in sorted(names) if name.startswith(prefix)]

    def exists(self, key: str) -> bool:
        return os.path.exists(self.uri(key))

    def size(self, key: str) -> int | None:
        try:
            return os.stat(self.uri(key)).st_size
        except FileNotFoundError:
            return None

    def changed_at(self, key: str) -> int | None:
        try:
            return os.stat(self.uri(key)).st_mtime_ns
        except FileNotFoundError:
            return None

    def tag(self, key: str) -> str | None:
        """Of size and time."""
        try:
            found = os.stat(self.uri(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return f"{found.st_size} {found.st_mtime_ns}" if stat.S_ISREG(found.st_mode) else None

    def tags(self, folder: str) -> dict[str, str]:
        return {key: tag for key in self.list(folder) if (tag := self.tag(key)) is not None}

    def get(self, key: str) -> bytes:
        with open(beneath.open_path(self.uri(key)), "rb") as file:
            return file.read()

    def open_input(self, key: str) -> pa.NativeFile:
        from pyarrow import OSFile

        return OSFile(self.uri(key), "rb")

    def map_input(self, key: str) -> pa.NativeFile:
        from pyarrow import memory_map

        return memory_map(self.uri(key))

    def arrow(self) -> FileSystem:
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        return SubTreeFileSystem(self.root, LocalFileSystem())

    def is_open_to_others(self, key: str) -> bool:
        """Whether another user than the owner may read or write the file.

        Raises:
            FileNotFoundError
        """
        return bool(os.stat(self.uri(key)).st_mode & 0o077)

    def append(self, key: str, data: bytes) -> None:
        new = not self.exists(key)
        with _create(self.uri(key), _open_to_append) as file:
            if file.seek(0, os.SEEK_END) and _last_byte(file) != b"\n":
                data = b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if new:
            _sync(os.path.dirname(self.uri(key)))

    def put_if_absent(self, key: str, data: bytes, durable: bool = False, private: bool = False) -> None:
        """`Storage.put_if_absent`.

        Args:
            private: only its owner may read or write it, whatever the umask is.
        """
        with self._temporary(key, data, durable, _open_private if private else _open) as temporary:
            os.link(temporary, self.uri(key))
        if durable:
            _sync(os.path.dirname(self.uri(key)))

    def replace(self, key: str, data: bytes | memoryview, durable: bool = True, owned: bool = False) -> None:
        with self._temporary(key, data, durable) as temporary:
            os.replace(temporary, self.uri(key))
        if durable:
            _sync(os.path.dirname(self.uri(key)))

    @contextlib.contextmanager
    def _temporary(
        self, key: str, data: bytes | memoryview, durable: bool, create: Callable[[str], BinaryIO] | None = None
    ) -> Iterator[str]:
        """A hidden file beside the key, for the block. A kill may leave it: no reader takes it for a file of the lake,
        and no other writer has its name."""
        folder, name = os.path.split(self.uri(key))
        temporary = f"{folder}/.{name}.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            _write(temporary, data, durable, create or _open)
            yield temporary
        finally:
            _remove(temporary)

    @contextlib.contextmanager
    def put_file(self, key: str, durable: bool = True) -> Iterator[pa.BufferedOutputStream]:
        from pyarrow import BufferedOutputStream, OSFile  # Parquet would call Python for each write to a Python file

        path = self.uri(key)
        with _create(path, partial(OSFile, mode="wb")) as file:
            try:
                buffer = BufferedOutputStream(file, BUFFER_BYTES)
                yield buffer
                buffer.flush()
                if durable:
                    os.fsync(file.fileno())
            except BaseException:
                _remove(path)
                raise

    def make_durable(self, *keys: str) -> None:
        for key in keys:
            _sync(self.uri(key))

    def delete(self, *keys: str) -> None:
        for key in keys:
            _remove(self.uri(key))

    def delete_all(self, folder: str) -> None:
        shutil.rmtree(self.uri(folder), ignore_errors=True)
        if self.exists(folder):
            os.rmdir(self.uri(folder))

    def create_folders(self, *folders: str) -> None:
        for folder in map(self.path, folders):
            made = [parent for parent in folder.parents if not parent.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            for new in (folder, *made):
                _sync(str(new.parent))

    def move(self, key: str, to: str) -> None:
        source, target = self.uri(key), self.uri(to)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(source, target)
        _sync(os.path.dirname(source))
        _sync(os.path.dirname(target))


def _create(path: str, create: Callable[[str], T]) -> T:
    """Create a file, and its folder if needed."""
    try:
        return create(path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return create(path)


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _open(path: str) -> BinaryIO:
    return open(path, "wb")


def _open_to_append(path: str) -> BinaryIO:
    return open(path, "a+b")


def _open_private(path: str) -> BinaryIO:
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


def _write(path: str, data: bytes | memoryview, durable: bool, create: Callable[[str], BinaryIO]) -> None:
    with _create(path, create) as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_storage(address: StorageAddress, fence: Callable[[], None] = lambda: None) -> Storage:
    """The files at an address; `fence`: see `ObjectStorage`."""
    if not address.scheme:
        return LocalStorage(address.root)
    from spark_app.lake.files.objects import ObjectStorage  # its libraries take a fifth of the start of `status`

    return ObjectStorage(address, fence)
