"""Where the seconds of a unit go: the steps of its tasks, which its manifest and its event have."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_app.followers.events.unit_events import unit_events
from spark_app.lake.delta.manifest import Manifest, counts_of
from spark_app.model.reports import Report
from spark_app.model.table_names import TableNames
from spark_app.units.driver.unit import UnitOptions
from spark_app.units.worker import tally
from spark_app.units.worker.tally import TIMED_STEPS, Stopwatch
from tests.support.frames import batch_of
from tests.support.lakes import TOPIC, TOPIC_ID, Taken
from tests.support.projections import event, lake_of, renew
from tests.unit.tables.test_expectations import bet
from tests.unit.tables.test_pauses import PausableLake

RULES = {"quick": {"check": "latency_ms < 50", "action": "quarantine"}}
PAUSE_S = 0.05
ORIGIN = UnitOptions({TOPIC: TOPIC_ID}, bump_in_place=True)


class Slow(Taken):
    """A source that lets its reader wait before each batch."""

    def read(self) -> Iterator[pa.RecordBatch]:
        for batch in super().read():
            time.sleep(PAUSE_S)
            yield batch


def sent(count: int, first: int = 0) -> pa.RecordBatch:
    return batch_of([event("uno", f"g{n}", latency_ms=n, device_id="phone") for n in range(count)], first=first)


def details(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(unit_events(TableNames(), [manifest])).details)
    return found


def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock of a stopwatch is one second later."""
    ticks = iter(range(1000))
    monkeypatch.setattr(tally.time, "perf_counter", lambda: float(next(ticks)))


def test_each_moment_belongs_to_the_innermost_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch)
    watch = Stopwatch()  # 0
    with watch.step("decode"):  # 1
        with watch.step("check"):  # 2
            pass  # 3
        with watch.step("project"):  # 4
            pass  # 5
    with watch.step("decode"):  # 6, 7
        pass  # 8
    assert watch.stop() == {"read": 3.0, "decode": 4.0, "check": 1.0, "project": 1.0, "write": 0.0}


def test_the_steps_of_a_unit_are_its_time(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", expectations=RULES)
    lake.take(sent(10))
    batches = [sent(3000, first=first) for first in (10, 3010)]
    report = lake.units.run(Slow(batches), 2, ORIGIN)  # type: ignore[arg-type]
    assert report.steps.keys() == {*TIMED_STEPS, "resolve"}
    assert report.steps["resolve"] == 0
    assert all(report.steps[step] > 0 for step in TIMED_STEPS)
    assert report.steps["read"] >= 2 * PAUSE_S
    assert 0.5 * report.seconds < sum(report.steps.values()) <= report.seconds


def test_a_job_that_runs_again_counts_again(tmp_path: Path) -> None:
    """The first unit of a lake meets a new table, and columns without a field id."""
    lake = lake_of(tmp_path / "lake")
    report = lake.units.run(Slow([sent(10)]), 1, ORIGIN)  # type: ignore[arg-type]
    assert report.steps["read"] >= 2 * PAUSE_S
    assert report.steps["resolve"] > 0
    assert sum(report.steps.values()) <= report.seconds


def test_each_unit_with_a_job_tells_its_steps(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path / "pausable", {})
    lake.send(bet("uno", "a", 5), land_only=True)
    lake.drain()
    ingest, deferred = map(lake.opened.units.manifests.read, (1, 2))
    made = lake_of(tmp_path / "lake")
    made.take(sent(3))
    renew(made, "uno")
    anew = made.opened.units.manifests.read(2)
    assert [unit.kind for unit in (ingest, deferred, anew)] == ["ingest", "deferred", "renew"]
    for unit in (ingest, deferred, anew):
        steps = details(unit)["steps"]
        assert steps == unit.counts["steps"]
        assert steps.keys() == {*TIMED_STEPS, "resolve"}
        assert min(steps.values()) >= 0
        assert 0 < sum(steps.values()) <= unit.counts["seconds"] + 0.0005 * (len(steps) + 1)  # they are rounded


def test_a_unit_without_a_job_or_of_an_earlier_release_has_no_steps() -> None:
    assert "steps" not in details(Manifest(1, "resume", {"request": "r"}, {}, counts_of(Report())))


def test_steps_of_tasks_and_jobs_are_added_and_rounded() -> None:
    report = Report(seconds=0.5, steps={"read": 0.0004})
    report.merge(Report(steps={"read": 0.0003, "write": 1.25}))
    report.merge(Report(seconds=0.25, steps={"write": 1.0}))
    assert report.seconds == 0.75
    assert counts_of(report)["steps"] == {"read": 0.001, "write": 2.25}
