"""Followers of a lake, as the app runs them but in the thread of the test."""

from __future__ import annotations

import threading
from typing import Any

from pyspark.sql import SparkSession

from spark_app.followers.events.events_table import EventsTable
from spark_app.followers.gold.aggregate import Aggregator
from spark_app.followers.gold.compute import AggregateComputer
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.runner import FollowerRunner, Followers
from spark_app.units.driver.open_lake import OpenLake


def follow_events(opened: OpenLake, **options: Any) -> FollowerRunner:
    """The table of events, begun."""
    events = EventsTable(opened.lake, opened.settings, opened.units.committer.synced)
    followers = Followers([events], opened.lake, opened.units.manifests, threading.Event(), 1 << 30, **options)
    followers["events"].begin()
    opened.units.on_commit = followers.offer
    return followers["events"]


def computer_of(spark: SparkSession, opened: OpenLake) -> AggregateComputer:
    """That of the gold tables of [gold]."""
    return AggregateComputer(spark, opened.lake.storage, opened.settings.layout, GoldSpec.all_of(opened.settings)[0])


class Gold(Aggregator):
    """Gold of a kind with its cursor; without a spec that of [gold]."""

    def __init__(self, calculator: Any, opened: OpenLake, unit_lock: Any, spec: GoldSpec | None = None):
        spec = spec or GoldSpec.all_of(opened.settings)[0]
        super().__init__(spec, calculator, opened, unit_lock, lambda kind, rows, failed: self._rows.update(rows))
        self._rows: dict[str, int] = {}
        self.runner = FollowerRunner(self, opened.lake, opened.units.manifests)

    def run(self) -> dict[str, int]:
        """Follow the units; returns routing name -> rows of each changed table."""
        self._rows.clear()
        self.runner.call()
        return dict(self._rows)

    def close(self) -> None:
        self.runner.flush()

    def cursor(self) -> int:
        return self.runner.cursor
