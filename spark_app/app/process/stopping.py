"""On SIGTERM or SIGINT the app finishes the batch and exits with 0; after `WITHIN_S` seconds it exits anyway.

A thread reads the signal from a pipe, because Python's handlers wait for the main thread, which may be inside a
library. An unfinished unit can be abandoned at any time: it is either committed or not.
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
    """True in `requested` once the process was asked to stop. It may also be set to end the run for another reason."""

    def __init__(self) -> None:
        self.requested = threading.Event()

    def listen(self, abandon: Callable[[], None], within_s: float = WITHIN_S) -> None:
        """Call from the main thread. `abandon` is called `within_s` seconds after the signal if the process still
        runs."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.reinstall_signal_handlers()
        threading.Thread(target=self._await, args=(read, abandon, within_s), name="stop", daemon=True).start()

    def reinstall_signal_handlers(self) -> None:
        """Set the handlers, also after a library (PySpark) has replaced them."""
        for number in SIGNALS:
            signal.signal(number, lambda *_: self.requested.set())

    def _await(self, read: int, abandon: Callable[[], None], within_s: float) -> None:
        while os.read(read, 1)[0] not in SIGNALS:
            pass
        self.requested.set()
        time.sleep(within_s)
        abandon()
