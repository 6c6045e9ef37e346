"""Reads the app's status again and again for the live table."""

import threading

from scripts.local import status
from spark_app.lake.lake import Lake

EVERY_S = 2.0  # the app writes it every 5 s, and each request to a bucket costs money


class Reports:
    """The status of one lake. A thread reads it from a bucket, because a request to a store that is down takes a
    minute, and neither the table nor a Ctrl-C may wait for it."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._found = lake, status.Status()
        self._ended = threading.Event()
        self._reading: threading.Thread | None = None

    def read(self) -> status.Status:
        """The status of now, however long it takes; an empty one if there is none."""
        self._found = status.read(self._lake)
        return self._found

    def latest(self) -> status.Status:
        """The status without a wait: at most some seconds old if the lake is in a bucket."""
        if self._lake.storage.is_local:
            return self.read()
        if self._reading is None:
            self._reading = threading.Thread(target=self._read_again, name="reports", daemon=True)
            self._reading.start()
        return self._found

    def end(self) -> None:
        self._ended.set()

    def _read_again(self) -> None:
        while not self._ended.wait(EVERY_S):
            self.read()
