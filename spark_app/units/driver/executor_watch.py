"""Looks at the executors of a cluster every few seconds: whether there are any, as Spark would wait for one silently,
for ever; and how many the load needs: more under load, fewer when there is little to do.

Spark's own dynamic allocation waits until an executor has been idle for a while. Micro-batches keep all executors a
little busy, so it would give none back.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NoReturn

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode, UnreachableError, last_message_line
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.settings.models import Settings
from spark_app.settings.spark_cluster import SparkSettings
from spark_app.units.driver.disk_space import StopRequested
from spark_app.units.driver.status import Status
from spark_app.units.driver.worker_check import check_workers
from spark_app.units.spark import cluster, jvm
from spark_app.units.spark.jvm import ExecutorWork

FILLED = 0.6  # share of the cores that are busy if there are enough: the rest of a unit's time is the driver's
MOST_GROWTH = 2  # times as many executors at once
KEEP_S = 60.0  # how long one without a task is kept because others have one
STARTS_S = 15.0  # that an executor takes to start on a busy machine
LOOK_S = 3.0
POLL_S = 0.5


class ExecutorCount:
    """The policy: as many executors as the work of the last seconds fills, and not fewer before the work has been
    little for a while."""

    def __init__(self, least: int, most: int, calm_s: float):
        self._least = least
        self._most = most
        self._calm_s = calm_s
        self._wanted = most
        self._needed: deque[tuple[float, int]] = deque()  # (time, executors that the work filled), of the last `calm_s`
        self._since: float | None = None  # the first look
        self._last = 0.0
        self._before: Mapping[str, ExecutorWork] = {}

    def choose(self, now: float, works: Mapping[str, ExecutorWork]) -> int:
        """The number of executors to have from now on.

        Args:
            now: monotonic time.
            works: of the executors that are ready.
        """
        last, self._last = self._last, now
        before, self._before = self._before, dict(works)
        if self._since is None:  # what was before is not known
            self._since = now
            return self._wanted
        busy = sum(_busy_cores(work, before.get(name), now - last) for name, work in works.items())
        cores = max((work.cores for work in works.values()), default=1)
        needed = math.ceil(busy / cores / FILLED)
        while self._needed and self._needed[0][0] < now - self._calm_s:
            self._needed.popleft()
        self._needed.append((now, needed))
        if needed > self._wanted:
            self._wanted = self._within(min(needed, MOST_GROWTH * len(works)))
        elif now - self._since >= self._calm_s:
            self._wanted = self._within(max(number for _, number in self._needed))
        return self._wanted

    def _within(self, number: int) -> int:
        return max(self._least, min(self._most, number))


def _busy_cores(work: ExecutorWork, before: ExecutorWork | None, seconds: float) -> float:
    """The cores of an executor that tasks kept busy since the look before, so many seconds ago."""
    done = work.task_seconds - (before.task_seconds if before else 0.0)
    if not done and before and before.running:  # no task has ended, so each ran all the time
        return min(work.running, before.running)
    return min(done / seconds, work.cores)  # a task that ended may have begun before


class ExecutorScaling:
    """Lets the cluster follow `ExecutorCount`."""

    def __init__(self, session: SparkSession, settings: SparkSettings, status: Status, emit: Callable[[Event], None]):
        self._session = session
        self._status = status
        self._emit = emit
        self._count = ExecutorCount(settings.min_executors, settings.max_executors, settings.executor_calm_s)
        self._asked = 0
        self._surplus_since: float | None = None
        self._answers = True

    def look(self) -> None:
        """Compare the work since the last look with the executors; ask for more, or give some back. A cluster that does
        not answer is asked again at the next look."""
        try:
            answers = self._look()
        except (Py4JError, OSError) as error:
            answers = False
            if self._answers:
                log.warning("the cluster cannot be asked for executors", reason=last_message_line(error))
        self._answers = answers

    def _look(self) -> bool:
        works = jvm.executor_work(self._session)
        wanted = self._count.choose(time.monotonic(), works)
        # Each time, because a master that was restarted has forgotten it and gives the app all free cores.
        answers = jvm.request_executors(self._session, wanted)
        if answers and wanted != self._asked:
            self._report(wanted, len(works))
            self._asked = wanted
        if answers and len(works) > wanted:  # some may be busy, and are given back at a later look
            self._release(works, len(works) - wanted)
        else:
            self._surplus_since = None
        self._status.set_executors({"now": len(works), "wanted": wanted})
        return answers

    def _release(self, works: Mapping[str, ExecutorWork], surplus: int) -> None:
        """Give back executors without a task. While others have one, they may hold rows that a stage still wants (those
        of `units/worker/shuffle`), and Spark would read the records again."""
        now = time.monotonic()
        if self._surplus_since is None:
            self._surplus_since = now
        if now - self._surplus_since > KEEP_S or not any(work.running for work in works.values()):
            idle = sorted((name for name, work in works.items() if not work.running), key=int, reverse=True)
            jvm.release_executors(self._session, idle[:surplus])

    def _report(self, wanted: int, now: int) -> None:
        log.info("executors", wanted=wanted, now=now)
        text = f"The app asks the cluster for {wanted:,} executors; it has {now:,}"
        self._emit(Event("executors", text, details={"wanted": wanted, "now": now}))


class ExecutorWatch:
    """Looks at the executors of one session."""

    def __init__(self, session: SparkSession, settings: Settings, status: Status, emit: Callable[[Event], None]):
        """`emit` gets the changes of the number of executors."""
        self._scaling = ExecutorScaling(session, settings.spark, status, emit) if settings.spark.scales else None
        self._session = session
        self._settings = settings
        self._status = status
        self._none_since: float | None = None
        self._told = False

    def start(self, leave: Callable[[ExitCode, str], NoReturn]) -> None:
        """Look every few seconds in a thread of its own: all others may wait for a job.

        Args:
            leave: called from that thread if there was no executor for `run.connect_timeout_s`; a new start registers
                with the cluster anew.
        """

        if self._scaling:
            self._scaling.look()  # a cluster gives all that it has until it is asked for less

        def keep() -> None:
            while True:
                time.sleep(LOOK_S)
                try:
                    self.look()
                    if self._scaling:
                        self._scaling.look()
                except UnreachableError as error:
                    leave(ExitCode.UNREACHABLE, str(error))
                except Exception as error:
                    if cluster.cause_of(error) is not None and jvm.jvm_lives():
                        leave(ExitCode.UNREACHABLE, f"the cluster has ended the app ({last_message_line(error)})")
                    return  # the JVM ends, which the other threads notice

        threading.Thread(target=keep, name="executors", daemon=True).start()

    def check(self, lake: Lake, stop: threading.Event) -> None:
        """Run `check_workers`, which needs executors.

        Raises:
            ConfigurationError, UnreachableError: as `check_workers`.
            StopRequested: the app is stopped before there are executors.
        """
        checked: Future[None] = Future()

        def run() -> None:
            try:
                check_workers(self._session, lake, self._settings)
            except BaseException as error:
                checked.set_exception(error)
            else:
                checked.set_result(None)

        threading.Thread(target=run, name="workers", daemon=True).start()
        while not checked.done():
            if stop.is_set():
                raise StopRequested
            time.sleep(POLL_S)
        checked.result()

    def look(self) -> None:
        """
        Raises:
            UnreachableError: there was none for `run.connect_timeout_s` although a job needs one.
        """
        if jvm.executors(self._session) or not self._session.sparkContext.statusTracker().getActiveStageIds():
            if self._told:
                self._status.waiting(None)
            self._none_since, self._told = None, False
            return
        now, spark = time.monotonic(), self._settings.spark
        self._none_since = self._none_since or now
        reason = (
            f"the cluster {spark.master} gives the app no executor: are its workers up, has it free cores, and do "
            f"executors reach the app at spark.driver_host = {spark.driver_host}?"
        )
        if now - self._none_since > self._settings.run.connect_timeout_s:
            raise UnreachableError(reason)
        if now - self._none_since > STARTS_S:
            self._told = True
            self._status.waiting(reason)
