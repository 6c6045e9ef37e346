"""Executes requests, one step at a time, oldest first: in the running app between two batches, or in a command of its
own when the app is down. Between two steps the lake is free for ingest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pyspark.sql import SparkSession

from spark_app.driver.opened import OpenLake
from spark_app.driver.unit import UnitRunner
from spark_app.errors import ExitCode, ProtolakeError
from spark_app.gold.aggregate import Aggregator
from spark_app.ops.events import log
from spark_app.records import Report
from spark_app.recovery import requests
from spark_app.recovery.rebuild import Rebuild
from spark_app.recovery.replay import Replay
from spark_app.recovery.requests import Request
from spark_app.space import is_full

Placed = Callable[[Report, dict[str, int]], None]  # what a unit placed; cause -> records of quarantine it resolved


class Service:
    """Looks after the requests."""

    def __init__(
        self,
        session: SparkSession,
        opened: OpenLake,
        units: UnitRunner,
        aggregator: Aggregator,
        between_units: AbstractContextManager[object],
        placed: Placed = lambda report, resolved: None,
    ):
        self._session = session
        self._opened = opened
        self._units = units
        self._aggregator = aggregator
        self._between_units = between_units
        self._placed = placed
        self._job: Replay | Rebuild | None = None
        self._request: Request | None = None

    def rebuilding(self) -> bool:
        """Whether gold is to be left alone: it is compared and made anew when silver is complete."""
        return any(request.kind == "rebuild" and not request.dry_run for request in requests.pending(self._opened.lake))

    def step(self) -> bool:
        """A step of the oldest request; False when there is none.

        Raises:
            Exception: of any kind, where a disk is full. The request stays.
        """
        request = next(iter(requests.pending(self._opened.lake)), None)
        if request is None:
            return False
        try:
            result = self._advance(request)
        except Exception as error:  # a request that fails must not end the app
            if is_full(error):
                self._job = self._request = None  # when there is room, it goes on from what is on the disk
                raise
            log.error("request failed", kind=request.kind, request=request.id, reason=str(error)[-500:])
            code = error.exit_code if isinstance(error, ProtolakeError) else ExitCode.BUG
            result = {"error": str(error)[-2000:], "exit_code": int(code)}
        if result is not None:
            requests.answer(self._opened.lake, request, result)
            self._job = self._request = None
        return True

    def _advance(self, request: Request) -> dict[str, Any] | None:
        """One step; the result when it was the last."""
        if self._job is None or self._request != request:
            self._job, self._request = self._start(request), request
            log.info("request begun", kind=request.kind, request=request.id)
        with self._between_units:
            self._opened.finish_open()
            step = self._job.step()
        if step is not None:
            self._placed(*step)
            return None
        result = self._job.conclude()
        log.info("request done", kind=request.kind, request=request.id)
        return result

    def _start(self, request: Request) -> Replay | Rebuild:
        if request.kind == "replay":
            return Replay(self._session, self._opened, self._units, request)
        return Rebuild(self._session, self._opened, self._units, self._aggregator, request)
