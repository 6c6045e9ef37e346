"""Executes a request inside the command if no app runs. Kafka is not contacted."""

from __future__ import annotations

import threading
from typing import Any

from spark_app.followers.events.event_log import EventLog
from spark_app.followers.gold.aggregate import Aggregator
from spark_app.followers.gold.compute import AggregateComputer
from spark_app.followers.runner import FollowerRunner
from spark_app.lake.files.disk import shortage
from spark_app.lake.lake import Lake
from spark_app.model.errors import NoSpaceError
from spark_app.recovery import requests
from spark_app.recovery.executor import RequestExecutor
from spark_app.recovery.requests import Request
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitRunner
from spark_app.units.spark import jvm, session


def execute(settings: Settings, lake: Lake, request: Request) -> dict[str, Any]:
    """Execute all pending requests and update gold; returns the result of this request.

    The caller holds the lake's lock and ends the Spark session.

    Raises:
        NoSpaceError: the disk has too little free space; the request stays.
    """
    opened = OpenLake.of(lake, settings)
    spark = session.start(settings, "protolake-recovery", quiet=True)
    jvm.lock_lake_in_jvm(spark, lake)
    units = UnitRunner(spark, opened)
    renewed = [name for one in requests.pending(lake) if one.kind == "renew" for name in one.arguments["names"]]
    with opened.renewing(renewed):  # their columns need not fit the old ones
        units.check_rules()
    unit_lock = threading.Lock()
    gold = Aggregator(AggregateComputer(spark, lake.storage, settings), opened, unit_lock)
    runner = FollowerRunner(gold, lake, opened.units.manifests)
    runner.begin()
    service = RequestExecutor(spark, opened, units, gold, unit_lock, tell=EventLog(lake, "recovery").add)
    while service.step():
        short = shortage(lake.root, settings.lake.min_free_bytes)
        if short:
            raise NoSpaceError(f"{short}. The request stays: run the command again, or start the app")
    runner.call()
    opened.units.committer.close()
    runner.flush()
    return requests.take_result(lake, request) or {}
