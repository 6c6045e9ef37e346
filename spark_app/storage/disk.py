"""Room on the disks that the app writes to. A full disk is no error of the app: it waits in place until there is room.

Three kinds of folders: the lake (with Spark's checkpoint in it) and the temporary folders of Python and of Spark.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

TEMP_BYTES = 16 << 20  # a broadcast, a shuffle of gold
FILES = 100  # inodes: some for each table of a batch
WORDS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT))  # also in what Spark and delta-rs say


def is_full(error: BaseException | str) -> bool:
    """Whether an error, of any library, says that a disk is full."""
    return any(word in str(error) for word in WORDS)


def temporary_folders() -> list[Path]:
    """Where Python and Spark put what they need for a moment. Not as `tempfile` finds it: from a full disk it turns to
    another, and at last to the working folder."""
    own = os.environ.get("TMPDIR") or "/tmp"
    spark = os.environ.get("SPARK_LOCAL_DIRS", "")
    return [Path(folder) for folder in dict.fromkeys([own, *spark.split(",")]) if folder]


def shortage(lake: Path, least_bytes: int) -> str | None:
    """Which folder lacks room, and how much it has; None when all have enough.

    Args:
        least_bytes: that the lake must have free.
    """
    for folder, least in [(lake, least_bytes), *((folder, TEMP_BYTES) for folder in temporary_folders())]:
        free = _free(folder, least)
        if free is not None:
            return f"no space left at {folder} ({free}): free some disk space, the app then continues by itself"
    return None


def _free(folder: Path, least: int) -> str | None:
    """What is free where that is too little. A file system without a limit on files says that it has none at all."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None  # it is not there, and so not full
    if found.f_bavail * found.f_frsize < least:
        return f"{found.f_bavail * found.f_frsize >> 20} MiB free"
    return f"{found.f_favail} files free" if found.f_files and found.f_favail < FILES else None
