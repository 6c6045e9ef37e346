"""Measures bronze to silver: decoding and demultiplexing without Kafka and gold, compared with generated classes in a
row UDF.

All sides read the same rows of the same bronze table: the app in one job with its manifest and commits, the rival with
a row UDF with generated classes and a filtered append for each game, with Spark's own settings and with the app's. They
run on one JVM, each on its own lake; at the end each lake must have every record. They take turns, so that a temporary
slowdown of the machine affects all of them, after a warm-up round. A turn has several rounds if they are short, and its
first round warms up, too, because Spark ends Python workers that have no task for a minute.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame

from scripts.benches import frames, result, topics
from scripts.benches.filed import Filed
from scripts.benches.lakes import count_rows, count_silver
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.rivals import given, rows, spark
from scripts.benches.servers import changed_environment
from scripts.benches.shape import Shape, game_names
from scripts.benches.stand import Workshop, open_workshop
from scripts.benches.targets import DEMUX
from scripts.benches.usage import cpu_seconds
from scripts.local.errors import LocalError
from spark_app.lake.lake import Lake
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import FROM_BRONZE, read_bronze
from spark_app.units.driver.unit import UnitOptions

WRONG = 65
FILES = 4  # of bronze, one task each
TURN_S, TURN_ROUNDS = 6.0, 10  # limits of a turn


@dataclass
class Side:
    """One way, into its own lake.

    Attributes:
        process: processes all of bronze, in the round with this number.
        rounds: the number of rounds so far.
        seconds, cpu: of each measured round.
    """

    name: str
    lake: Path
    shape: Shape
    process: Callable[[int], None]
    rounds: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    turns: list[tuple[float, float]] = field(default_factory=list)  # medians of each
    silver: int = 0

    @property
    def rate(self) -> float:
        return self.shape.records / median(self.seconds)

    def measure(self) -> None:
        """Run one turn."""
        os.sync()  # otherwise a side's fsync would wait for data of the other
        rounds = [self.time_round()]
        while len(rounds) < TURN_ROUNDS and sum(seconds for seconds, _ in rounds) < TURN_S:
            rounds.append(self.time_round())
        counted = rounds[1:] or rounds
        self.turns.append((median(s for s, _ in counted), median(c for _, c in counted)))
        for seconds, cpu in counted:
            self.seconds.append(seconds)
            self.cpu.append(cpu)

    def time_round(self) -> tuple[float, float]:
        """(seconds, CPU seconds)."""
        used, began = cpu_seconds(os.getpid()), time.perf_counter()
        self.process(self.rounds)
        self.rounds += 1
        return time.perf_counter() - began, cpu_seconds(os.getpid()) - used

    def verify(self) -> None:
        self.silver = count_silver(count_rows(self.lake))
        if self.silver != self.shape.records * self.rounds:
            raise LocalError(
                f"{self.name}: {self.silver:,} rows in silver after {self.rounds} x {self.shape.words()}", WRONG
            )

    def row(self) -> list[object]:
        return [self.name, self.shape.games, median(self.seconds), median(self.cpu), self.rate]

    def found(self) -> dict[str, object]:
        kept = {"side": self.name, "games": self.shape.games, "silver": self.silver, "rounds": self.rounds}
        return kept | {"seconds": self.seconds, "cpu": self.cpu}


def run(options: Options) -> Result:
    """Measure and print."""
    shapes = [Shape(options.records, games=tables, partitions=FILES) for tables in options.tables]
    with open_workshop() as workshop, changed_environment(given.variables(shapes[0])):
        _generate_classes(workshop)
        compared = [_compare(workshop, shape, options.rounds) for shape in shapes]
    result.show(["side", "games", "seconds", "CPU s", "records/s"], [side.row() for one in compared for side in one])
    print(f"medians of {options.rounds} turns with {options.records:,} records")
    return Result(list(_figures(compared)), {"sides": [side.found() for one in compared for side in one]})


def _generate_classes(workshop: Workshop) -> None:
    module = rows.generate(workshop.folder)
    sys.path.append(str(workshop.folder))
    workshop.spark.sparkContext.addPyFile(str(module))


def _compare(workshop: Workshop, shape: Shape, rounds: int) -> tuple[Side, ...]:
    """The app, then its rivals."""
    result.log_progress(f"{shape.games} games: filling bronze with {shape.records:,} records ...")
    landed = _fill_bronze(workshop, shape)
    files = landed.units.committer.tables.files(workshop.settings.tables.bronze)
    sessions = {"row UDF": spark.untuned(workshop.spark), "tuned row UDF": workshop.spark}
    rivals = (
        _rival(workshop, name, shape, own.read.parquet(*map(landed.lake.storage.uri, files)))
        for name, own in sessions.items()
    )
    sides = (_app(workshop, shape, landed), *rivals)
    for side in sides:
        result.log_progress(f"{shape.games} games: {side.name}, warm-up")
        side.time_round()
    for number in range(rounds):
        for side in sides:
            result.log_progress(f"{shape.games} games: {side.name}, turn {number + 1} of {rounds}")
            side.measure()
    for side in sides:
        side.verify()
    return sides


def _fill_bronze(workshop: Workshop, shape: Shape) -> OpenLake:
    """A lake with records that the official serializer framed and the app wrote to bronze only."""
    folder, topic = Path(tempfile.mkdtemp(dir=workshop.folder)), workshop.settings.kafka.topic
    made = topics.maker(workshop.settings.registry.url, topic, shape).records()
    share = -(-shape.records // FILES)
    left = islice(((key, value) for key, value, _ in made), shape.records)
    paths = [frames.write_partition(folder / f"{n}.parquet", topic, n, list(islice(left, share))) for n in range(FILES)]
    landing = workshop.stand(1)
    records = Filed(workshop.spark, tuple(paths)).records(FILES)
    report = landing.units.run(records, 1, UnitOptions({}, land_only=True))
    landing.opened.commit(report, "ingest", landing.source())
    return landing.opened


def _app(workshop: Workshop, shape: Shape, landed: OpenLake) -> Side:
    stand = workshop.stand(shape.games)
    opened = stand.opened

    def process(number: int) -> None:
        records = read_bronze(workshop.spark, landed, tasks=stand.units.tasks(shape.records))
        report = stand.units.run(records, opened.units.manifests.last + 1, FROM_BRONZE)
        opened.commit(report, "rebuild", {"request": "bench", "records": report.bronze, "progress": {}})

    return Side("app", opened.lake.root, shape, process)


def _rival(workshop: Workshop, name: str, shape: Shape, bronze: DataFrame) -> Side:
    lake = Lake(tempfile.mkdtemp(prefix="lake-", dir=workshop.folder))
    games = game_names(shape.games)

    def process(number: int) -> None:
        decoded = rows.decode(bronze).persist()
        spark.append(spark.split(decoded, games), lake, 1, number)
        decoded.unpersist()

    return Side(name, lake.root, shape, process)


def _figures(compared: list[tuple[Side, ...]]) -> Iterator[Figure]:
    for app, *rivals in compared:
        games, promised = f"{app.shape.games:,} games", DEMUX.get(app.shape.games)
        rates = [app.shape.records / seconds for seconds, _ in app.turns]
        yield Figure.of(f"records/s from bronze, app, {games}", rates)
        for rival in rivals:
            what, target = f"app / {rival.name}, {games}", promised if rival is rivals[0] else None
            turns = list(zip(app.turns, rival.turns, strict=True))
            yield Figure.of(f"records/s from bronze, {what}", (other[0] / own[0] for own, other in turns), target)
            yield Figure.of(f"records per CPU second, {what}", (other[1] / own[1] for own, other in turns))
