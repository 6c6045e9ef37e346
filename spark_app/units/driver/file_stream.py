"""The loop over a source of files: it plans a unit, passes it to `ingest`, notes what was ingested, and waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.lake.files import failpoints
from spark_app.model.errors import ProtolakeError, UnreachableError, last_message_line
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.model.offsets import Offsets
from spark_app.model.text import one_line
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.input import FileFailed, FileShare, Part
from spark_app.sources.files.listing import OpenedSource
from spark_app.sources.files.planning import Plan
from spark_app.units.driver.disk_space import StopRequested
from spark_app.units.driver.ingest import Ingest, RunContext
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitOptions, UnitRunner
from spark_app.units.spark.jvm import jvm_lives

SHARD = "0"  # the partition of all records
IDENTITY = "files"  # the topic id of all records
IDLE_S = 1.0  # seconds between chores
RETRY_S = 1.0
REST_S = 5.0  # longer than `source.settle_s` no run that ends by itself waits for files that still change


def origin_of(name: str, land_only: bool) -> UnitOptions:
    """The options of units from files."""
    return UnitOptions({name: IDENTITY}, land_only=land_only)


class FileStream:
    """The loop of one run.

    Attributes:
        query: None: Spark has no streaming query here.
    """

    query = None

    @property
    def batch_description(self) -> str:
        """See `Ingest`."""
        return self._ingest.batch_description

    def __init__(
        self, session: SparkSession, opened: OpenLake, units: UnitRunner, run: RunContext, available_now: bool
    ):
        """`available_now`: end once all files are ingested that are there."""
        self._session = session
        self._opened = opened
        self._settings = opened.settings
        self._status = run.status
        self._run = run
        self._stop = run.stop
        self._available_now = available_now
        self._source: OpenedSource | None = None
        self._parts: Sequence[Part] = ()
        self._named: dict[str, str] = {}  # the files that were reported to be broken
        self._unanswered_since: float | None = None
        self._resting_since: float | None = None
        self._ingest = Ingest(opened, units, run, self.read, replans=True)

    def read(self, start: Offsets, end: Offsets, tasks: int) -> Records:
        """The records of the current plan, which has this range."""
        batch, folder = self._settings.batch, self._opened_source().folder
        columns, topic = SourceColumns.of(self._settings.source), self._settings.source.name
        bounds = batch.max_arrow_records, batch.max_arrow_bytes, batch.max_record_bytes
        shares = (FileShare(folder, columns, topic, own, *bounds) for own in split_parts(self._parts, tasks))
        return Records(self._session, tuple(shares), sum(part.piece.rows for part in self._parts))

    def keep(self, origin: UnitOptions, every_second: Callable[[], None]) -> None:
        """Ingest files until the app is asked to stop, or all are ingested.

        Args:
            every_second: called about once a second, between two units.

        Raises:
            ProtolakeError: a unit raised it, an ingested file was replaced, or the folder cannot be read for too long.
        """
        chores = time.monotonic() + IDLE_S
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                more = self._attempt(origin)
            except StopRequested:
                return
            if time.monotonic() >= chores:
                every_second()
                chores = time.monotonic() + IDLE_S
            if more:
                self._resting_since = None
                continue
            if more is None and self._available_now and self._is_done():
                return
            self._idle(began, every_second)
            chores = time.monotonic() + IDLE_S

    def lag(self) -> int | None:
        """Records that wait: none, or an unknown number."""
        waits = self._source is None or self._source.planner.waiting
        return None if waits else 0

    def _idle(self, began: float, every_second: Callable[[], None]) -> None:
        """Wait until the interval of batches is over."""
        until = began + max(self._settings.batch.interval_s, 0.05)
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(min(left, IDLE_S)):
            if left > IDLE_S:
                every_second()

    def _is_done(self) -> bool:
        planner = self._opened_source().planner
        if not planner.is_resting:
            return True
        now = time.monotonic()
        self._resting_since = self._resting_since or now
        if now - self._resting_since <= self._settings.source.settle_s + REST_S:
            return False
        if rewritten := planner.rewritten:
            raise UnreachableError(f"source.path: {rewritten}: start again when it is complete")
        return True

    def _attempt(self, origin: UnitOptions) -> bool | None:
        """Ingest one unit. True = there may be more now, False = try again later, None = there is nothing."""
        try:
            ingested = self._run.disk.retry(lambda: self._ingest_unit(origin))
            self._unanswered_since = None
            return ingested
        except FileFailed as failed:
            log.warning("a file could not be read", file=failed.key, reason=failed.what)
            self._plan_anew(failed)
            return False
        except ProtolakeError:
            raise
        except OSError as error:
            if isinstance(error, ConnectionError) or not jvm_lives():
                self._ingest.fail(error, "the JVM has ended")
            if self._ingest.batch_description:
                self._ingest.fail(error, last_message_line(error))
            self._wait_for_folder(error)
            return False
        except (PySparkException, Py4JError) as error:
            if not jvm_lives():
                self._ingest.fail(error, "the JVM has ended")
            self._ingest.fail(error, f"{type(error).__name__}: {last_message_line(error)}")

    def _plan_anew(self, failed: FileFailed) -> None:
        try:
            is_planned = self._opened_source().planner.failed(failed)
            self._tell()
        except ProtolakeError:
            raise
        except OSError as error:
            self._wait_for_folder(error)
        else:
            if is_planned:
                self._wait_for_folder(f"in a task {failed}, and the app sees the file as it was planned")

    def _wait_for_folder(self, error: OSError | str) -> None:
        now = time.monotonic()
        self._unanswered_since = self._unanswered_since or now
        seconds, most = now - self._unanswered_since, self._settings.run.connect_timeout_s
        text = f"source.path {self._settings.source.path} cannot be read: {error}"
        if seconds > most:
            raise UnreachableError(f"{text}, for {seconds:.0f} s")
        self._status.waiting(f"{text}; the app retries for {most:.0f} s")
        self._stop.wait(RETRY_S)

    def _opened_source(self) -> OpenedSource:
        if self._source is None:
            manifests = self._opened.units.manifests
            self._source = OpenedSource(self._opened.lake, self._settings, manifests, self._proceed)
        return self._source

    def _proceed(self) -> None:
        if self._stop.is_set():
            raise StopRequested

    def _ingest_unit(self, origin: UnitOptions) -> bool | None:
        with self._run.unit_lock:
            if self._stop.is_set():
                return False
            self._opened.units.apply_pending()
            source = self._opened_source()
            source.catch_up()
            plan = source.planner.plan(source.end)
            self._tell()
            if plan is None:
                self._status.waiting(source.planner.rewritten or None)
                return None
            with failpoints.around("batch"):
                self._take_plan(plan, origin, source)
            return True

    def _take_plan(self, plan: Plan, origin: UnitOptions, source: OpenedSource) -> None:
        self._parts = plan.parts
        name = self._settings.source.name
        start, end = ({name: {SHARD: number}} for number in (plan.start, plan.end))
        try:
            self._ingest.commit_range(start, end, origin, plan.source(source.planner.version))
            source.committed(plan)
        except BaseException:
            if source.end != plan.start:
                self._source = None  # the plan is committed, and this planner would plan its files once more
            raise
        self._tell()

    def _tell(self) -> None:
        """Set the source in the status, and name files that are broken now."""
        source = self._opened_source()
        broken = source.planner.broken
        for key in sorted(broken.keys() - self._named.keys()):
            text = one_line(f"The file {key} cannot be ingested: {broken[key]}")
            log.warning(
                "a file cannot be ingested", file=key, reason=broken[key], remedy="write it again, or remove it"
            )
            self._status.emit(Event("file", text, "WARN", details={"file": key, "reason": broken[key]}))
        self._named = broken
        self._status.set_source(source.describe())


def split_parts(parts: Sequence[Part], tasks: int) -> list[tuple[Part, ...]]:
    """About the same number of rows for each task; a task without rows is left out."""
    shares: list[list[Part]] = [[] for _ in range(max(1, tasks))]
    rows = [0] * len(shares)
    for part in parts:
        least = rows.index(min(rows))
        shares[least].append(part)
        rows[least] += part.piece.rows
    return [tuple(share) for share in shares if share]
