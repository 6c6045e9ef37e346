"""Micro-batches over a checkpoint in Spark's format: taken once, whatever crashes, refused where they do not fit."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from spark_app.model.errors import ContractError, SchemaBump
from spark_app.model.offsets import ReadFailed, ReadFailure, Span
from spark_app.units.driver import unit
from spark_app.units.driver.ingest import MAX_LAND_ATTEMPTS
from tests.spark.parts import ORIGIN, Killed, Parts, events, killed, offsets, records, source
from tests.support.answers import Answers

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c")]
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


def plan_batch(parts: Parts, batch: int, end: int, start: int = 0) -> None:
    """What Spark writes into its checkpoint before it hands out a batch."""
    first = parts.lake.path(parts.lake.checkpoint) / "sources" / "0" / "0"
    planned = parts.lake.path(parts.lake.checkpoint) / "offsets" / str(batch)
    for path in (first, planned):
        path.parent.mkdir(parents=True, exist_ok=True)
    if batch == 0:
        first.write_text("v1\n" + json.dumps(offsets(start)))
    planned.write_text(f"v1\n{METADATA}\n{json.dumps(offsets(end))}")


def take(parts: Parts, batch: int, values: Sequence[bytes | None], first: int, origin: Any = ORIGIN) -> None:
    plan_batch(parts, batch, first + len(values), first)
    parts.take_batch(records(parts.spark, values, first), batch, origin)


def landed(parts: Parts) -> dict[str, list[int]]:
    """The offsets in every table that holds records."""
    columns = {name: "_offset" if name.startswith("silver") else "offset" for name in parts.lake.tables()}
    return {name: sorted(parts.read(name)[column].to_list()) for name, column in columns.items()}


FIRST = {"bronze_events": [0, 1, 2], "silver_rummy_events": [0, 2], "silver_uno_events": [1]}
BOTH = {"bronze_events": [0, 1, 2, 3, 4, 5], "silver_rummy_events": [0, 2, 3, 5], "silver_uno_events": [1, 4]}


def test_batches_follow_each_other_and_a_decided_one_is_skipped(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    values = events(1, PLAYERS)
    take(parts, 0, values, 0)
    take(parts, 1, values, 3)
    assert landed(parts) == BOTH
    again = new_parts()
    take(again, 1, values, 3)
    assert (again.manifests.last, landed(again)) == (2, BOTH)
    assert again.status.value["bronze"] == 0
    bronze = again.read("bronze_events").sort("offset")
    assert bronze["value"].to_list() == values + values
    assert set(bronze["topic_id"]) == {"id of t"}


def test_the_first_schema_is_settled_in_place_after_a_batch_of_no_records(
    new_parts: NewParts, answers: Answers
) -> None:
    for version in (1, 2):
        answers.schema(version, source(version))
    parts = new_parts(answers.url)
    answers["/schemas/ids/2/versions"] = (200, [{"subject": parts.settings.subject, "version": 2}])
    take(parts, 0, [], 0)
    take(parts, 1, events(1, PLAYERS), 0)
    assert landed(parts) == FIRST
    with pytest.raises(SchemaBump, match=r"new schemas \[2\]"):
        take(parts, 2, events(2, PLAYERS), 3)
    assert (parts.manifests.last, landed(parts)) == (2, FIRST)


@pytest.mark.parametrize("first", [2, 4], ids=["overlap", "gap"])
def test_batch_that_does_not_follow_is_refused(new_parts: NewParts, first: int) -> None:
    parts = new_parts()
    parts.learn(1)
    take(parts, 0, events(1, PLAYERS), 0, replace(ORIGIN, land_only=True))
    before = parts.files()
    plan_batch(parts, 0, first)
    with pytest.raises(ContractError, match="the checkpoint does not belong to this lake"):
        take(parts, 1, events(1, PLAYERS), first)
    assert (parts.manifests.last, parts.files()) == (1, before)


def test_records_outside_the_planned_range_are_refused(new_parts: NewParts) -> None:
    parts = new_parts()
    plan_batch(parts, 0, 3, 1)
    with pytest.raises(ContractError, match=r"t/0: 3 records at 0 to 2 are outside the batch's 1 to 3"):
        parts.take_batch(records(parts.spark, events(1, PLAYERS)), 0, replace(ORIGIN, land_only=True))
    assert (parts.manifests.last, parts.lake.tables()) == (0, [])


def test_a_topic_made_again_under_the_pass_is_decided_by_nothing(new_parts: NewParts) -> None:
    """However far it has grown: its offsets may fit."""
    parts = new_parts()
    asked: list[dict[str, str]] = []

    def confirm(topic_ids: dict[str, str]) -> None:
        asked.append(topic_ids)
        assert len(parts.files()) > 0, "too early: the task may still read from the other topic"
        raise ContractError("another topic")

    parts.ingest = parts.new_ingest(confirm)
    parts.learn(1)
    with pytest.raises(ContractError, match="another topic"):
        take(parts, 0, events(1, PLAYERS), 0)
    assert asked == [ORIGIN.topic_ids]
    assert (parts.manifests.last, parts.files()) == (0, [])


def test_partitions_that_came_while_there_was_no_checkpoint_are_taken(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    take(parts, 0, events(1, PLAYERS), 0)
    first = parts.lake.path(parts.lake.checkpoint) / "sources" / "0" / "0"
    plan_batch(parts, 0, 6, 3)
    first.write_text("v1\n" + json.dumps({"t": {"0": 3, "1": 0}}))
    end = parts.lake.path(parts.lake.checkpoint) / "offsets" / "0"
    end.write_text(f"v1\n{METADATA}\n" + json.dumps({"t": {"0": 6, "1": 0}}))
    parts.take_batch(records(parts.spark, events(1, PLAYERS), 3), 0, ORIGIN)
    assert landed(parts) == BOTH


def test_unreadable_checkpoint_is_refused(new_parts: NewParts) -> None:
    parts = new_parts()
    plan_batch(parts, 0, 3)
    (parts.lake.path(parts.lake.checkpoint) / "offsets" / "0").write_text("")
    with pytest.raises(ContractError, match="moves the checkpoint aside"):
        parts.take_batch(records(parts.spark, events(1, PLAYERS)), 0, ORIGIN)


@pytest.mark.parametrize("table", ["bronze_events", "silver_rummy_events"])
def test_crash_after_the_decision_is_redone_once(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.kill_at_commit(table, monkeypatch)
    with pytest.raises(Killed):
        take(parts, 0, events(1, PLAYERS), 0)
    assert table not in parts.lake.tables()
    again = new_parts()
    assert again.redone_units == 1
    take(again, 0, events(1, PLAYERS), 0)
    assert (landed(again), new_parts().redone_units) == (FIRST, 0)


def test_unit_whose_commit_failed_is_finished_before_the_next_batch(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = new_parts()
    parts.learn(1)
    with monkeypatch.context() as broken:
        broken.setattr(parts.committer, "_append", killed)
        broken.setattr(parts.committer, "_create", killed)
        with pytest.raises(Killed):
            take(parts, 0, events(1, PLAYERS), 0)
    take(parts, 1, events(1, PLAYERS), 3)
    assert landed(parts) == BOTH


def test_failed_unit_ends_with_its_last_commit(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = new_parts()
    parts.learn(1)
    commit = parts.committer._commit

    def fail_or_linger(manifest: Any, name: str, *rest: Any) -> bool:
        if name == "silver_rummy_events":
            raise OSError("a broken disk")
        time.sleep(0.5)
        return commit(manifest, name, *rest)

    monkeypatch.setattr(parts.committer, "_commit", fail_or_linger)
    with pytest.raises(OSError, match="a broken disk"):
        take(parts, 0, events(1, PLAYERS), 0)
    assert parts.lake.tables() == ["bronze_events", "silver_uno_events"]
    again = new_parts()
    assert (again.redone_units, landed(again)) == (1, FIRST)


def test_batch_that_fails_too_often_is_landed_and_decoded_later(new_parts: NewParts) -> None:
    parts = new_parts(batch={"max_attempts": 1})
    parts.learn(1)
    parts.tables.admit({key: ["protolake.demo.GameEvent"] for key in ["rummy", "uno"]})
    obstacle = parts.lake.path("silver_uno_events")
    obstacle.touch()  # a file where the task makes a folder
    take(parts, 0, events(1, PLAYERS), 0)
    assert landed(parts) == {"bronze_events": [0, 1, 2], "deferred_events": [0, 1, 2]}
    obstacle.unlink()
    assert parts.deferred.step(None) is not None
    assert landed(parts) == FIRST | {"deferred_events": []}


def test_batch_that_kills_the_app_is_landed_at_last(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        parts = new_parts(batch={"max_attempts": 2})
        parts.learn(1)
        monkeypatch.setattr(parts.units, "run", killed)
        with pytest.raises(Killed):
            take(parts, 0, events(1, PLAYERS), 0)
    parts = new_parts(batch={"max_attempts": 2})
    take(parts, 0, events(1, PLAYERS), 0)
    assert landed(parts) == {"bronze_events": [0, 1, 2], "deferred_events": [0, 1, 2]}
    take(parts, 1, events(1, PLAYERS), 3)
    assert landed(parts)["silver_rummy_events"] == [3, 5]


def test_a_worker_that_dies_is_a_failed_try(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's own exception for it is none of PySpark's."""
    parts = new_parts(batch={"max_attempts": 1})
    parts.learn(1)
    parts.tables.admit({key: ["protolake.demo.GameEvent"] for key in ["rummy", "uno"]})
    plan = parts.units._plan

    def deadly_to_decode(sequence: int, origin: Any, *more: Any) -> Any:
        return replace(plan(sequence, origin, *more), unframed=None if origin.land_only else Deadly())

    monkeypatch.setattr(parts.units, "_plan", deadly_to_decode)
    take(parts, 0, events(1, PLAYERS), 0)
    assert "Python worker exited unexpectedly" in capsys.readouterr().err
    assert landed(parts) == {"bronze_events": [0, 1, 2], "deferred_events": [0, 1, 2]}
    monkeypatch.undo()
    assert parts.deferred.step(None) is not None
    assert landed(parts) == FIRST | {"deferred_events": []}


