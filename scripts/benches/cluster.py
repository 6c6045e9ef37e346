"""Measures the CPU of a record whose executors are processes of a Spark cluster, compared with the app alone.

The cluster is a master and workers of one core each on this machine; the app alone has as many local cores. Each side
drains two topics, and the cost of a record is the slope between them, so that starts do not count. CPU is that of the
app with its JVM, of the master, and of the workers with their executors, by the kernel's accounting; the app's own
process, which plans and commits, is left out of the ratio with a target. Small files are not merged: on a cluster its
workers do that, on one machine the app itself. How throughput grows over machines cannot be measured on one.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scripts.benches import result, topics, usage
from scripts.benches.bases import App
from scripts.benches.drain import Run, Topic, drain
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.servers import open_servers
from scripts.benches.sides import APP, Side
from scripts.benches.targets import CLUSTER
from scripts.benches.usage import Meter
from scripts.local.artifacts import ROOT
from scripts.local.spark_cluster import SparkMaster, SparkWorker
from spark_app.settings.models import Batch

SHARE = 4  # the larger topic has so many times the records of the smaller one
ENDS_S = 60.0  # within this time the executors of an app that has ended end
LOOK_S = 0.1
ATTEMPTS = 4  # of a task, as in the app's default
NO_MERGES = {"PROTOLAKE_LAKE__COMPACT_FILES": "1000000"}


class MeasuredMaster(SparkMaster):
    """A master whose CPU time is measured."""

    meter: Meter

    def command(self) -> list[str]:
        return self.meter.command(super().command())


class MeasuredWorker(SparkWorker):
    """A worker whose CPU time is measured, with that of its executors."""

    meter: Meter

    def command(self) -> list[str]:
        return self.meter.command(super().command())


HEADERS = ["side", "small s", "CPU s", "large s", "CPU s", "us/record", "without the app's process"]


@dataclass(frozen=True)
class Cluster:
    master: MeasuredMaster
    workers: list[MeasuredWorker]

    @property
    def servers(self) -> list[MeasuredMaster | MeasuredWorker]:
        return [self.master, *self.workers]

    def cpu_seconds(self) -> float:
        """So far, once no executor is left.

        Raises:
            TimeoutError: one does not end.
        """
        deadline = time.monotonic() + ENDS_S
        while any(worker.executors() for worker in self.workers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"an executor did not end within {ENDS_S:.0f} s")
            time.sleep(LOOK_S)
        return sum(server.meter.so_far(server.pid or 0) for server in self.servers)

    def settings(self, cores: int) -> dict[str, str]:
        options = {"spark.cores.max": str(cores), "spark.executor.cores": "1"}
        return self.master.settings() | {"PROTOLAKE_SPARK__OPTIONS": json.dumps(options)}


@dataclass(frozen=True)
class Used:
    """CPU seconds of one run: all, and those of the app's own process."""

    run: Run
    seconds: float

    @property
    def without_driver(self) -> float:
        return self.seconds - self.run.driver_seconds


@dataclass(frozen=True)
class Turn:
    """A small and a large drain of one side."""

    small: Used
    large: Used

    def cost(self, *, driver: bool) -> float:
        """Microseconds of CPU per further record, with or without the app's own process."""
        more = self.large.run.records - self.small.run.records
        if driver:
            return (self.large.seconds - self.small.seconds) / more * 1e6
        return (self.large.without_driver - self.small.without_driver) / more * 1e6

    def row(self) -> list[object]:
        """A row of the table, in the order of its headers."""
        used = [value for one in (self.small, self.large) for value in (one.run.seconds, one.seconds)]
        return [*used, self.cost(driver=True), self.cost(driver=False)]

    def found(self) -> dict[str, Any]:
        drains = {"small": self.small, "large": self.large}
        return {
            name: {"records": one.run.records, "seconds": one.run.seconds, "cpu_seconds": one.seconds}
            | {"driver_seconds": one.run.driver_seconds}
            for name, one in drains.items()
        }


def run(options: Options) -> Result:
    """Fill two topics, drain them in turns, and print."""
    shape = replace(options.shape, records=options.records, partitions=options.partitions)
    with open_servers() as (folder, kafka, registry), _cluster(folder, max(options.workers)) as cluster:

        def fill(name: str, records: int) -> Topic:
            filled = replace(shape, records=records)
            result.log_progress(f"filling a topic with {filled.words()} ...")
            contents = topics.fill(kafka.bootstrap, registry.url, name, filled)
            return Topic(name, kafka.bootstrap, registry.url, filled, contents)

        small, large = fill("small", shape.records // SHARE), fill("large", shape.records)

        def measure(topic: Topic, cores: int, on_cluster: bool) -> Used:
            local = {"PROTOLAKE_SPARK__MASTER": f"local[{cores},{ATTEMPTS}]"}
            before = cluster.cpu_seconds()
            more = cluster.settings(cores) if on_cluster else local
            done = drain(folder / "lake", topic, Side(APP), Batch().max_records, App(ROOT), more | NO_MERGES)
            used = cluster.cpu_seconds() - before if on_cluster else 0.0
            return Used(done, done.cpu_seconds + used)

        sides = [(cores, on_cluster) for cores in options.workers for on_cluster in (False, True)]
        for side in sides:
            measure(small, *side)  # for class archives and the page cache
        turns: dict[tuple[int, bool], list[Turn]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side in sides:
                turns[side].append(Turn(measure(small, *side), measure(large, *side)))
        with usage.meter() as meter:
            source = meter.source
    result.show(HEADERS, [[_name(*side), *turn.row()] for side in sides for turn in turns[side]])
    found = {_name(*side): [turn.found() for turn in turns[side]] for side in sides}
    return Result(list(_figures(options, turns)), {"topic": shape.found(), "cpu_by": source, "sides": found})


def _name(cores: int, on_cluster: bool) -> str:
    return f"{'cluster' if on_cluster else 'local'}, {_cores(cores)}"


def _cores(number: int) -> str:
    return f"{number} core{'' if number == 1 else 's'}"


def _figures(options: Options, turns: dict[tuple[int, bool], list[Turn]]) -> Iterator[Figure]:
    for cores in options.workers:
        for on_cluster in (False, True):
            costs = [turn.cost(driver=True) for turn in turns[cores, on_cluster]]
            yield Figure.of(f"us of CPU a record, {_name(cores, on_cluster)}", costs)
        for driver, words in ((True, "CPU per record"), (False, "CPU per record without the app's own process")):
            pairs = zip(turns[cores, True], turns[cores, False], strict=True)
            ratios = [one.cost(driver=driver) / other.cost(driver=driver) for one, other in pairs]
            yield Figure.of(f"{words}, cluster / local, {_cores(cores)}", ratios, None if driver else CLUSTER)


@contextlib.contextmanager
def _cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        master = MeasuredMaster(folder / "cluster")
        cluster = Cluster(master, [MeasuredWorker(master, number) for number in range(1, workers + 1)])
        for server in cluster.servers:
            server.meter = stack.enter_context(usage.meter())
            stack.enter_context(server)
        yield cluster
