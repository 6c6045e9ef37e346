"""Notices that no executor of a cluster is there: Spark would wait for one silently, for ever."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from pyspark.sql import SparkSession

from spark_app.driver.worker_check import check_workers
from spark_app.model.errors import UnreachableError
from spark_app.ops.status import Status
from spark_app.process.disk_space import StopRequested
from spark_app.settings.models import Settings
from spark_app.spark import jvm
from spark_app.storage.lake import Lake

STARTS_S = 15.0  # that an executor takes to start on a busy machine
LOOK_S = 0.5


class ExecutorWatch:
    """Looks at the executors of one session."""

    def __init__(self, session: SparkSession, settings: Settings, status: Status):
        self._session = session
        self._settings = settings
        self._status = status
        self._none_since: float | None = None
        self._told = False

    def check(self, lake: Lake, stop: threading.Event) -> None:
        """Run `check_workers`, which needs executors, and look for them meanwhile.

        Raises:
            ConfigurationError, UnreachableError: as `check_workers` and `look`.
            StopRequested: the app is stopped before there are executors.
        """
        checked: Future[None] = Future()

        def run() -> None:
            try:
                check_workers(self._session, lake)
            except BaseException as error:
                checked.set_exception(error)
            else:
                checked.set_result(None)

        threading.Thread(target=run, name="workers", daemon=True).start()
        while not checked.done():
            self.look()
            if stop.is_set():
                raise StopRequested
            time.sleep(LOOK_S)
        checked.result()

    def look(self) -> None:
        """
        Raises:
            UnreachableError: there was none for `run.connect_timeout_s`; a new start registers with the cluster anew.
        """
        if not self._settings.spark.on_cluster:
            return
        if jvm.executors(self._session):
            if self._told:
                self._status.waiting(None)
            self._none_since, self._told = None, False
            return
        now, master = time.monotonic(), self._settings.spark.master
        self._none_since = self._none_since or now
        reason = f"the cluster {master} gives the app no executor: are its workers up, and has it free cores?"
        if now - self._none_since > self._settings.run.connect_timeout_s:
            raise UnreachableError(reason)
        if now - self._none_since > STARTS_S:
            self._told = True
            self._status.waiting(reason)
