"""Calls a follower again and again, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_app.followers.follower import Follower
from spark_app.model.errors import last_message_line
from spark_app.model.log import log

JOIN_S = 15.0


class FollowerThread:
    """A failure stops neither ingest nor the exit: the follower tries again.

    Attributes:
        calls: starts plus ends of calls: odd = the follower is at work.
        name: that of the follower.
        failed: why its last call failed; None if it did not.
    """

    def __init__(self, follower: Follower, stop: threading.Event, rests: Callable[[], bool] = lambda: False):
        """
        Args:
            stop: ends the thread.
            rests: while it is true, the follower is not called.
        """
        self.calls = 0
        self.name = follower.name
        self.failed: str | None = None
        self._follower = follower
        self._stop = stop
        self._rests = rests
        self._thread = threading.Thread(target=self._repeat, name=follower.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> bool:
        """Wait for the thread after `stop`; False if the follower is still at work."""
        if self._thread.is_alive():
            self._thread.join(JOIN_S)
        return not self._thread.is_alive()

    def call(self) -> None:
        """Call the follower in this thread. Two calls must not overlap.

        Raises:
            Exception: see `Follower.follow`.
        """
        self.calls += 1
        try:
            self._follower.follow()
            self.failed = None
        except Exception as error:
            self.failed = last_message_line(error)
            raise
        finally:
            self.calls += 1

    def attempt(self) -> None:
        """As `call`; a failure is only logged."""
        try:
            self.call()
        except Exception:
            log.error("a follower failed, and tries again", follower=self.name, reason=self.failed)

    def close(self) -> None:
        """Make durable what the follower has done. Call it after the thread has ended."""
        self._follower.close()

    def _repeat(self) -> None:
        while not self._stop.wait(self._follower.interval_s):
            if not self._rests():
                self.attempt()
