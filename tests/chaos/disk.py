"""A small disk that a scenario fills: a tmpfs, which only root may mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from scripts.local.errors import LocalError

BALLAST = "ballast"


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "64m", files: int = 0) -> Iterator[Path]:
    """Mount a file system of that size (and that many files, 0 = no limit) at the folder, until the end of the block.

    Raises:
        LocalError: it cannot be mounted here.
    """
    folder.mkdir(parents=True)
    options = f"size={size}" + (f",nr_inodes={files}" if files else "")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"a small disk cannot be mounted, which needs root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Write until not a single byte is free."""
    with (folder / BALLAST).open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass


def fill_files(folder: Path) -> None:
    """Create files until no more can be created, although bytes are free."""
    ballast = folder / f"{BALLAST}.d"
    ballast.mkdir()
    with contextlib.suppress(OSError):
        for number in range(10_000_000):
            (ballast / str(number)).touch()


def empty(folder: Path) -> None:
    """Remove the files of `fill` and `fill_files`."""
    (folder / BALLAST).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        for one in os.scandir(folder / f"{BALLAST}.d"):
            os.unlink(one.path)
        (folder / f"{BALLAST}.d").rmdir()
