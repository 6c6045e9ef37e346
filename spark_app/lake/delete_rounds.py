"""Removes files of a bucket that no log names.

A process that was stopped in the middle may wake up when another one writes the lake. So the keys to remove are written
down first, as a round with a number that exists only once: a process that has lost the lease finds its next number
taken, and removes nothing but what it had decided when it still held the lease. If it sleeps for so long that the round
with its number was removed, it writes its own, which does no harm either: it chose the keys before it looked at the
lease, and nobody gives a file the name of a removed one.

    _protolake/deletes/000000000007.json    {"epoch": 3, "keys": [...]}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection

from spark_app.lake.files import failpoints
from spark_app.lake.files.state_files import numbers_of
from spark_app.lake.files.storage import Storage
from spark_app.lake.lease import Lease
from spark_app.model.errors import TakenOver

KEPT = 1000  # rounds
PER_ROUND = 10_000  # keys


class DeleteRounds:
    """The rounds of one run. On a local disk, where the lock is kept by the kernel, nothing is written down."""

    def __init__(self, storage: Storage, folder: str, lease: Lease):
        self._storage = storage
        self._folder = folder
        self._lease = lease
        self._last: int | None = None
        self._numbering = threading.Lock()

    def begin(self) -> None:
        """Complete the round of a process that has not released the lease, and take the next number from it."""
        if not self._storage.is_local and self._lease.took_over:
            numbers = numbers_of(self._storage, self._folder)
            if numbers:
                self._storage.delete(*json.loads(self._storage.get(self._key(numbers[-1])))["keys"])
            self._delete([])

    def delete(self, keys: Collection[str]) -> None:
        """
        Raises:
            TakenOver: another process writes the lake.
        """
        if self._storage.is_local:
            return self._storage.delete(*keys)
        wanted = sorted(keys)
        for start in range(0, len(wanted), PER_ROUND):
            self._delete(wanted[start : start + PER_ROUND])

    def _delete(self, keys: list[str]) -> None:
        with self._numbering:  # ingest, gold and the events remove files side by side
            old = self._write(json.dumps({"epoch": self._lease.epoch, "keys": keys}))
        self._storage.delete(*keys, *old)

    def _write(self, text: str) -> list[str]:
        """Write the next round; returns the keys of rounds that are not kept."""
        numbers = numbers_of(self._storage, self._folder) if self._last is None else []
        last = (max(numbers, default=0) if self._last is None else self._last) + 1
        key, self._last = self._key(last), None  # after an error only a list says whether the number is taken
        self._lease.check()
        try:
            with failpoints.around("round"):
                self._storage.put_if_absent(key, text.encode(), durable=True)
        except FileExistsError:
            raise TakenOver(f"{self._storage.uri(key)} exists already: another process writes this lake now") from None
        self._last = last
        return [self._key(number) for number in numbers if number < last - KEPT]

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"
