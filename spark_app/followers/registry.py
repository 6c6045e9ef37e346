"""The followers of the app."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_app.followers.events.events_table import EventsTable
from spark_app.followers.follower import Follower
from spark_app.followers.gold.aggregate import Aggregator
from spark_app.followers.gold.compute import AggregateComputer
from spark_app.units.driver.open_lake import OpenLake


@dataclass(frozen=True)
class FollowerContext:
    """The objects that a follower may need.

    Attributes:
        unit_lock: the lock under which units are built.
        gold_done, gold_rests: see `Aggregator`.
    """

    spark: SparkSession
    opened: OpenLake
    unit_lock: AbstractContextManager[object]
    gold_done: Callable[[dict[str, int], dict[str, str]], None]
    gold_rests: Callable[[], bool]


FOLLOWERS: tuple[Callable[[FollowerContext], Follower], ...] = (
    lambda given: Aggregator(
        AggregateComputer(given.spark, given.opened.lake.storage, given.opened.settings),
        given.opened,
        given.unit_lock,
        given.gold_done,
        given.gold_rests,
    ),
    lambda given: EventsTable(given.opened.lake, given.opened.settings, given.opened.units.committer.synced),
)
