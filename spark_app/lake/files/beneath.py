"""Opens files that others can put into a folder: none outside it, and none that is no regular file.

A link may lead to a file that only this user can read, and to open a FIFO waits for its writer.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
LINK = "it is a link, which may lead out of the folder: copy the file, or set source.follow_links"
KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


class NotRegular(ValueError):
    """The text says what a file is instead of a regular one."""


def look(folder: str, key: str, links: bool) -> os.stat_result:
    """What is there, not where a link leads.

    Args:
        key: the path below the folder. None of its folders may be a link, unless `links`.

    Raises:
        FileNotFoundError, NotADirectoryError: it is not there, or behind a link.
    """
    with _parent(folder, key, links) as (parent, name):
        return os.stat(name, dir_fd=parent, follow_symlinks=links)


def check_regular(found: os.stat_result) -> None:
    """
    Raises:
        NotRegular
    """
    if stat.S_ISLNK(found.st_mode):
        raise NotRegular(LINK)
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(f"it is {KINDS.get(stat.S_IFMT(found.st_mode), 'a device')}, and no file")


def open_file(folder: str, key: str, links: bool = False) -> int:
    """A descriptor of the file, to read.

    Raises:
        NotRegular
        OSError: also `FileNotFoundError` and `NotADirectoryError`, as for `look`.
    """
    with _parent(folder, key, links) as (parent, name):
        check_regular(os.stat(name, dir_fd=parent, follow_symlinks=links))  # to open a device may do something
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
        return _checked(os.open(name, flags, dir_fd=parent))  # it may be another one by now


def open_path(path: str) -> int:
    """A descriptor of a file of this user's own, to read; links are followed.

    Raises:
        NotRegular, OSError
    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return _checked(opened)


def _checked(opened: int) -> int:
    try:
        check_regular(os.fstat(opened))
    except NotRegular:
        os.close(opened)
        raise
    return opened


@contextlib.contextmanager
def _parent(folder: str, key: str, links: bool) -> Iterator[tuple[int, str]]:
    """(descriptor of the folder that has the file, its name there)."""
    *parts, name = key.split("/")
    at = os.open(folder, FOLDER)
    try:
        for part in parts:
            inner = os.open(part, FOLDER | (0 if links else os.O_NOFOLLOW), dir_fd=at)
            os.close(at)
            at = inner
        yield at, name
    finally:
        os.close(at)
