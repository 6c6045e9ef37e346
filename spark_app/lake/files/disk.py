"""Free disk space. A full disk does not stop the app: it waits until there is free disk space.

Three kinds of folders are checked: the lake (which contains Spark's checkpoint), and the temporary folders of Python
and of Spark.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

TEMP_BYTES = 16 << 20  # enough for a broadcast and a shuffle of gold
FILES = 100  # inodes: a batch needs a few per table
WORDS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT))  # Spark's and delta-rs' errors contain them


def is_full(error: BaseException | str) -> bool:
    """Whether an error of any library reports a full disk."""
    return any(word in str(error) for word in WORDS)


def temporary_folders() -> list[Path]:
    """The temporary folders of Python and Spark. They are not taken from `tempfile`, because on a full disk it chooses
    another folder, finally the working folder."""
    own = os.environ.get("TMPDIR") or "/tmp"
    spark = os.environ.get("SPARK_LOCAL_DIRS", "")
    return [Path(folder) for folder in dict.fromkeys([own, *spark.split(",")]) if folder]


def shortage(lake: Path, least_bytes: int) -> str | None:
    """A message about the first folder with too little free space; None if there is none.

    Args:
        least_bytes: free bytes that the lake needs.
    """
    for folder, least in [(lake, least_bytes), *((folder, TEMP_BYTES) for folder in temporary_folders())]:
        free = _free(folder, least)
        if free is not None:
            return f"no space left at {folder} ({free}): free some disk space, the app then continues by itself"
    return None


def free_bytes(folder: Path) -> int | None:
    """The free bytes on the disk of a folder; None if there is no such folder."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _free(folder: Path, least: int) -> str | None:
    """The free space as text, if it is too little; else None. A file system without an inode limit reports 0 inodes."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None  # a folder that does not exist yet is not full
    if found.f_bavail * found.f_frsize < least:
        return f"{found.f_bavail * found.f_frsize >> 20} MiB free"
    return f"{found.f_favail} files free" if found.f_files and found.f_favail < FILES else None
