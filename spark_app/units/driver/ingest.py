"""One micro-batch:

1. Compare the start offsets that Spark planned with the end of the last unit. (`file_stream` plans those of files.)
2. Record the attempt; after a few failed attempts the batch is written to bronze only.
3. Run the job; resolve new schema ids and tables, or exit for a bump without committing.
4. Check that the topics are still the same.
5. Commit the unit (manifest).
6. Apply it (Delta commits).
7. Run maintenance if it is due.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from spark_app.lake.delta.manifest import follows
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import BrokenError, ConfigurationError, ContractError, SchemaBump, last_message_line
from spark_app.model.log import log
from spark_app.model.offsets import Offsets, ReadFailed, ReadFailure
from spark_app.model.reports import Report
from spark_app.sources.kafka.spans import spans_between
from spark_app.units.driver.disk_space import DiskSpaceGuard
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.status import Status
from spark_app.units.driver.unit import UnitOptions, UnitRunner
from spark_app.units.spark.checkpoint import REMEDY, read_range
from spark_app.units.spark.cluster import cause_of

RETRY_S = (0, 1, 2, 4, 8, 15)  # wait after so many failed attempts
MOST_NAMED = 20  # partitions
MAX_LAND_ATTEMPTS = 8  # attempts to write bronze only: then the records cannot be the cause
MOST_AT_ONCE = 200_000


@dataclass(frozen=True)
class RunContext:
    """What the loops of one run share.

    Attributes:
        disk: waits for free disk space.
        stop: set when the app is asked to stop.
        unit_lock: locked while a unit is built and committed, so that only one is open at any time.
    """

    status: Status
    disk: DiskSpaceGuard
    stop: threading.Event
    unit_lock: AbstractContextManager[object]


class Ingest:
    """The body of the streaming query, and of the loop over files."""

    def __init__(
        self,
        opened: OpenLake,
        units: UnitRunner,
        run: RunContext,
        read: Callable[[Offsets, Offsets, int], Records],
        confirm: Callable[[dict[str, str]], None] = lambda topic_ids: None,
        *,
        replans: bool = False,
    ):
        """
        Args:
            replans: another attempt at a batch may have another end, so that its start names the batch.
            read: returns the records between two positions, divided among so many tasks.
            confirm: raises if the topics no longer have these ids.
        """
        self._opened = opened
        self._lake = opened.lake
        self._settings = opened.settings
        self._manifests = opened.units.manifests
        self._units = units
        self._status = run.status
        self._disk = run.disk
        self._stop = run.stop
        self._read = read
        self._confirm = confirm
        self._replans = replans
        self._attempts = opened.lake.attempts
        self.batch_description = ""  # offsets and attempt number of the current batch

    def batch(self, batch_id: int, origin: UnitOptions) -> int:
        """Ingest one micro-batch as Spark planned it; returns its number of records.

        Raises:
            SchemaBump, ContractError, StopRequested, ReadFailed: nothing was committed.
        """
        began = time.monotonic()
        self._opened.units.apply_pending()
        try:
            start, end = read_range(self._lake.path(self._lake.checkpoint), batch_id)
        except ContractError as error:
            raise ContractError(f"{error}. {REMEDY}") from None
        last = self._manifests.last_ingest
        if last is not None and end == last.source["end"]:
            log.info("batch was committed before this query started", batch=batch_id, unit=last.sequence)
            return 0
        if last is not None and not _continues(batch_id, start, last.source["end"]):
            raise ContractError(
                f"Spark's batch {batch_id} starts at {start}, but unit {last.sequence} ended at {last.source['end']}: "
                f"the checkpoint does not belong to this lake. {REMEDY}"
            )
        _check_direction(start, end)
        partitions = self._settings.kafka.partitions
        source = {"batch": batch_id} | ({"partitions": partitions} if partitions else {})
        return self.commit_range(start, end, origin, source, began)

    def commit_range(
        self, start: Offsets, end: Offsets, origin: UnitOptions, source: dict[str, Any], began: float | None = None
    ) -> int:
        """Ingest the records of a planned range; returns their number.

        Args:
            source: what else the manifest has of the source.
            began: monotonic time when the batch began.

        Raises:
            SchemaBump, ContractError, StopRequested, ReadFailed: nothing was committed.
        """
        began = time.monotonic() if began is None else began
        report = self._run(start, end, replace(origin, bump_in_place=self._in_place(origin)))
        _check_spans(report, start, end)
        _check_read(report, start, end)
        self._confirm_topics(origin, report)
        try:
            self._opened.commit(report, "ingest", source | {"start": start, "end": end, "topic_ids": origin.topic_ids})
        except OSError as error:
            if is_store_error(error):
                self._lake.local_state.delete(self._attempts)  # the failure is not caused by the records
            raise
        self._lake.local_state.delete(self._attempts)
        self.batch_description = ""
        self._status.batch_done(self._manifests.last, report, time.monotonic() - began)
        return report.bronze

    def fail(self, error: BaseException, why: str) -> NoReturn:
        """
        Raises:
            BrokenError: names the records of the current batch; without a batch the error itself is raised.
        """
        if not self.batch_description:
            raise error
        remedy = 'if this happens repeatedly, see "Exit codes" in docs/operations.md'
        raise BrokenError(f"the app failed on the {self.batch_description} ({why}): {remedy}") from error

    def _confirm_topics(self, origin: UnitOptions, report: Report) -> None:
        """Check after the job that everything it read came from the topics that the unit names."""
        try:
            self._confirm(origin.topic_ids)
        except BaseException:
            self._units.discard(report)
            self._lake.local_state.delete(self._attempts)  # the failure is not caused by the records
            raise

    def _in_place(self, origin: UnitOptions) -> bool:
        """True if a bump continues without a restart: also while no table exists that could get columns, because the
        app may start before the first record."""
        first = self._manifests.last == 0 or not self._opened.admission.admitted
        return origin.bump_in_place or first or self._settings.schemas.on_bump == "in-place"

    def _records(self, start: Offsets, end: Offsets) -> Records:
        offsets = sum(span.offsets for span in spans_between(start, end))
        return self._read(start, end, self._units.tasks(offsets))

    def _pass(self, start: Offsets, end: Offsets, origin: UnitOptions) -> Report:
        """Run the job. A lake's first records are sampled, which sets the number of tasks."""
        sequence, records = self._manifests.last + 1, self._records(start, end)
        if self._units.resolve_sample(records, sequence, origin):
            records = self._records(start, end)
        return self._units.run(records, sequence, origin)

    def _run(self, start: Offsets, end: Offsets, origin: UnitOptions) -> Report:
        """Run the job, with retries where a retry can help."""
        while True:
            self._disk.wait()
            self._status.waiting(None)
            tries = self._count_attempt(start if self._replans else end)
            self.batch_description = f"batch of {describe_range(start, end)}, attempt {tries}"
            if tries > 1:
                log.warning("batch is retried", tries=tries, records=describe_range(start, end))
            land_only = origin.land_only or tries > self._settings.batch.max_attempts
            if land_only and not origin.land_only:
                message = "batch failed too often: it is written to bronze only, its decoding is deferred"
                log.error(message, tries=tries - 1, records=describe_range(start, end))
            try:
                return self._pass(start, end, replace(origin, land_only=land_only))
            except SchemaBump:
                self._lake.local_state.delete(self._attempts)
                raise
            except (ReadFailed, ConfigurationError):  # the failure is Kafka's or a worker's, not caused by the records
                self._lake.local_state.delete(self._attempts)
                self.batch_description = ""
                raise
            except ConnectionError:
                raise  # the JVM is gone, so this process exits; the attempt stays counted
            except (PySparkException, Py4JJavaError, OSError) as error:
                if (cause := cause_of(error)) is not None:
                    self._lake.local_state.delete(self._attempts)
                    raise cause from None
                full = is_full(error)
                if full:
                    self._lake.local_state.delete(self._attempts)
                    self.batch_description = ""
                last = tries > self._settings.batch.max_attempts + MAX_LAND_ATTEMPTS and not full
                if self._stop.is_set() or last:
                    raise
                log.error("the pass failed, the app retries the batch", tries=tries, reason=last_message_line(error))
                if full:
                    self._disk.wait(error)
                else:
                    self._stop.wait(RETRY_S[min(tries, len(RETRY_S) - 1)])

    def _count_attempt(self, named: Offsets) -> int:
        """The number of attempts at the batch with this name, including this one; survives a crash."""
        old = read_json(self._lake.local_state, self._attempts) or {}
        tries = int(old["tries"]) + 1 if old.get("end") == named else 1
        write_quickly(self._lake.local_state, self._attempts, {"end": named, "tries": tries}, "attempt")
        return tries


