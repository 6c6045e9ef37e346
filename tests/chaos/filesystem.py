"""`Disk` as a file system of the kernel: python -m tests.chaos.filesystem FOLDER. `mount` starts it.

Commands on stdin, each answered with one number:

    mark            operations since the last cut
    cut SEED [AT]   lose what was not fsynced after AT operations, and all later operations
    again SEED AT   undo the last cut and all operations after it, and cut at another operation or with another seed
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
import time
from itertools import count
from typing import IO, Any

import mfusepy

from tests.chaos.volatile import Disk, Folder, Missing, Node, Operation

BLOCK, IMMEDIATE_STARTS = 4096, 1 << 28


class Front(mfusepy.Operations):  # type: ignore[misc]
    """Translates the kernel's requests to operations of the disk. Operations are kept until a cut, so that a cut can be
    made at an earlier operation."""

    use_ns = True

    def __init__(self) -> None:
        self._disk, self._then = Disk(), Disk()
        self._since: list[Operation] = []
        self._before, self._operations = Disk(), self._since  # before the last cut, for `again`
        self._numbers = count(1)
        self._one = threading.RLock()

    def mark(self) -> int:
        return len(self._since)

    def cut(self, seed: int, at: int | None = None) -> int:
        with self._one:
            self._before, self._operations = self._then, self._since
            return self.again(seed, len(self._operations) if at is None else at)

    def again(self, seed: int, at: int) -> int:
        with self._one:
            self._disk = self._before.copy()
            for operation in self._operations[:at]:
                self._disk.apply(operation)
            self._disk.cut(seed)
            self._then, self._since = self._disk.copy(), []
            return 0

    def _do(self, *operation: Any) -> int:
        with self._one:
            try:
                self._disk.apply(operation)
            except (Missing, KeyError):
                raise mfusepy.FuseOSError(errno.ENOENT) from None
            self._since.append(operation)
            return 0

    def _find(self, path: str) -> Node:
        try:
            return self._disk.find(path)
        except Missing:
            raise mfusepy.FuseOSError(errno.ENOENT) from None

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._find(path)
        if isinstance(node, Folder):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        moment = int(node.moment * 1e9)
        times = {"st_mtime": moment, "st_ctime": moment, "st_atime": moment}
        return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1, "st_size": len(node.data), **times}

    def readdir(self, path: str, fh: int) -> list[str]:
        node = self._find(path)
        assert isinstance(node, Folder)
        return [".", "..", *_seen(node)]

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        number = next(self._numbers)
        self._do("create", path, number, time.time())
        return number

    def open(self, path: str, flags: int) -> int:
        number = next(self._numbers)
        self._do("open", path, number)
        if flags & os.O_TRUNC:  # the kernel leaves it to us: libfuse has requested that
            self._do("truncate", path, 0, time.time())
        return number

    def release(self, path: str, fh: int) -> int:
        with contextlib.suppress(mfusepy.FuseOSError):  # the file was opened before a cut
            self._do("close", fh)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self._one:
            if (file := self._disk.opened(fh)) is None:
                raise mfusepy.FuseOSError(errno.EIO)  # the file was opened before a cut
            return bytes(file.data[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._do("write", fh, bytes(data), offset, time.time())
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return self._do("truncate", path, length, time.time())

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        return self._do("sync", fh)

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return self._do("sync_folder", path)

    def mkdir(self, path: str, mode: int) -> int:
        return self._do("make_folder", path)

    def rmdir(self, path: str) -> int:
        node = self._find(path)
        if isinstance(node, Folder) and _seen(node):
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        return self._do("remove", path)

    def unlink(self, path: str) -> int:
        return self._do("unhide" if _is_hidden(path) else "remove", path)

    def rename(self, old: str, new: str) -> int:
        return self._do("hide" if _is_hidden(new) else "rename", old, new)

    def link(self, target: str, source: str) -> int:
        return self._do("link", target, source)

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        return {
            "f_bsize": BLOCK,
            "f_frsize": BLOCK,
            "f_blocks": IMMEDIATE_STARTS,
            "f_bfree": IMMEDIATE_STARTS,
            "f_bavail": IMMEDIATE_STARTS,
        }


def _is_hidden(path: str) -> bool:
    """True for the name that libfuse gives to an open file when it is removed or replaced."""
    return path.rpartition("/")[2].startswith(".fuse_hidden")


def _seen(folder: Folder) -> list[str]:
    return [name for name in folder.names if not _is_hidden(name)]


def _obey(front: Front, commands: IO[str]) -> None:
    for line in commands:
        name, *numbers = line.split()
        print(getattr(front, name)(*map(int, numbers)), flush=True)


def main() -> None:
    front = Front()
    threading.Thread(target=_obey, args=(front, sys.stdin), daemon=True).start()
    no_cache = {"entry_timeout": 0, "negative_timeout": 0, "attr_timeout": 0}
    with contextlib.suppress(RuntimeError):  # also after a signal; libfuse has printed the reason
        mfusepy.FUSE(front, sys.argv[1], foreground=True, nothreads=True, **no_cache)


if __name__ == "__main__":
    main()
