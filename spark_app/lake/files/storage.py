"""The operations on the files of a lake, wherever they are.

A key names a file or folder of the lake: its path below the lake's root, with "/" between the parts. Only this package
opens, lists, moves or syncs files of a lake; the rest of the code uses these verbs.

Readers see a whole file or none, except for files of `put_file` on a local disk, which nothing names before they are
complete. On a local disk, only `durable` writes survive a power cut; what an object store has accepted is durable.

The reasons: docs/decisions/storage.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `status`, which the health check of a container calls every few seconds, needs no Arrow
    import pyarrow as pa
    from pyarrow.fs import FileSystem


class Storage(ABC):
    """The files below one root. It may be pickled: tasks open it by its root.

    Attributes:
        root: a folder, or an address such as s3://bucket/prefix.
        is_local: files are on a local disk: a question about one is cheap, a power cut may tear it, and its disk may
            be full. Otherwise every question is a request, and nobody but the process with the lease changes a file.
    """

    root: str
    is_local: bool

    def uri(self, key: str) -> str:
        """The name under which Spark, delta-rs and people know the file or folder."""
        return f"{self.root}/{key}" if key else self.root

    @property
    @abstractmethod
    def delta_options(self) -> dict[str, str]:
        """How delta-rs and Polars reach the files. They may contain secrets."""

    @abstractmethod
    def probe(self, key: str) -> None:
        """Check, with a file that is removed again, that this process may write, and that an object store keeps the
        conditions of writes.

        Raises:
            ConfigurationError: it does not.
            OSError: the process may not write, or the disk is full.
        """

    @abstractmethod
    def within(self, folder: str) -> Storage:
        """A folder of the lake as a storage of its own, with keys below that folder."""

    @abstractmethod
    def list(self, folder: str, prefix: str = "") -> list[str]:
        """Keys of the files and folders in a folder whose names begin with `prefix`, sorted; empty if there is no such
        folder."""

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether there is such a file or folder; False if this user may not see it on a disk.

        Raises:
            StoreError, PermissionError: the object store does not respond.
        """

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Bytes of a file; None if it does not exist."""

    @abstractmethod
    def changed_at(self, key: str) -> int | None:
        """When the file was written last, in nanoseconds since 1970; None if it does not exist."""

    @abstractmethod
    def tag(self, key: str) -> str | None:
        """A text that changes with the content of a file; None if there is no such file."""

    @abstractmethod
    def tags(self, folder: str) -> dict[str, str]:
        """Key -> tag of the files in a folder; empty if there is no such folder."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError
        """

    @abstractmethod
    def open_input(self, key: str) -> pa.NativeFile:
        """A file to read at any position.

        Raises:
            FileNotFoundError
        """

    @abstractmethod
    def map_input(self, key: str) -> pa.NativeFile:
        """A file that does not change, to read at any position; processes of one machine that read it share its memory
        if it is on a local disk.

        Raises:
            FileNotFoundError
        """

    @abstractmethod
    def arrow(self) -> FileSystem:
        """Arrow's view of the lake, for readers that open files by key themselves."""

    @abstractmethod
    def append(self, key: str, data: bytes) -> None:
        """Add lines to the end of a file durably, and create it if there is none. A kill may leave a part of them, and
        the next call ends such a line."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes, durable: bool = False) -> None:
        """Create a file with its content, in one step.

        Args:
            durable: the file is still there after a power cut.

        Raises:
            FileExistsError: there is such a file; it stays as it is.
        """

    @abstractmethod
    def replace(self, key: str, data: bytes | memoryview, durable: bool = True, owned: bool = False) -> None:
        """Create a file, or replace its content, in one step.

        Args:
            durable: after a power cut the file has the old or the new content; otherwise it may be torn.
            owned: only the process with the lease writes it, as every durable file. In an object store it is replaced
                only if nobody has changed it since this process last read or wrote it; a file that is not durable may
                have been removed, as those of a request that is cancelled.

        Raises:
            LeaseLost: another process has changed a file of an object store.
        """

    @abstractmethod
    def put_file(self, key: str, durable: bool = True) -> AbstractContextManager[pa.NativeFile]:
        """A new file to write; it is complete at the end of the block, and not there after an exception.

        Args:
            durable: fsync its content. `make_durable` of the folder makes its name durable, too.
        """

    @abstractmethod
    def make_durable(self, *keys: str) -> None:
        """Fsync files, or folders: then the names of the files in them are durable."""

    @abstractmethod
    def delete(self, *keys: str) -> None:
        """Remove files; a missing one is no error."""

    @abstractmethod
    def delete_all(self, folder: str) -> None:
        """Remove a folder with everything in it; a missing one is no error.

        Raises:
            OSError: a part of it cannot be removed, or was created meanwhile.
        """

    @abstractmethod
    def create_folders(self, *folders: str) -> None:
        """Create folders durably, and the root if it does not exist. An object store has no folders."""

    @abstractmethod
    def move(self, key: str, to: str) -> None:
        """Move a file or folder durably; on a local disk in one step, in an object store by a copy."""