def _continues(batch: int, start: Offsets, end: Offsets) -> bool:
    """True if the batch starts where the last unit ended. The first batch of a checkpoint may name partitions that were
    added since; later batches read new partitions from their first record."""
    return start == end if batch else follows(start, end)


def describe_range(start: Offsets, end: Offsets) -> str:
    """The offsets of each partition with records as "<topic>/<partition> <first> to <end>"; the end is excluded."""
    ranges = {t: {p: (start.get(t, {}).get(p, 0), o) for p, o in parts.items()} for t, parts in end.items()}
    found = [f"{t}/{p} {a} to {b}" for t, parts in sorted(ranges.items()) for p, (a, b) in parts.items() if b > a]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more


def _check_direction(start: Offsets, end: Offsets) -> None:
    """Reject a plan whose partition ends before it starts: its offsets would be used twice."""
    for topic, partitions in end.items():
        for partition, offset in partitions.items():
            first = start.get(topic, {}).get(partition, 0)
            if offset < first:
                raise ReadFailed(
                    ReadFailure.BEHIND, f"{topic}/{partition} at {first}: the partition ends at {offset}", []
                )


def _check_spans(report: Report, start: Offsets, end: Offsets) -> None:
    """Every record is in the batch's range, and none is there twice. Gaps are allowed: aborted and compacted
    records."""
    for key, (first, last, count) in report.spans.items():
        topic, partition = key.rsplit("/", 1)
        low, high = start.get(topic, {}).get(partition, 0), end[topic][partition]
        if first < low or last >= high or count > last - first + 1:
            raise ContractError(f"{key}: {count} records at {first} to {last} are outside the batch's {low} to {high}")


