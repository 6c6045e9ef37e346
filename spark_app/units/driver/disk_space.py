"""Waits for free disk space.

The reasons: docs/decisions/outages.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from spark_app.lake.files.disk import is_full, shortage
from spark_app.lake.lake import Lake
from spark_app.model.errors import last_message_line
from spark_app.units.driver.status import Status

WAIT_S = 2.0
T = TypeVar("T")


class StopRequested(Exception):
    """The app was asked to stop; the unfinished unit is abandoned without a commit."""


class DiskSpaceGuard:
    """Guards the disks of the lake and of the temporary folders."""

    def __init__(
        self,
        lake: Lake,
        least_bytes: int,
        status: Status,
        stop: threading.Event,
        discard: Callable[[], None] = lambda: None,
    ):
        """`discard` removes the files of the unfinished unit when a disk is full: the files use the missing space."""
        self._lake = lake
        self._least_bytes = least_bytes
        self._status = status
        self._stop = stop
        self._discard = discard

    def retry(self, work: Callable[[], T]) -> T:
        """Call `work` and return its result; if a disk is full, discard the unfinished unit, wait for space and call it
        again.

        Raises:
            StopRequested
        """
        while True:
            try:
                return work()
            except Exception as error:
                if not is_full(error):
                    raise
                self.make(error)

    def make(self, error: BaseException) -> None:
        """Discard the unfinished unit after a disk-full error, then wait.

        Raises:
            StopRequested
        """
        self._discard()
        self.wait(error)

    def shortage(self) -> str | None:
        """A message about the first folder with too little free space; None if there is none."""
        return shortage(self._lake.root, self._least_bytes)

    def wait(self, error: BaseException | None = None) -> None:
        """Wait until every disk has space; after a disk-full error at least once. Nothing is discarded: the caller,
        which may hold the unit lock that discarding takes, removes its own files.

        Raises:
            StopRequested: the app was asked to stop meanwhile.
        """
        short = self.shortage() or (error and f"no space left for {self._lake.uri}: {last_message_line(error)}")
        while short:
            self._status.waiting(str(short))
            if self._stop.wait(WAIT_S):
                raise StopRequested
            short = self.shortage()
