"""Reads the app's status again and again for the live table."""

import threading

from scripts.local import status
from spark_app.storage.lake import Lake

EVERY_S = 2.0  # the app writes it every 5 s, and each request to a bucket costs money


class Reports:
    """The status of one lake. A thread reads it from a bucket, because a request to a store that is down takes a
    minute, and neither the table nor a Ctrl-C may wait for it."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._found = lake, status.Status()
        self._ended = threading.Event()
        self._reading: threading.Thread | None = None

    def latest(self) -> status.Status:
        """An empty one if there is none, or none was read yet."""
        if self._lake.storage.is_local:
            return status.read(self._lake)
        if self._reading is None:
            self._reading = threading.Thread(target=self._read, name="reports", daemon=True)
            self._reading.start()
        return self._found

    def end(self) -> None:
        self._ended.set()

    def _read(self) -> None:
        while not self._ended.is_set():
            self._found = status.read(self._lake)
            self._ended.wait(EVERY_S)