def test_a_batch_that_decodes_nothing_is_tried_for_longer(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records cannot be what ends the workers."""
    parts = new_parts(batch={"max_attempts": 1})
    parts.learn(1)
    monkeypatch.setattr("spark_app.units.driver.ingest.RETRY_S", (0,))
    run, deaths = parts.units.run, [PySparkException("a worker died") for _ in range(MAX_LAND_ATTEMPTS)]
    monkeypatch.setattr(parts.units, "run", lambda *given: raiser(deaths.pop())() if deaths else run(*given))
    take(parts, 0, events(1, PLAYERS), 0)
    assert landed(parts) == {"bronze_events": [0, 1, 2], "deferred_events": [0, 1, 2]}


class Deadly:
    """Ends the worker that it is sent to."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


@pytest.mark.parametrize("why", ReadFailure)
def test_what_kafka_does_not_give_is_no_failure_of_the_batch(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, why: ReadFailure
) -> None:
    """Else an outage would land an innocent batch undecoded."""
    parts = new_parts(batch={"max_attempts": 1})
    parts.learn(1)
    with monkeypatch.context() as broken:
        broken.setattr(parts.units, "run", raiser(ReadFailed(why, "t/0 at 1", [])))
        for _ in range(4):
            with pytest.raises(ReadFailed, match="t/0 at 1"):
                take(parts, 0, events(1, PLAYERS), 0)
    take(parts, 0, events(1, PLAYERS), 0)
    assert landed(parts) == FIRST


@pytest.mark.parametrize(
    ("spans", "read"),
    [
        ([(0, 2)], [[0, 2]]),
        ([(1, 3)], [[1, 3]]),
        ([(0, 2), (1, 3)], [[0, 2], [1, 3]]),
        ([(0, 3), (0, 3)], [[0, 3], [0, 3]]),
        ([(0, 1), (2, 3)], [[0, 1], [2, 3]]),
        ([(0, 4)], [[0, 4]]),
        ([], []),
    ],
    ids=["short", "late", "overlap", "twice", "gap", "long", "none"],
)
def test_a_range_that_was_not_read_as_planned_is_refused(
    new_parts: NewParts, spans: list[tuple[int, int]], read: list[list[int]]
) -> None:
    """Whatever records there are: those at the missing offsets may be gone, or may never have been."""
    parts = new_parts()
    parts.learn(1)
    plan_batch(parts, 0, 3)
    given = records(parts.spark, events(1, PLAYERS))
    (share,) = given.shares
    given = replace(given, shares=(replace(share, spans=tuple(Span("t", 0, *span) for span in spans)),))
    with pytest.raises(ContractError, match=re.escape(f"t/0: the tasks read {read} instead of 0 to 3")):
        parts.take_batch(given, 0)
    assert (parts.manifests.last, parts.lake.tables()) == (0, [])


def test_a_plan_that_goes_back_is_not_taken(new_parts: NewParts) -> None:
    parts = new_parts()
    plan_batch(parts, 0, 3, 5)
    with pytest.raises(ReadFailed, match="t/0 at 5: the partition ends at 3"):
        parts.take_batch(records(parts.spark, []), 0)
    assert parts.manifests.last == 0


def test_a_range_may_be_read_by_several_tasks(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    plan_batch(parts, 0, 3)
    values = events(1, PLAYERS)
    first, second = records(parts.spark, values[:1]), records(parts.spark, values[1:], 1)
    assert parts.take_batch(replace(first, shares=(*second.shares, *first.shares)), 0) == 3
    assert landed(parts) == FIRST


def test_a_first_batch_has_as_many_tasks_as_its_tables_are_worth(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cores. Some of the records are looked at first, which tells how many tables there are; then the batch
    is planned once more."""
    monkeypatch.setattr(unit, "SMALL_ROWS", 10_000)
    parts, asked = new_parts(), []
    parts.learn(1)
    monkeypatch.setattr(parts.ingest, "_read", lambda start, end, tasks: asked.append(tasks) or parts.given)
    take(parts, 0, 11_000 * events(1, PLAYERS), 0)
    assert asked == [2, 1]
    take(parts, 1, 11_000 * events(1, [("rummy", "a"), ("rummy", "b")]), 33_000)
    assert asked[2:] == [1]
    take(parts, 2, 11_000 * events(1, [("rummy", "a"), ("rummy", "b")]), 55_000)
    assert asked[3:] == [2]


def test_a_time_out_of_another_library_is_a_failure_of_the_batch(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for the broker's silence it would be tried for ever, and the broker be blamed."""
    parts = new_parts(batch={"max_attempts": 1})
    parts.learn(1)
    late = PySparkException("java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]")
    run, failures = parts.units.run, [late]
    monkeypatch.setattr(parts.units, "run", lambda *given: raiser(failures.pop())() if failures else run(*given))
    take(parts, 0, events(1, PLAYERS), 0)
    assert landed(parts) == {"bronze_events": [0, 1, 2], "deferred_events": [0, 1, 2]}


def test_full_disk_is_no_failure_of_the_batch_either(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = new_parts(batch={"max_attempts": 1})
    parts.learn(1)
    monkeypatch.setattr("spark_app.units.driver.disk_space.WAIT_S", 0.01)
    run, errors = parts.units.run, [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) for _ in range(4)]
    monkeypatch.setattr(parts.units, "run", lambda *given: raiser(errors.pop())() if errors else run(*given))
    take(parts, 0, events(1, PLAYERS), 0)
    assert (errors, landed(parts)) == ([], FIRST)
    assert parts.status.progress > 4  # each wait was said


def test_a_jvm_that_is_gone_is_one_try(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = new_parts()
    parts.learn(1)
    monkeypatch.setattr(parts.units, "run", raiser(ConnectionRefusedError(111, "Connection refused")))
    with pytest.raises(ConnectionRefusedError):
        take(parts, 0, events(1, PLAYERS), 0)
    assert json.loads((parts.lake.path(parts.lake.state) / "attempts.json").read_text())["tries"] == 1
    assert parts.ingest.batch_description == "batch of t/0 0 to 3, attempt 1"
    monkeypatch.undo()
    take(parts, 0, events(1, PLAYERS), 0)
    assert (parts.ingest.batch_description, landed(parts)) == ("", FIRST)


def raiser(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail
