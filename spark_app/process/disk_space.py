"""Waiting in place for room on a full disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from spark_app.ops.status import Status
from spark_app.storage.disk import is_full, shortage
from spark_app.storage.lake import Lake

WAIT_S = 2.0
T = TypeVar("T")


class StopRequested(Exception):
    """The app was asked to stop; what was under way is abandoned undecided."""


class DiskSpaceGuard:
    """Of one lake, and of the temporary folders."""

    def __init__(
        self,
        lake: Lake,
        least_bytes: int,
        status: Status,
        stop: threading.Event,
        discard: Callable[[], None] = lambda: None,
    ):
        """`discard` gives up what was under way when a disk was full; it takes the room that is missing."""
        self._lake = lake
        self._least_bytes = least_bytes
        self._status = status
        self._stop = stop
        self._discard = discard

    def retry(self, work: Callable[[], T]) -> T:
        """The work's result; where a disk is full, what was under way is discarded, and the work done again when there
        is room.

        Raises:
            Stopped
        """
        while True:
            try:
                return work()
            except Exception as error:
                if not is_full(error):
                    raise
                self.make(error)

    def make(self, error: BaseException) -> None:
        """Discard what was under way when the disk was full, then wait.

        Raises:
            Stopped
        """
        self._discard()
        self.wait(error)

    def shortage(self) -> str | None:
        """Which folder lacks room; None when none does."""
        return shortage(self._lake.root, self._least_bytes)

    def wait(self, error: BaseException | None = None) -> None:
        """Until every disk has room; after an error that says that one had none, at least a moment. Nothing is
        discarded: whoever makes a unit has the lock that this would take, and removes its own files.

        Raises:
            Stopped: the app was asked to stop meanwhile.
        """
        short = self.shortage() or (error and f"no space left for {self._lake.root}: {str(error)[-200:]}")
        while short:
            self._status.waiting(str(short))
            if self._stop.wait(WAIT_S):
                raise StopRequested
            short = self.shortage()
