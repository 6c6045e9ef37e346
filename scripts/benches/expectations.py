"""Measures what rules cost: microseconds of CPU per record of a worker's whole pass, with rules and without.

A pass reads a topic from a real broker and writes the files of bronze and of all silver tables, in this process.
librdkafka's threads are included; Spark, the driver and commits are not, so the share of the rules is greater than in
the app. All tables share the rules. The sides take turns, every second round in the reverse order, and ratios are taken
round by round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pyarrow as pa

from scripts.benches import result
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.servers import open_servers
from scripts.benches.shape import Shape
from scripts.benches.targets import RULES, RULES_BY_TABLES, Target
from scripts.benches.tasks import WRONG, Source, Task
from scripts.local.errors import LocalError
from scripts.local.options import TOPIC
from spark_app.model.definitions import NO_DEFINITIONS, Definition, Definitions, Expectation

RICH_PART = 5  # divisor of the number of rich records
NUMBERS = {"flat": "_offset BETWEEN 0 AND 1000000000000", "rich": "score BETWEEN 0 AND 1048576"}
TIMES = "event_timestamp BETWEEN _kafka_timestamp - INTERVAL 20000 DAY AND _kafka_timestamp + INTERVAL 1 HOUR"
WITHOUT, THREE, FAILING = "no rules", "three rules", "0.1 % fail"
PLAYERS = {THREE: "gamer_id <> ''", FAILING: "gamer_id >= 'gamer-000100'"}  # there are 100,000 gamers
SIDES = (WITHOUT, THREE, FAILING)


@dataclass(frozen=True)
class Case:
    """One topic.

    Attributes:
        cpu: side -> microseconds per record of each round.
    """

    source: Source
    task: Task
    cpu: Mapping[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})

    @property
    def name(self) -> str:
        return f"{self.source.shape.message}, {self.source.shape.games:,} tables"

    def time_pass(self, side: str) -> float:
        """Microseconds of CPU per record."""
        return self.source.cpu_us(lambda batches: self.place(side, batches))

    def place(self, side: str, batches: Iterator[pa.RecordBatch]) -> int:
        """Write the records to a lake; returns how many are in silver or in quarantine.

        Raises:
            LocalError: not each record met each rule, or records fail that should not.
        """
        rules, records = rules_of(side, self.source.shape.message), self.source.shape.records
        report = self.task.run(batches, definitions=Definitions(Definition(1, rules)) if rules else NO_DEFINITIONS)
        counts = [table[rule.name] for table in report.expectations.values() for rule in rules]
        passed, failed = (sum(pair[n] for pair in counts) for n in (0, 1))
        if passed + failed != len(rules) * records or (failed > 0 and side != FAILING):
            raise LocalError(f"{side}: {passed:,} checks passed and {failed:,} failed of {records:,} records", WRONG)
        return sum(report.silver.values()) + sum(report.quarantine.values())

    def ratios(self, side: str) -> list[float]:
        """The CPU of a side as a multiple of that without rules, of each round."""
        return [own / without for own, without in zip(self.cpu[side], self.cpu[WITHOUT], strict=True)]

    def found(self) -> dict[str, Any]:
        return self.source.shape.found() | {"cpu": dict(self.cpu)}


def rules_of(side: str, message: str) -> tuple[Expectation, ...]:
    """The rules of a side."""
    if side == WITHOUT:
        return ()
    return (
        Expectation("known_player", PLAYERS[side], "quarantine"),
        Expectation("plausible_time", TIMES, "warn"),
        Expectation("plausible_number", NUMBERS[message], "drop"),
    )


def run(options: Options) -> Result:
    """Measure and print."""
    flat, rich = Shape(options.records), Shape(max(1, options.records // RICH_PART), message="rich")
    shapes = flat, rich, Shape(options.records, games=options.tables[0])
    with open_servers() as (folder, kafka, registry):
        sources = [Source.fill(kafka.bootstrap, registry.url, _topic(shape), shape) for shape in shapes]
        cases = [Case(source, Task.of(source, folder)) for source in sources]
        measure(cases, options.rounds)
    rows = [[case.name, *(median(us) for us in case.cpu.values()), *_medians(case)] for case in cases]
    result.show(["us of CPU a record", *SIDES, *(f"{side} / {WITHOUT}" for side in SIDES[1:])], rows)
    return Result(list(figures(cases)), {"cases": [case.found() for case in cases]})


def _topic(shape: Shape) -> str:
    return f"{TOPIC}_{shape.message}_{shape.games}"


def _medians(case: Case) -> list[float]:
    return [median(case.ratios(side)) for side in SIDES[1:]]


def measure(cases: list[Case], rounds: int) -> None:
    """Measure the cases in turns, after a warm-up round."""
    for number in range(1 + rounds):
        for case in cases:
            for side in SIDES if number % 2 else SIDES[::-1]:
                used = case.time_pass(side)
                if number:
                    case.cpu[side].append(used)
        result.log_progress(f"round {number} of {rounds}")


def figures(cases: list[Case]) -> Iterator[Figure]:
    """The figures of the cases: the first has few tables, and the last many."""
    for case in cases:
        yield from (Figure.of(f"us of CPU a record, {case.name}: {side}", us) for side, us in case.cpu.items())
        for side in SIDES[1:]:
            what = f"CPU of the whole pass, {side} / {WITHOUT}, {case.name}"
            yield Figure.of(what, case.ratios(side), _target(side, case.source.shape))
    few, many = cases[0], cases[-1]
    added = (of_many - of_few for of_few, of_many in zip(few.ratios(THREE), many.ratios(THREE), strict=True))
    what = f"CPU of the whole pass, {THREE} / {WITHOUT}, flat: {many.source.shape.games:,} tables minus 7"
    yield Figure.of(what, added, RULES_BY_TABLES)


def _target(side: str, shape: Shape) -> Target | None:
    return RULES.get(shape.message) if side == THREE and shape.games == Shape().games else None
