"""Executes requests step by step, oldest first: in the running app between two batches, or in a command if no app runs.

Ingest continues between two steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.followers.events.spool import EventLog
from spark_app.followers.gold.aggregate import Aggregator
from spark_app.followers.gold.sql_tables.statements import read_files
from spark_app.followers.registry import aggregators
from spark_app.followers.runner import FollowerRunner
from spark_app.lake.files.disk import is_full, shortage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.lake.lake import Lake
from spark_app.model.errors import BrokenError, ExitCode, NoSpaceError, ProtolakeError, UnreachableError
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.model.reports import Report
from spark_app.protobuf.schemas.registry import RegistryUnreachable
from spark_app.recovery import requests
from spark_app.recovery.decisions import Acceptance, Drop, Resume
from spark_app.recovery.rebuild import Rebuild
from spark_app.recovery.renewal import Renewal
from spark_app.recovery.replay import Replay
from spark_app.recovery.requests import MOST_ATTEMPTS, Request, RequestAttempts, done_event, start_event
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitRunner
from spark_app.units.spark import jvm, session

OnStep = Callable[[Report, dict[str, int]], None]  # records that a unit added; cause -> replayed records

# Errors after which a step is repeated: a worker died, another process wrote, or compaction replaced a file.
RETRIED = (PySparkException, Py4JError, DeltaError, FileNotFoundError)


class RequestExecutor:
    """Executes the requests of one lake.

    Args:
        unit_lock: the lock under which units are built.
        on_step: called after each step, without the lock.
        emit: gets the events of requests.
        makes: whether a statement of the running app makes a table.
    """

    def __init__(
        self,
        spark: SparkSession,
        opened: OpenLake,
        units: UnitRunner,
        aggregators: Sequence[Aggregator],
        unit_lock: AbstractContextManager[object],
        on_step: OnStep = lambda report, resolved: None,
        emit: Callable[[Event], None] = lambda event: None,
        makes: Callable[[str], bool] = lambda table: False,
    ):
        self._spark = spark
        self._makes = makes
        self._opened = opened
        self._units = units
        self._aggregators = aggregators
        self._unit_lock = unit_lock
        self._on_step = on_step
        self._emit = emit
        self._job: Replay | Rebuild | Renewal | Resume | Acceptance | Drop | None = None
        self._request: Request | None = None

    def step(self) -> bool:
        """Execute a step of the oldest request; False if there is none.

        An error of the request itself becomes its result. If a Spark job or a commit failed, or a file is missing, the
        next call repeats the step.

        Raises:
            Exception: the cause is outside the request: the JVM has ended, a disk is full or broken, a server does not
                answer. The request stays and continues from its stored progress.
        """
        request = next(iter(requests.pending(self._opened.lake)), None)
        if request is None:
            return False
        tries = RequestAttempts(self._opened.lake, request)
        given_up = tries.begin()
        if given_up is not None:
            reason = f"the app gave up after {MOST_ATTEMPTS} attempts without progress; the last error: {given_up}"
            self._finish(request, _failure(reason, ExitCode.BUG))
            return True
        try:
            result = self._advance(request)
        except Exception as error:
            self._job = self._request = None
            failure = self._handle_failure(request, error, tries)
            if failure is not None:
                self._finish(request, failure)
            return True
        if result is not None:
            self._finish(request, result)
        return True

    def _finish(self, request: Request, result: dict[str, Any]) -> None:
        self._emit(done_event(request, result))
        requests.finish(self._opened.lake, request, result)
        self._job = self._request = None

    def _handle_failure(self, request: Request, error: Exception, tries: RequestAttempts) -> dict[str, Any] | None:
        """The result of a request whose step failed; None if the step is repeated.

        Raises:
            Exception: the error itself, if the request did not cause it.
            BrokenError: the JVM has ended.
        """
        if is_full(error) or is_store_error(error) or isinstance(error, UnreachableError | RegistryUnreachable):
            tries.withdraw()
            raise error
        reason = f"{type(error).__name__}: {str(error)[-500:]}"
        if isinstance(error, ProtolakeError):
            log.error("request failed", kind=request.kind, request=request.id, reason=str(error)[-500:])
            return _failure(str(error), error.exit_code)
        tries.failed(reason)
        if not jvm.jvm_lives():
            raise BrokenError(
                f"the JVM ended during {request.kind} {request.id}; the request stays ({reason})"
            ) from error
        if isinstance(error, RETRIED):
            log.error("a step failed, the app retries it", kind=request.kind, request=request.id, reason=reason)
            return None
        if isinstance(error, OSError):
            raise error
        log.error("request failed", kind=request.kind, request=request.id, reason=reason)
        return _failure(str(error), ExitCode.BUG)

    def _advance(self, request: Request) -> dict[str, Any] | None:
        """Execute one step; returns the result after the last one, else None."""
        if self._job is None or self._request != request:
            self._job, self._request = self._start(request), request
            log.info("request started", kind=request.kind, request=request.id)
            self._emit(start_event(request))
        with self._unit_lock:
            self._opened.units.apply_pending()
            step = self._job.step()
        if step is not None:
            self._on_step(*step)
            return None
        result = self._job.conclude()
        log.info("request done", kind=request.kind, request=request.id)
        return result

    def _start(self, request: Request) -> Replay | Rebuild | Renewal | Resume | Acceptance | Drop:
        if request.kind == "replay":
            return Replay(self._spark, self._opened, self._units, request)
        if request.kind == "resume":
            return Resume(self._opened, request)
        if request.kind == "accept":
            return Acceptance(self._opened, request)
        if request.kind == "drop":
            files = read_files(self._spark, self._opened.settings)
            names = set(self._opened.admission.admitted.values())
            return Drop(self._opened, request, lambda table: files.makes(table, names) or self._makes(table))
        if request.kind == "renew":
            return Renewal(self._spark, self._opened, self._units, self._aggregators, request)
        return Rebuild(self._spark, self._opened, self._units, self._aggregators, request)


def _failure(reason: str, code: ExitCode) -> dict[str, Any]:
    return {"error": reason[-2000:], "exit_code": int(code)}


def execute(settings: Settings, lake: Lake, request: Request) -> dict[str, Any]:
    """Execute all pending requests and update gold; returns the result of this request.

    The caller holds the lake's lock and ends the Spark session.

    Raises:
        NoSpaceError: the disk has too little free space; the request stays.
    """
    opened = OpenLake.of(lake, settings)
    spark = session.start(settings, "protolake-recovery", quiet=True)
    jvm.lock_lake_in_jvm(spark, lake)
    units = UnitRunner(spark, opened)
    renewed = [name for one in requests.pending(lake) if one.kind == "renew" for name in one.arguments["names"]]
    with opened.renewing(renewed):  # their columns need not fit the old ones
        units.check_expectations()
    unit_lock = threading.Lock()
    gold = aggregators(spark, opened, unit_lock)
    runners = [FollowerRunner(one, lake, opened.units.manifests) for one in gold]
    for runner in runners:
        runner.begin()
    service = RequestExecutor(spark, opened, units, gold, unit_lock, emit=EventLog(lake, "recovery").add)
    while service.step():
        short = shortage(lake.root, settings.lake.min_free_bytes)
        if short:
            raise NoSpaceError(f"{short}. The request stays: run the command again, or start the app")
    for runner in runners:
        runner.call()
    opened.units.committer.close()
    for runner in runners:
        runner.flush()
    return requests.take_result(lake, request) or {}
