"""The table of events, read by Spark: the queries of docs/events.md, filters, and crashes between two units."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_app.app.shell import register
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from spark_app.units.worker.tally import TIMED_STEPS
from tests.spark.parts import Killed, Parts, events
from tests.spark.test_spark_replay import ONLY_RUMMY, replay
from tests.support.following import follow_events

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def test_spark_reads_each_unit_once_after_a_crash(
    new_parts: Callable[..., Parts], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = new_parts()
    parts.learn(1)
    table = follow_events(parts.opened)
    parts.take(events(1, [("uno", "a"), ("poker", "b")]))
    table.call()
    parts.kill_at_commit("silver_uno_events", monkeypatch)
    with pytest.raises(Killed):
        parts.take(events(1, [("uno", "a")]))
    table.call()  # the unit is committed, but not applied
    parts = new_parts()
    table = follow_events(parts.opened)
    table.call()
    parts.take([*events(1, [("uno", "a")]), b"no frame"])
    table.call()
    spark = parts.spark
    assert "pipeline_events" in register(spark, parts.lake, parts.settings)
    twice = "select unit, count(*) from pipeline_events where kind = 'unit' group by 1 having count(*) <> 1"
    assert spark.sql(twice).collect() == []
    filtered = "select unit from pipeline_events where kind = 'unit' and happened_at > now() - interval 1 hour"
    found = spark.sql(f"{filtered} and unit >= 2 order by 1").collect()
    assert [row.unit for row in found] == [2, 3]
    queries = PAGE.read_text().partition("Spark SQL")[2].partition("DuckDB")[0].split("\n\n")[1:-1]
    assert len(queries) == 4
    hours, rules, audit, steps = [spark.sql(query).collect() for query in queries]
    assert sum(row.records for row in hours) == 5
    assert (rules, audit) == ([], [])
    assert {(row.unit, row.step) for row in steps} == {
        (n, step) for n in (1, 2, 3) for step in (*TIMED_STEPS, "resolve")
    }


def test_units_of_replay_and_rebuild_tell_where_their_seconds_went(new_parts: Callable[..., Parts]) -> None:
    parts = new_parts(tables=ONLY_RUMMY)
    parts.learn(1)
    parts.take(events(1, [("rummy", "a"), ("uno", "b")]))
    replay(new_parts(), causes=["route_refused"])
    shutil.rmtree(parts.lake.path("silver_rummy_events"))
    parts = new_parts()
    requests.submit(parts.lake, Request("rebuild", {"names": []}))
    while parts.service.step():
        pass
    units = [parts.manifests.read(number) for number in parts.manifests.numbers()]
    assert [unit.kind for unit in units] == ["ingest", "replay", "rebuild"]
    for unit in units:
        steps = unit.counts["steps"]
        assert steps.keys() == {*TIMED_STEPS, "resolve"}
        assert 0 < steps["decode"] <= sum(steps.values())
        assert min(steps.values()) >= 0
        assert sum(steps.values()) <= unit.counts["seconds"] + 0.0005 * (len(steps) + 1)  # of one task; rounded
