"""SIGTERM and SIGINT: finish what is under way, then end with 0; after `WITHIN_S` seconds end without it.

The signal is read from a pipe by a thread of its own, since Python's handlers wait for the main thread, which may be
deep in a library. Whatever is under way may be abandoned at any moment: it is decided or it is not.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

WITHIN_S = 15.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether the process was asked to stop. `requested` may also be set by whoever ends the run for another reason."""

    def __init__(self) -> None:
        self.requested = threading.Event()

    def listen(self, abandon: Callable[[], None], within_s: float = WITHIN_S) -> None:
        """From the main thread. `abandon` is called when the process is still there so long after the signal."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.reinstall_signal_handlers()
        threading.Thread(target=self._await, args=(read, abandon, within_s), name="stop", daemon=True).start()

    def reinstall_signal_handlers(self) -> None:
        """Take the signals, also back from a library that took them (PySpark does)."""
        for number in SIGNALS:
            signal.signal(number, lambda *_: self.requested.set())

    def _await(self, read: int, abandon: Callable[[], None], within_s: float) -> None:
        while os.read(read, 1)[0] not in SIGNALS:
            pass
        self.requested.set()
        time.sleep(within_s)
        abandon()
