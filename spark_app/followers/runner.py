"""Runs the followers: each in a thread of its own, with its cursor, and the manifests that are kept for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from deltalake.exceptions import DeltaError

from spark_app.followers.follower import Follower, Units, without_files
from spark_app.lake import cursors
from spark_app.lake.delta.manifest import Manifest, Manifests
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, last_message_line
from spark_app.model.events import Event
from spark_app.model.log import log

JOIN_S = 15.0
FIRST_S = 5.0  # after the start until the first call of a follower with a long interval
LEAST_PAUSE = 0.5  # of the interval: after a call that took most of it, so that the machine has time for other things
FLUSH_EVERY_S = 30.0
MOST_RECENT = 100  # units that are remembered without their files: with a thousand tables each has 0.1 MiB
REMEDY = "start the app once with --accept-gap, which goes on without them"


class FollowerRunner:
    """Calls a follower again and again, and keeps its cursor. A failure stops neither ingest nor the exit.

    Attributes:
        calls: starts plus ends of calls: odd = the follower is at work.
        name: that of the follower.
        cursor: the last unit that it includes.
        durable: the last unit that it includes whatever crashes, which the lake has as its cursor.
        failed: why its last call failed; None if it did not.
        paused: why it takes no more units until a person decides, and the remedy; None if it goes on.
    """

    def __init__(
        self,
        follower: Follower,
        lake: Lake,
        manifests: Manifests,
        stop: threading.Event | None = None,
        accepted: int = 0,
        recent: deque[Manifest] | None = None,
    ):
        """
        Args:
            stop: ends the thread.
            accepted: it goes on behind missing manifests of units up to this one.
            recent: the last units, without their files.
        """
        self.calls = 0
        self.name = follower.name
        self.cursor = self.durable = 0
        self.failed: str | None = None
        self.paused: str | None = None
        self._follower = follower
        self._lake = lake
        self._manifests = manifests
        self._stop = stop or threading.Event()
        self._accepted = accepted
        self._recent = recent if recent is not None else deque(maxlen=MOST_RECENT)
        self._stored: int | None = None
        self._is_open = False
        self._next_flush = time.monotonic() + FLUSH_EVERY_S
        self._thread = threading.Thread(target=self._repeat, name=follower.name, daemon=True)

    def begin(self) -> None:
        """Find where the follower goes on, if it is not open.

        Raises:
            ContractError: the cursor, or what the follower writes, cannot be used.
        """
        if self._is_open:
            return
        if self._stored is None:
            self._stored = cursors.read(self._lake, self.name)
            self.durable = self._stored or 0
            if self.durable > self._manifests.last:
                key = self._lake.storage.uri(cursors.key_of(self._lake, self.name))
                raise ContractError(f"{key} has unit {self.durable}, but the newest manifest is {self._manifests.last}")
        self.cursor = self._follower.begin(self._stored, self._manifests.applied())
        self._is_open = True
        if self.cursor != self._stored:
            self.flush()

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
            self.begin()
            self._is_open = False
            self.cursor = self._follower.follow(self._units())
            self._is_open = True
            if time.monotonic() > self._next_flush:
                self.flush()
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

    def flush(self) -> None:
        """Make durable what the follower has done, and store its cursor."""
        cursor = self.cursor
        self._follower.flush()
        if self._is_open and cursor != self._stored:
            cursors.store(self._lake, self.name, cursor)
            self._stored = self.durable = cursor
        self._next_flush = time.monotonic() + FLUSH_EVERY_S

    def _units(self) -> Units:
        """The units that it lacks; none if it is paused."""
        recent = {unit.sequence: unit for unit in list(self._recent) if unit.sequence > self.cursor}
        units = Units.since(self._lake, self._manifests, self.cursor, recent)
        was_paused, self.paused = self.paused, None
        if units.gone > self._accepted and not self._follower.recomputes:
            text = f"the manifests of units {units.after + 1} to {units.gone} were removed before {self.name} had them"
            self.paused = f"{text}: {REMEDY}"
            if not was_paused:
                log.error("a follower is paused", follower=self.name, reason=text, remedy=REMEDY)
            return Units(self._lake, self._manifests, self.cursor, self.cursor, 0)
        return units

    @property
    def runs_at_exit(self) -> bool:
        return self._follower.runs_at_exit

    def _repeat(self) -> None:
        pause_s = min(self._follower.interval_s, FIRST_S)
        while not self._stop.wait(pause_s):
            began = time.monotonic()
            if not self._follower.rests():
                self.attempt()
            interval_s = self._follower.interval_s
            pause_s = max(interval_s - (time.monotonic() - began), interval_s * LEAST_PAUSE)


class Followers:
    """All followers of the app, and the manifests that they and others need.

    Manifests that a follower lacks are kept, up to so many bytes for each of them. Beyond that the oldest are removed:
    one that recomputes does so, and another one is paused.
    """

    def __init__(
        self,
        followers: Iterable[Follower],
        lake: Lake,
        manifests: Manifests,
        stop: threading.Event,
        most_bytes: int,
        accepted: int = 0,
        emit: Callable[[Event], None] = lambda event: None,
    ):
        """
        Args:
            accepted: see `FollowerRunner`.
            emit: gets an event when a follower is too far behind.
        """
        self._lake = lake
        self._manifests = manifests
        self._most_bytes = most_bytes
        self._emit = emit
        self._logged: set[str] = set()
        self._others: dict[str, int] = {}  # the durable cursors of other processes' followers
        self._recent: deque[Manifest] = deque(maxlen=MOST_RECENT)
        self._runners = {
            one.name: FollowerRunner(one, lake, manifests, stop, accepted, self._recent) for one in followers
        }

    def __getitem__(self, name: str) -> FollowerRunner:
        return self._runners[name]

    def offer(self, unit: Manifest) -> None:
        """Remember a unit that was just applied, so that its manifest need not be read. Ingest's thread calls this."""
        self._recent.append(without_files(unit))

    def begin(self) -> None:
        """Open each follower before the next unit. Where that fails, records are ingested all the same."""
        for name, runner in self._runners.items():
            try:
                runner.begin()
            except (ContractError, DeltaError) as error:
                log.error("a follower cannot begin, and tries again", follower=name, reason=str(error))

    def start(self) -> None:
        for runner in self._runners.values():
            runner.start()

    def join(self) -> list[FollowerRunner]:
        """Wait for the threads after `stop`; returns those that have ended."""
        return [runner for runner in self._runners.values() if runner.join()]

    def forget(self, keep: int, durable: int) -> None:
        """Remove the manifests that nobody needs, except the last `keep`.

        Args:
            durable: all commits of the units up to this one are durable.
        """
        self._others = self._read_others()
        behind = {name: runner.durable for name, runner in self._runners.items()} | self._others
        needed_from = [self._needed_from(name, unit, self._manifests.last - keep) for name, unit in behind.items()]
        self._manifests.forget(keep, min([durable, *needed_from]))

    def _read_others(self) -> dict[str, int]:
        found = {}
        for name in cursors.names(self._lake):
            if name not in self._runners:
                try:
                    found[name] = cursors.read(self._lake, name) or 0
                except ContractError as error:
                    found[name] = self._others.get(name, 0)
                    log.error("the cursor of a follower cannot be read", follower=name, reason=str(error))
        return found

    def _needed_from(self, name: str, durable: int, unkept: int) -> int:
        """The last unit whose manifest is not kept for the follower. Units up to `unkept` are kept for nobody else."""
        unit = max(durable, min(self._manifests.before_newest(self._most_bytes, durable), unkept))
        if unit > durable and name not in self._logged:
            self._logged.add(name)
            text = f"{name} is too far behind: the manifests of units {durable + 1} to {unit} are removed"
            remedy = "`status` says whether it is paused; find out why it is slow, or raise followers.max_bytes"
            log.error(text, remedy=remedy)
            self._emit(Event("follower", text, "ERROR", details={"name": name, "units": [durable + 1, unit]}))
        return unit

    def describe(self) -> dict[str, Any]:
        """Follower -> its last unit, the units that it lacks, and why it is paused or failed last, for the status."""
        last = self._manifests.last
        found = {name: (unit, None, None) for name, unit in self._others.items()} | {
            name: (runner.cursor, runner.paused, runner.failed) for name, runner in self._runners.items()
        }
        return {
            name: {"unit": unit, "lag": max(0, last - unit), "paused": paused, "failed": failed}
            for name, (unit, paused, failed) in found.items()
        }
