"""Measures the seconds of a gold run: the cost must depend on new rows, not on existing ones.

A gold run is one run of the app's aggregator over one new unit of silver. It is measured with a history of silver, with
one ten times as long, with many tables that all change, and with many gamers, each case on its own lake that the app's
own code has filled; the cases take turns, so that other work on the machine affects them equally. The unit itself is
not measured. At the end gold must count every record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from scripts.benches import frames, result
from scripts.benches.filed import Filed
from scripts.benches.lakes import count_rows
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.stand import Stand, Workshop, open_workshop
from scripts.benches.targets import HISTORY, TOUCHED, TOUCHED_TABLES
from scripts.benches.usage import cpu_seconds
from scripts.local.errors import LocalError
from spark_app.followers.registry import aggregators
from spark_app.followers.runner import FollowerRunner

WARMING = 2
WRONG = 65
TABLES, GAMERS, LONGER = 7, 1000, 10


@dataclass
class Case:
    """One lake.

    Attributes:
        units: the records of as many units, used in turn; together they contain every gamer.
        count: records of a unit.
        silver, gold: rows.
    """

    name: str
    stand: Stand
    runner: FollowerRunner
    changed: dict[str, int]  # routing name -> rows, of the gold tables that the last run changed
    units: list[Filed]
    count: int
    silver: int = 0
    gold: int = 0
    ingested: int = 0  # units
    touched: int = 0  # tables that the last gold run changed
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def fill(self, records: int) -> None:
        """Write at least so many records to silver, and merge them into gold."""
        while self.silver < records:
            self.ingest()
        self.runner.call()

    def ingest(self) -> set[str]:
        """Ingest one unit; returns the names of the changed tables."""
        report = self.stand.ingest(self.units[self.ingested % len(self.units)], self.count)
        self.ingested += 1
        self.silver += sum(report.silver.values())
        return set(report.silver)

    def interval(self) -> tuple[float, float]:
        """Seconds and CPU seconds of gold after one more unit."""
        due = self.ingest()
        used, began = cpu_seconds(os.getpid()), time.perf_counter()
        self.changed.clear()
        self.runner.call()
        seconds = time.perf_counter() - began
        if set(self.changed) != due:
            raise LocalError(f"{self.name}: {len(due)} tables were changed, but gold has {len(self.changed)}", WRONG)
        self.touched = len(due)
        return seconds, cpu_seconds(os.getpid()) - used

    def verify(self) -> None:
        """Check that gold counts each record once."""
        settings, lake = self.stand.opened.settings, self.stand.opened.lake
        rows = {name: rows for name, rows in count_rows(lake.root).items() if settings.layout.is_gold(name)}
        self.gold = sum(rows.values())
        for name, aggregate in settings.gold.columns.items():
            if aggregate.function == "count" and not aggregate.field:
                counted = sum(_sum(lake.path(table), name) for table in rows)
                if counted != self.silver:
                    raise LocalError(f"{self.name}: gold counts {counted:,} of {self.silver:,} records", WRONG)

    def found(self) -> dict[str, Any]:
        keys = ("name", "touched", "silver", "gold", "seconds", "cpu")
        return {key: getattr(self, key) for key in keys} | {"median": median(self.seconds)}


def run(options: Options) -> Result:
    """Measure and print."""
    with open_workshop() as workshop:
        cases = list(_prepare(workshop, options))
        _measure(cases, options.rounds)
        for case in cases:
            case.verify()
    _show(cases)
    print(f"medians of {options.rounds} intervals with {options.records:,} new records")
    return Result(list(_figures(cases, options)), {"records": options.records, "cases": [c.found() for c in cases]})


def _prepare(workshop: Workshop, options: Options) -> Iterator[Case]:
    """The cases in this order: history, ten times as long a history, tables, gamers."""
    few = _units(workshop, TABLES, GAMERS, options.records)
    for history in (options.history, LONGER * options.history):
        yield _filled(workshop, f"history {history:,}", TABLES, few, options.records, history)
    tables = options.tables[0]
    many = _units(workshop, tables, GAMERS, options.records)
    yield _filled(workshop, f"tables {tables:,}", tables, many, options.records, options.records)
    gamers = _units(workshop, TABLES, options.gamers, options.records)
    yield _filled(workshop, f"gamers {options.gamers:,}", TABLES, gamers, options.records, options.gamers)


def _units(workshop: Workshop, tables: int, gamers: int, records: int) -> list[Filed]:
    """As many units as it takes until every gamer has played."""
    result.log_progress(f"making records of {gamers:,} gamers for {tables:,} tables ...")
    events = frames.play(tables, gamers)
    return [workshop.records(events, records) for _ in range(max(1, -(-gamers // records)))]


def _filled(workshop: Workshop, name: str, tables: int, units: list[Filed], count: int, history: int) -> Case:
    result.log_progress(f"{name}: filling silver ...")
    stand = workshop.stand(tables)
    changed: dict[str, int] = {}
    [gold] = aggregators(workshop.spark, stand.opened, nullcontext(), lambda kind, rows, failed: changed.update(rows))
    runner = FollowerRunner(gold, stand.opened.lake, stand.opened.units.manifests)
    case = Case(name, stand, runner, changed, units, count)
    case.fill(history)
    return case


def _measure(cases: list[Case], rounds: int) -> None:
    for number in range(WARMING + rounds):
        for case in cases:
            seconds, cpu = case.interval()
            if number >= WARMING:
                case.seconds.append(seconds)
                case.cpu.append(cpu)
        result.log_progress(f"interval {number + 1} of {WARMING + rounds}")


def _show(cases: list[Case]) -> None:
    headers = ["case", "tables touched", "silver rows", "gold rows", "s/interval", "CPU s"]
    result.show(headers, [[c.name, c.touched, c.silver, c.gold, median(c.seconds), median(c.cpu)] for c in cases])


def _figures(cases: list[Case], options: Options) -> Iterator[Figure]:
    """CPU time beside wall-clock time, because other work on the machine hardly changes it. Ratios are taken run by
    run."""
    history, longer, tables, gamers = cases
    what, number = "of a gold interval", options.tables[0]
    touched = f"{what}, {number:,} tables touched"
    yield Figure.of(f"seconds {what}, {options.history:,} records of history", history.seconds)
    yield Figure.of(HISTORY.what, map(truediv, longer.seconds, history.seconds), HISTORY)
    yield Figure.of(f"CPU {HISTORY.what}", map(truediv, longer.cpu, history.cpu))
    yield Figure.of(f"seconds {touched}", tables.seconds, TOUCHED if number >= TOUCHED_TABLES else None)
    yield Figure.of(f"CPU seconds {touched}", tables.cpu)
    yield Figure.of(f"seconds {what}, {options.gamers:,} gamers", gamers.seconds)


def _sum(table: Path, column: str) -> int:
    return int(pc.sum(DeltaTable(str(table)).to_pyarrow_table(columns=[column])[column]).as_py() or 0)
