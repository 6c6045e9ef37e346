"""Notices that no executor of a cluster is left: Spark would wait for one silently, for ever."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from spark_app.model.errors import UnreachableError
from spark_app.ops.status import Status
from spark_app.settings.models import Settings
from spark_app.spark import jvm


class ExecutorWatch:
    """Looks at the executors of one session."""

    def __init__(self, session: SparkSession, settings: Settings, status: Status):
        self._session = session
        self._settings = settings
        self._status = status
        self._none_since: float | None = None

    def look(self) -> None:
        """
        Raises:
            UnreachableError: there was none for `run.connect_timeout_s`; a new start registers with the cluster anew.
        """
        if not self._settings.spark.on_cluster:
            return
        if jvm.executors(self._session):
            if self._none_since is not None:
                self._none_since = None
                self._status.waiting(None)
            return
        now, master = time.monotonic(), self._settings.spark.master
        self._none_since = self._none_since or now
        reason = f"the cluster {master} gives the app no executor: are its workers up, and has it free cores?"
        if now - self._none_since > self._settings.run.connect_timeout_s:
            raise UnreachableError(reason)
        self._status.waiting(reason)
