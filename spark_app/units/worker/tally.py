"""What a task counts into its report, and where its time goes."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.catalog import SchemaKey
from spark_app.model.causes import Cause
from spark_app.model.pauses import FailedRow
from spark_app.model.reports import Report, add_counts
from spark_app.tables.expectations.row_checks import Checked
from spark_app.tables.route import Routed
from spark_app.units.worker import table_rows

TimedStep = Literal["read", "decode", "check", "project", "write"]
TIMED_STEPS: tuple[TimedStep, ...] = get_args(TimedStep)
MOST_REPORTED = 10_000  # distinct new values or ids that a task names; the driver resolves the rest with later batches


class Stopwatch:
    """Hands the time from one step to another: every moment belongs to one step, so the steps add up to the task.

    Attributes:
        seconds: each step -> wall time until now, except since the last change of the step.
    """

    def __init__(self) -> None:
        """Start, with the step "read"."""
        self.seconds: dict[str, float] = dict.fromkeys(TIMED_STEPS, 0.0)
        self._step: TimedStep = "read"
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def step(self, step: TimedStep) -> Iterator[None]:
        """Inside of it the time is that of `step`, afterwards again that of the step before."""
        before = self._step
        self._turn(step)
        yield
        self._turn(before)

    def stop(self) -> dict[str, float]:
        """`seconds` until now."""
        self._turn(self._step)
        return self.seconds

    def _turn(self, step: TimedStep) -> None:
        now = time.perf_counter()
        self.seconds[self._step] += now - self._since
        self._step, self._since = step, now


class Tally:
    """
    Attributes:
        report: of the task.
    """

    def __init__(self) -> None:
        self.report = Report()
        self._numbers: dict[str, int] = {}  # routing name -> number of its table in this task

    @property
    def names(self) -> list[str]:
        """The routing names by the numbers of their tables."""
        return list(self._numbers)

    def count_records(self, records: pa.Table) -> None:
        report = self.report
        report.bronze += records.num_rows
        report.value_bytes += records.column("value").nbytes
        newest = pc.max(records.column("timestamp")).cast(pa.int64()).as_py()
        if newest is not None and newest >= 0:  # Kafka gives -1 ms to a record without a time
            report.newest = max(report.newest or newest, newest)
        report.merge(Report(spans=table_rows.spans(records)))

    def count_quarantined(self, causes: Sequence[Cause], records: pa.Table) -> None:
        """Count the records by cause, and note the first record of each one."""
        add_counts(self.report.quarantine, Counter(cause.value for cause in causes))
        firsts = {cause.value: causes.index(cause) for cause in set(causes)}
        samples = {
            cause: [records.column(name)[row].as_py() for name in ("topic", "partition", "offset")]
            for cause, row in firsts.items()
        }
        self.report.merge(Report(samples=samples))

    def count_checks(self, checked: Checked) -> None:
        """Count the rows that pass and fail each expectation, and those that each action is applied to."""
        self.report.merge(Report(expectations=checked.counts, by_action=checked.by_action))

    def pause(self, name: str, row: FailedRow) -> None:
        """Note the first row of a table that pauses it."""
        self.report.merge(Report(failing={name: list(row)}))

    def count_deferred(self, rows: int, paused: str = "") -> None:
        """Count deferred rows; `paused` is the routing name of their table if it is paused."""
        self.report.merge(Report(deferred=rows, waiting={paused: rows} if paused else {}))

    def count_new_id(self, key: SchemaKey, records: int) -> None:
        if str(key) in self.report.new_ids or len(self.report.new_ids) < MOST_REPORTED:
            add_counts(self.report.new_ids, {str(key): records})

    def count_new_columns(self, paths: Iterable[str]) -> None:
        """Count files with columns that have no field id yet."""
        add_counts(self.report.new_columns, dict.fromkeys(paths, 1))

    def count_new_values(self, routed: Routed, message: str) -> None:
        """Count routing values and message types that have no table yet."""
        new = self.report.new_values
        counts = np.bincount(routed.codes, minlength=len(routed.values)).tolist()
        for value, result, count in zip(routed.values, routed.results, counts, strict=True):
            if result.new and (value in new or len(new) < MOST_REPORTED):
                add_counts(new.setdefault(str(value), {}), {message: count})

    def count_silver(self, routed: Routed, codes: np.ndarray, key: SchemaKey) -> np.ndarray:
        """Count the rows, and return for each its table's number within this task."""
        numbers = np.full(len(routed.values), -1, np.int64)
        for code, count in enumerate(np.bincount(codes, minlength=len(routed.values)).tolist()):
            name = routed.results[code].name
            if count and name is not None:
                add_counts(self.report.silver, {name: count})
                add_counts(self.report.schema_ids.setdefault(name, {}), {str(key): count})
                numbers[code] = self._numbers.setdefault(name, len(self._numbers))
        found: np.ndarray = numbers[codes]
        return found
