"""The right to write a lake: one process has it at a time.

On a local disk it is a lock. In a bucket it is a number, the epoch: a process that acquires the lease raises it by one.
A clock only decides when a process may acquire it: an old one that wakes up later finds that its epoch has passed, or
that what it would create is there already.

A process that was stopped in the middle may wake up when another one writes the lake. So the keys of files that no log
names are written down before they are removed, as a round with a number that exists only once: a process that has lost
the lease finds that its next number exists, and removes nothing but what it chose when it still had the lease. If it
sleeps for so long that the round with its number was removed, it writes its own, which does no harm either: it chose
the keys before it looked at the lease, and nobody gives a file the name of a removed one.

    _protolake/deletes/000000000007.json    {"epoch": 3, "keys": [...]}

The reasons: docs/decisions/buckets.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from spark_app.lake.files import failpoints
from spark_app.lake.files.state_files import numbers_of, read_durable
from spark_app.lake.files.storage import Storage
from spark_app.model.errors import LeaseLost, UnreachableError

if TYPE_CHECKING:
    from spark_app.lake.files.objects import ObjectStorage

OnLost = Callable[[str], object]
POLL_S = 0.2
LOCKS: tuple[tuple[str, Callable[[int, int], None]], ...] = (("lock", fcntl.flock), ("lock.jvm", fcntl.lockf))


class Lease(ABC):
    """
    Attributes:
        jvm_file: the file that the JVM locks itself as soon as it runs (`units/spark/jvm.lock_lake_in_jvm`).
        epoch: how often the lease of a bucket was acquired, this time included; 0 on a local disk.
        took_over: a process before has not released it, so that it may still believe to have it, and nobody has called
            `fenced` since.
    """

    jvm_file: Path
    epoch = 0
    took_over = False

    @abstractmethod
    def acquire(self, timeout_s: float = 7.0, on_lost: OnLost = lambda said: None) -> None:
        """Become the only writer, and wait until the JVM of a killed predecessor is gone too.

        Args:
            on_lost: called, in a thread, when another process has acquired the lease; its argument says which one.

        Raises:
            UnreachableError: another process still writes the lake after `timeout_s` seconds.
        """

    @abstractmethod
    def check(self) -> None:
        """
        Raises:
            LeaseLost: another process has acquired the lease.
        """

    @abstractmethod
    def fenced(self) -> None:
        """Note that a process that believes to have the lease can commit no more."""

    @abstractmethod
    def doubt(self) -> None:
        """Note that a commit without an answer may still arrive, so that the next process has to fence this one."""

    @abstractmethod
    def give_back(self) -> None:
        """Write nothing more: another machine may acquire the lease at once. On this machine the locks stay."""

    @abstractmethod
    def release(self) -> None:
        """Let another process acquire it at once."""


class FileLease(Lease):
    """Two file locks in a folder: one of the process, and one of its JVM, which may outlive a killed process."""

    def __init__(self, folder: Path, lake: str):
        """`lake` is its name in messages."""
        self._folder = folder
        self._lake = lake
        self._handle: IO[str] | None = None
        self.jvm_file = folder / LOCKS[1][0]

    def acquire(self, timeout_s: float = 7.0, on_lost: OnLost = lambda said: None) -> None:
        deadline = time.monotonic() + timeout_s
        for name, lock in LOCKS:
            handle = (self._folder / name).open("a+")
            while not _try(handle, lock):
                if time.monotonic() > deadline:
                    handle.close()
                    self.release()
                    raise UnreachableError(
                        f"lake {self._lake} is in use by another process ({name} is locked): stop that process first"
                    )
                time.sleep(POLL_S)
            if self._handle is None:
                self._handle = handle
            else:
                handle.close()  # the JVM of this process will lock it

    def check(self) -> None:
        """The kernel keeps the lock."""

    def fenced(self) -> None:
        """There is no other machine."""

    def doubt(self) -> None:
        """A disk answers."""

    def give_back(self) -> None:
        """There is no other machine."""

    def release(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class ObjectLease(Lease):
    """{"epoch", "owner", "until", "lasts"} in a file of the bucket, which is only ever replaced by compare-and-swap.

    "lasts" are the seconds within which the owner renews it. It has "open" as well while an earlier owner that did not
    release it, or whose last commit is in doubt, is not fenced, whoever had the lease since.
    """

    def __init__(self, storage: ObjectStorage, key: str, own: FileLease):
        """`own` keeps other processes of this machine out, and the JVM of a killed predecessor."""
        self._storage = storage
        self._key = key
        self._own = own
        self._lasts_s = storage.address.lease_s
        self._owner = f"{socket.gethostname()}:{own.jvm_file.parent.parent}:{os.getpid()}"
        self._open = False
        self._ended = threading.Event()
        self._asking = threading.RLock()
        self.jvm_file = own.jvm_file

    def acquire(self, timeout_s: float = 7.0, on_lost: OnLost = lambda said: None) -> None:
        """As `Lease.acquire`. It waits for a process of another machine that has not released the lease, until that has
        not renewed it for `StorageAddress.lease_s`, its own or that of its owner."""
        self._own.acquire(timeout_s)
        try:
            found = self._await_end(time.monotonic() + timeout_s)
            self.took_over = self._open = bool(found) and (found["until"] > 0 or found.get("open", False))
            self.epoch = found.get("epoch", 0) + 1
            self._ended = threading.Event()
            self._write(time.time() + self._lasts_s, is_first=not found)
        except BaseException:
            self._own.release()
            raise
        threading.Thread(target=self._renew, args=(self._ended, on_lost), name="lease", daemon=True).start()

    def _await_end(self, deadline: float) -> dict[str, Any]:
        """The lease once it may be acquired; empty if there is none. The lock of this machine proves that an owner with
        the same folder has ended."""
        seen, since = None, time.monotonic()
        while True:
            found = read_durable(self._storage, self._key) or {}
            if not found.get("until") or found["owner"].rpartition(":")[0] == self._owner.rpartition(":")[0]:
                return found
            if found != seen:
                if seen is not None and time.monotonic() > deadline:
                    raise UnreachableError(
                        f"lake {self._storage.root} is in use by {found['owner']}: stop that process first"
                    )
                seen, since = found, time.monotonic()
            if time.monotonic() > since + max(self._lasts_s, found["lasts"]):
                return found
            time.sleep(POLL_S * 5)

    def _write(self, until: float, is_first: bool = False) -> None:
        """
        Args:
            is_first: there was no lease. One that is there now belongs to another process.

        Raises:
            UnreachableError, LeaseLost: another process has acquired the lease.
        """
        write = self._storage.put_if_absent if is_first else self._storage.swap
        value = {"epoch": self.epoch, "owner": self._owner, "until": until, "lasts": self._lasts_s}
        value |= {"open": True} if self._open else {}
        try:
            with self._asking:
                write(self._key, json.dumps(value).encode())
        except FileExistsError:
            raise UnreachableError(
                f"lake {self._storage.root} is in use by another process, which has just acquired it: stop that "
                "process first"
            ) from None

    def _renew(self, ended: threading.Event, on_lost: OnLost) -> None:
        while not ended.wait(self._lasts_s / 3):
            try:
                self._renew_once(ended)
            except OSError:
                continue  # the store does not answer: what is written next will fail, too
            except LeaseLost as error:
                ended.set()
                on_lost(str(error))

    def _renew_once(self, ended: threading.Event) -> None:
        with self._asking:
            if not ended.is_set():
                self.check()
                self._write(time.time() + self._lasts_s)

    def check(self) -> None:
        """A process that has lost the lease never writes it again."""
        with self._asking:
            found = read_durable(self._storage, self._key) or {}
            if found.get("epoch") == self.epoch and found["owner"] == self._owner:
                return
            self._ended.set()
        raise LeaseLost(
            f"lake {self._storage.root} was taken over by {found.get('owner', 'another process')}, which writes it "
            "now: this process writes nothing more"
        )

    def fenced(self) -> None:
        self._open = False

    def doubt(self) -> None:
        self._open = True

    def give_back(self) -> None:
        with self._asking:
            if not self._ended.is_set() and self.epoch:
                self._ended.set()
                with contextlib.suppress(OSError, UnreachableError):  # whoever comes next waits for its end
                    self._write(0)

    def release(self) -> None:
        self.give_back()
        self._own.release()


def _try(handle: IO[str], lock: Callable[[int, int], None]) -> bool:
    try:
        lock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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
            LeaseLost: another process writes the lake.
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
        key, self._last = self._key(last), None  # after an error only a list says whether the number exists
        self._lease.check()
        try:
            with failpoints.around("round"):
                self._storage.put_if_absent(key, text.encode(), durable=True)
        except FileExistsError:
            raise LeaseLost(f"{self._storage.uri(key)} exists already: another process writes this lake now") from None
        self._last = last
        return [self._key(number) for number in numbers if number < last - KEPT]

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"