def _check_read(report: Report, start: Offsets, end: Offsets) -> None:
    """The tasks have read everything that was planned, and nothing twice: gaps between records come from Kafka."""
    for span in spans_between(start, end):
        read = sorted(report.read.get(span.partition_name, []))
        edges = [span.start, *itertools.chain(*read), span.end]  # each span begins where the one before ended
        if not read or edges[::2] != edges[1::2]:
            raise ContractError(f"{span.partition_name}: the tasks read {read} instead of {span.start} to {span.end}")


class SizeBackoff:
    """The record limit. It is stored in the file `key` before each attempt, because the attempt may crash the app."""

    def __init__(self, storage: Storage, key: str, tries: int):
        self._storage = storage
        self._key = key
        self._most_tries = tries
        self._limit = MOST_AT_ONCE
        self._first = ""

    def limit(self, first: str = "") -> int:
        """The number of records for the next attempt. 0: the next record alone has failed too often; quarantine it.

        Args:
            first: identifies the next record, if it may differ from the first record of the failed attempt.
        """
        stored = read_json(self._storage, self._key) or {"limit": MOST_AT_ONCE, "tries": 0}
        same = stored.get("first", "") == first
        self._limit, self._tries, self._first = int(stored["limit"]), int(stored["tries"]) if same else 0, first
        if self._tries >= self._most_tries:
            self._limit, self._tries = (0 if self._limit <= 1 else max(1, self._limit // 10)), 0
        return self._limit

    def run(self, run: Callable[[], Report]) -> Report | None:
        """Run the job over as many records as `limit` returned; None if it failed."""
        self._note(self._limit, self._tries + 1)
        try:
            return run()
        except ConnectionError:
            raise  # the JVM is gone
        except (PySparkException, Py4JJavaError, OSError) as error:
            if is_full(error):
                self._note(self._limit, self._tries)
                raise
            if (cause := cause_of(error)) is not None:
                self._note(self._limit, self._tries)
                raise cause from None
            log.error(
                "the pass over bronze failed, trying fewer records",
                records=self._limit,
                reason=last_message_line(error),
            )
            return None

    def succeeded(self) -> None:
        """Call after the records are committed."""
        self._note(min(MOST_AT_ONCE, max(self._limit, 1) * 10), 0)

    def _note(self, limit: int, tries: int) -> None:
        value = {"limit": limit, "tries": tries, "first": self._first}
        write_quickly(self._storage, self._key, value, "attempt", owned=True)
