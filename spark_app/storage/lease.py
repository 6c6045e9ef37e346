"""The right to write a lake: one process has it at a time."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from spark_app.model.errors import UnreachableError

POLL_S = 0.2
LOCKS: tuple[tuple[str, Callable[[int, int], None]], ...] = (("lock", fcntl.flock), ("lock.jvm", fcntl.lockf))


class Lease:
    """Two file locks in a folder: one of the process, and one of its JVM, which may outlive a killed process.

    Attributes:
        jvm_file: the file that the JVM locks itself as soon as it runs (`spark/jvm.lock_lake_in_jvm`).
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._held: IO[str] | None = None
        self.jvm_file = folder / LOCKS[1][0]

    def take(self, timeout_s: float = 7.0) -> None:
        """Become the only writer, and wait until the JVM of a killed predecessor is gone too.

        Raises:
            UnreachableError: another process still writes the lake after `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        for name, lock in LOCKS:
            handle = (self._folder / name).open("a+")
            while not _try(handle, lock):
                if time.monotonic() > deadline:
                    handle.close()
                    self.release()
                    raise UnreachableError(
                        f"lake {self._folder.parent} is in use by another process ({name} is locked): stop that "
                        "process first"
                    )
                time.sleep(POLL_S)
            if self._held is None:
                self._held = handle
            else:
                handle.close()  # the JVM of this process will lock it

    def release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _try(handle: IO[str], lock: Callable[[int, int], None]) -> bool:
    try:
        lock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
