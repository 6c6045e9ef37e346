"""Measures the cost of deferred records: a check, a unit of ready records, and the catch-up after `--land-only`.

The cost of a check and a unit must depend on the ready records, not on the waiting ones. So they are measured in one
lake while more and more records wait for a schema that the registry does not have; bronze has only the records that
become ready. The catch-up decodes records that were written to bronze only; its second half must not take longer than
its first. The app's own code makes and commits all units. At the end silver must have exactly the records that were
ready.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median

import numpy as np
import pyarrow as pa

from scripts.benches import frames, result
from scripts.benches.filed import Filed
from scripts.benches.lakes import count_rows, count_silver
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.stand import ORIGIN, Stand, Workshop, open_workshop
from scripts.benches.targets import CATCH_UP, FEW_WAITING, MANY_WAITING, WAITING_MEMORY, WAITING_UNIT
from scripts.benches.usage import cpu_seconds
from scripts.local.errors import LocalError
from spark_app.model.reports import Report
from spark_app.units.driver.deferred import DeferredDecoder
from spark_app.units.worker.table_rows import deferred_rows

WRONG = 65
TABLES = 7
NOBODYS = 2_000_000_000  # a schema id that is not registered
FRESH = 16  # records that begin to wait before a check, so that it has new ones
AT_ONCE = 200_000  # waiting records per file
LANDED = replace(ORIGIN, land_only=True)


@dataclass(frozen=True)
class Cost:
    """The cost of a step: wall-clock and CPU seconds, and the records that it placed."""

    seconds: float
    cpu: float
    records: int


@dataclass(frozen=True)
class Level:
    """Medians of the wall-clock time and means of the CPU time while so many records wait.

    Attributes:
        memory: the driver's peak memory, in MiB.
    """

    waiting: int
    look: float
    look_cpu: float
    unit: float
    unit_cpu: float
    memory: float


def run(options: Options) -> Result:
    """Measure and print."""
    with open_workshop() as workshop:
        levels = _measure_levels(workshop, options)
        steps = _catch_up(workshop, options)
    headers = ["waiting", "ms/look", "CPU ms", "s/unit", "CPU s", "driver MiB"]
    rows = [[n.waiting, 1000 * n.look, 1000 * n.look_cpu, n.unit, n.unit_cpu, n.memory] for n in levels]
    result.show(headers, rows)
    print(
        f"medians of {options.rounds} looks and units with {options.ready:,} records that are ready, means of CPU time"
    )
    details = {"levels": [asdict(level) for level in levels], "steps": [asdict(step) for step in steps]}
    return Result([*_figures_of_levels(levels), *_figures_of_catch_up(steps, options.records)], details)


def _measure_levels(workshop: Workshop, options: Options) -> list[Level]:
    stand, events = workshop.stand(TABLES), frames.play(TABLES)
    records = workshop.records(events, options.ready)
    stand.opened.resolver.resolve_new([NOBODYS])
    deferred = DeferredDecoder(workshop.spark, stand.opened, stand.units)
    levels, there, units = [], 0, 0

    def decode_ready() -> Report | None:
        nonlocal units
        units += 1
        _land(stand, records, options.ready, units)
        cost, report = _time(deferred.step)
        costs.append(cost)
        return report

    for waiting in sorted(options.waiting):
        result.log_progress(f"deferring {waiting:,} records ...")
        there = _let_wait(stand, there, waiting)
        deferred.step()  # the first step summarises the files
        costs: list[Cost] = []
        _forget_peak()
        looks = []
        for _ in range(options.rounds):
            there = _let_wait(stand, there, there + FRESH)
            looks.append(_time(lambda: deferred.step() if not deferred.merge() else None)[0])
        for _ in range(options.rounds + 1):
            decode_ready()
        if {cost.records for cost in costs} != {options.ready}:
            raise LocalError(f"units of {[cost.records for cost in costs]} instead of {options.ready} records", WRONG)
        levels.append(Level(waiting, *_typical(looks), *_typical(costs[1:]), _peak()))
    _verify(stand, units * options.ready, there)
    return levels


def _let_wait(stand: Stand, there: int, waiting: int) -> int:
    """Commit units of records that wait for the unregistered schema, until so many wait. They are not in bronze."""
    opened = stand.opened
    table = opened.settings.layout.deferred
    while there < waiting:
        count = min(AT_ONCE, waiting - there)
        topic = pa.repeat(pa.scalar("waiting"), count)
        rows = pa.table(
            {
                "topic": topic,
                "topic_id": pa.nulls(count, pa.string()),
                "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
                "offset": np.arange(there, there + count),
                "schema_id": pa.repeat(pa.scalar(NOBODYS, pa.int64()), count),
            }
        )
        entry = opened.units.write(table, deferred_rows(rows, NOBODYS, time.time_ns() // 1000))
        source = {"request": "bench", "records": count, "progress": {}}
        opened.commit(Report(files={table: [entry]}, bronze=count, deferred=count), "rebuild", source)
        there += count
    return there


def _catch_up(workshop: Workshop, options: Options) -> list[Cost]:
    """The steps until no record waits, after a warm-up step."""
    stand = workshop.stand(TABLES)
    count = min(options.records, stand.opened.settings.batch.max_records)
    records = workshop.records(frames.play(TABLES), count)
    landed, steps = 0, []
    result.log_progress(f"writing {options.records:,} records to bronze only ...")
    while landed < options.records:
        _land(stand, records, count, landed // count)
        landed += count
    deferred = DeferredDecoder(workshop.spark, stand.opened, stand.units)
    _forget_peak()
    while True:
        cost, report = _time(deferred.step)
        if report is None:
            break
        steps.append(cost)
        result.log_progress(f"{sum(step.records for step in steps):,} of {landed:,} decoded")
    _verify(stand, landed, 0)
    return steps[1:] if len(steps) > 2 else steps


def _land(stand: Stand, records: Filed, count: int, number: int) -> None:
    """A unit that writes the records to bronze only, each time at other offsets."""
    spread = records.records(stand.units.tasks(count), moved=number * count)
    report = stand.units.run(spread, stand.opened.units.manifests.last + 1, LANDED)
    stand.opened.commit(report, "ingest", stand.source())


def _time(step: Callable[[], Report | None]) -> tuple[Cost, Report | None]:
    used, began = cpu_seconds(os.getpid()), time.perf_counter()
    report = step()
    seconds = time.perf_counter() - began
    return Cost(seconds, cpu_seconds(os.getpid()) - used, report.bronze if report else 0), report


def _verify(stand: Stand, silver: int, deferred: int) -> None:
    """Check that each ready record is in silver, and that all others still wait."""
    rows = count_rows(stand.opened.lake.root)
    found = count_silver(rows), rows.get(stand.opened.settings.layout.deferred, 0)
    if found != (silver, deferred):
        raise LocalError(f"{found[0]:,} in silver, {found[1]:,} deferred instead of {silver:,} and {deferred:,}", WRONG)


def _typical(costs: Sequence[Cost]) -> tuple[float, float]:
    """Wall-clock and CPU seconds. The kernel counts CPU time in hundredths of a second, so a single value is
    imprecise."""
    return median(cost.seconds for cost in costs), mean(cost.cpu for cost in costs)


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """The peak memory of this process, the driver, since `_forget_peak`, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _figures_of_levels(levels: Sequence[Level]) -> Iterator[Figure]:
    fewest, most = levels[0], levels[-1]
    promised = fewest.waiting >= FEW_WAITING and most.waiting >= MANY_WAITING
    what = f"{most.waiting:,} records waiting"
    yield Figure(f"milliseconds of a look, {what}", 1000 * most.look)
    yield Figure(f"seconds of a unit of what is ready, {what}", most.unit)
    title = WAITING_UNIT.what if promised else f"CPU seconds of a unit of what is ready, {what} / {fewest.waiting:,}"
    yield Figure(title, most.unit_cpu / fewest.unit_cpu, WAITING_UNIT if promised else None)
    yield Figure(f"MiB of the driver, {what}", most.memory, WAITING_MEMORY if promised else None)


def _figures_of_catch_up(steps: Sequence[Cost], records: int) -> Iterator[Figure]:
    half = max(1, len(steps) // 2)
    first, second = (
        sum(step.cpu for step in part) / max(1, sum(step.records for step in part))
        for part in (steps[:half], steps[-half:])
    )
    rate = sum(step.records for step in steps) / sum(step.seconds for step in steps)
    yield Figure(f"records/s of the catch-up after --land-only, {records:,} records", rate)
    yield Figure(CATCH_UP.what, second / first, CATCH_UP if len(steps) > 1 else None)
