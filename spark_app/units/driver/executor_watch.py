"""Looks at the executors of a cluster every few seconds: whether there are any, as Spark would wait for one silently,
for ever; and how many the load needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NoReturn

from pyspark.sql import SparkSession

from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode, UnreachableError, last_message_line
from spark_app.model.events import Event
from spark_app.settings.models import Settings
from spark_app.units.driver.disk_space import StopRequested
from spark_app.units.driver.executor_count import ExecutorScaling
from spark_app.units.driver.status import Status
from spark_app.units.driver.worker_check import check_workers
from spark_app.units.spark import cluster, jvm

STARTS_S = 15.0  # that an executor takes to start on a busy machine
LOOK_S = 3.0
POLL_S = 0.5


class ExecutorWatch:
    """Looks at the executors of one session."""

    def __init__(self, session: SparkSession, settings: Settings, status: Status, tell: Callable[[Event], None]):
        """`tell` gets the changes of the number of executors."""
        self._scaling = ExecutorScaling(session, settings.spark, status, tell) if settings.spark.scales else None
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
