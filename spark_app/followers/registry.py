"""The followers of the app."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_app.followers.events.events_table import EventsTable
from spark_app.followers.follower import Follower
from spark_app.followers.gold.aggregate import Aggregator, GoldDone
from spark_app.followers.gold.compute import AggregateComputer
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.sql_tables.follower import Done, SqlFollower
from spark_app.followers.gold.sql_tables.statements import SqlFiles, read_files
from spark_app.followers.sinks import state as sink_state
from spark_app.followers.sinks.tables import SinkTables
from spark_app.lake import cursors
from spark_app.model.log import log
from spark_app.model.table_names import gold_kind_of
from spark_app.units.driver.open_lake import OpenLake


@dataclass(frozen=True)
class FollowerContext:
    """The objects that a follower may need.

    Attributes:
        unit_lock: the lock under which units are built.
        gold_done, gold_rests: see `Aggregator`.
        sql_done: see `SqlFollower`.
        refuse: called with the place of a statement that makes no table, and why.
        stop: is set when the app stops.
    """

    spark: SparkSession
    opened: OpenLake
    unit_lock: AbstractContextManager[object]
    gold_done: GoldDone
    gold_rests: Callable[[], bool]
    sql_done: Done
    refuse: Callable[[str, str], None]
    stop: threading.Event


def aggregators(
    spark: SparkSession,
    opened: OpenLake,
    unit_lock: AbstractContextManager[object],
    done: GoldDone = lambda kind, rows, failed: None,
    rests: Callable[[], bool] = lambda: False,
) -> list[Aggregator]:
    """One for each kind of gold tables. The state of kinds that the settings no longer have is removed: their tables
    stay as they are, and begin anew if the settings have them again."""
    specs, lake = GoldSpec.all_of(opened.settings), opened.lake
    kinds = {None, *(spec.kind for spec in specs)}
    for name in cursors.names(lake):
        if (kind := gold_kind_of(name)) not in kinds:
            assert kind is not None
            lake.storage.delete(lake.gold_state(kind), cursors.key_of(lake, name))
            log.warning("gold tables are no longer kept up: the settings do not have them", tables=kind)
    computers = (AggregateComputer(spark, lake.storage, opened.settings.layout, spec) for spec in specs)
    return [
        Aggregator(spec, computer, opened, unit_lock, done, rests)
        for spec, computer in zip(specs, computers, strict=True)
    ]


def sql_followers(given: FollowerContext) -> list[SqlFollower]:
    """One for each statement of the SQL files, after those whose tables it reads. The cursors of statements that are no
    longer there are removed; their tables stay."""
    opened, lake = given.opened, given.opened.lake
    files = read_files(given.spark, opened.settings) if opened.settings.tables.sql else SqlFiles()
    for one in files.refused:
        given.refuse(one.where, one.refused)
    kept = {one.follower for one in files.tables}
    lake.storage.delete(
        *(cursors.key_of(lake, name) for name in cursors.names(lake) if name.startswith("sql.") and name not in kept)
    )
    more = given.spark, opened, given.unit_lock, given.stop, given.sql_done
    return [SqlFollower(one, files, *more) for one in files.tables]


def sink_followers(given: FollowerContext) -> list[SinkTables]:
    """The one that moves their ledgers. No manifest is kept for a sink that the settings no longer have."""
    opened, lake = given.opened, given.opened.lake
    for name in cursors.names(lake):
        if name.startswith(cursors.SINK) and name.removeprefix(cursors.SINK) not in opened.settings.all_sinks:
            sink_state.leave(lake, name.removeprefix(cursors.SINK))
            lake.storage.delete(cursors.key_of(lake, name))
            log.warning("the settings do not have a sink any more", sink=name.removeprefix(cursors.SINK))
    return [SinkTables(lake, opened.settings, opened.units.committer.synced)]


FOLLOWERS: tuple[Callable[[FollowerContext], Iterable[Follower]], ...] = (
    lambda given: aggregators(given.spark, given.opened, given.unit_lock, given.gold_done, given.gold_rests),
    sql_followers,
    lambda given: [EventsTable(given.opened.lake, given.opened.settings, given.opened.units.committer.synced)],
    sink_followers,
)
