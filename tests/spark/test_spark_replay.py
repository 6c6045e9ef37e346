"""What is in quarantine is decoded again once, when its reason is gone, whatever crashes on the way."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError
from pyspark.errors import PySparkException

from spark_app.model.causes import Cause
from spark_app.model.errors import ExitCode, UnreachableError
from spark_app.recovery import requests
from spark_app.recovery.replay import Replay
from spark_app.recovery.requests import MOST_ATTEMPTS, Request
from spark_app.units.driver.open_lake import UnitLog
from spark_app.units.driver.reader import read_table
from tests.chaos import read_back
from tests.spark.parts import Killed, Parts, events, source
from tests.support import ledger
from tests.support.answers import Answers
from tests.unit.lake.test_field_ids import ids_of

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c"), ("uno", "d"), ("rummy", "e")]
ONLY_RUMMY = {"allowlist": ["rummy"]}
RECORDS = int(os.environ.get("PROTOLAKE_TEST_REPLAYED", "10_000"))


def replay(parts: Parts, dry_run: bool = False, **arguments: Any) -> dict[str, Any]:
    """A request from its first step to its result."""
    return finish(parts, Request("replay", arguments, dry_run))


def finish(parts: Parts, request: Request) -> dict[str, Any]:
    job = Replay(parts.spark, parts.opened, parts.units, request)
    while job.step() is not None:
        pass
    return job.conclude()


def landed(parts: Parts) -> dict[str, list[int]]:
    """The offsets in silver, in what is resolved and in what is open, by table or cause."""
    found = {}
    for name in parts.lake.tables():
        if name.startswith("silver"):
            found[name] = sorted(parts.read(name)["_offset"].to_list())
    resolved = parts.read("resolved_events")
    found["resolved"] = sorted(resolved["offset"].to_list()) if len(resolved) else []
    quarantine = sorted(parts.read("quarantine_events")["offset"].to_list())
    found["open"] = sorted((Counter(quarantine) - Counter(found["resolved"])).elements())
    return found


def truth(parts: Parts) -> dict[ledger.Identity, str]:
    rows = parts.read("bronze_events").select("topic", "partition", "offset", "value").rows()
    return {(topic, partition, offset): read_back.digest(value) for topic, partition, offset, value in rows}


def refuse_uno(new_parts: NewParts) -> Parts:
    """A lake where records of uno, and two frames that nothing can decode, are in quarantine."""
    parts = new_parts(tables=ONLY_RUMMY)
    parts.learn(1)
    report = parts.take([*events(1, PLAYERS), b"no frame", None, events(1, PLAYERS[:1])[0][:-1]])
    assert report.quarantine == {"route_refused": 2, "frame_magic": 1, "decode_payload": 1}
    return parts


REFUSED = {"silver_rummy_events": [0, 2, 4], "resolved": [], "open": [1, 3, 5, 7]}
RESOLVED = {
    "silver_rummy_events": [0, 2, 4],
    "silver_uno_events": [1, 3],
    "resolved": [1, 3],
    "open": [5, 7],
}


def test_what_is_refused_after_the_request_is_not_its_business(new_parts: NewParts) -> None:
    """Else a replay beside a topic that goes on sending what is refused would have no end."""
    parts = refuse_uno(new_parts)
    request = Request("replay", {"causes": ["route_refused"]})
    parts.take(events(1, PLAYERS))
    assert finish(parts, request)["refused"] == {"route_refused": 2}
    assert replay(parts, causes=["route_refused"])["refused"] == {"route_refused": 4}


@pytest.mark.parametrize("where", ["write", pytest.param("decide", marks=pytest.mark.nightly)])
def test_a_full_disk_leaves_the_request_where_it_is(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    request = Request("replay", {})
    requests.submit(parts.lake, request)
    owner, name = (UnitLog, "write") if where == "write" else (parts.manifests, "commit")
    with monkeypatch.context() as full:
        full.setattr(owner, name, no_space)
        with pytest.raises(OSError, match="No space left"):
            execute(parts)
    assert [r.id for r in requests.pending(parts.lake)] == [request.id]
    execute(parts)
    assert requests.take_result(parts.lake, request) is not None
    assert landed(parts) == RESOLVED


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("the disk forgot"),
        pytest.param(OSError(errno.EIO, os.strerror(errno.EIO)), marks=pytest.mark.nightly),
        pytest.param(ConnectionResetError(104, "reset"), marks=pytest.mark.nightly),
    ],
    ids=["unreachable", "broken disk", "connection"],
)
def test_what_lies_outside_of_a_request_leaves_it_where_it_is(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    request = Request("replay", {})
    requests.submit(parts.lake, request)
    with monkeypatch.context() as outside:
        outside.setattr(parts.manifests, "commit", lambda *_: raise_it(error))
        with pytest.raises(type(error)):
            execute(parts)
    assert [r.id for r in requests.pending(parts.lake)] == [request.id]
    again = new_parts()
    execute(again)
    assert requests.take_result(again.lake, request)["resolved"] == {"silver_uno_events": 2}
    assert landed(again) == RESOLVED


def test_a_step_that_fails_in_spark_is_made_again(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    request = Request("replay", {})
    requests.submit(parts.lake, request)
    choose, failures = (
        Replay._choose,
        [PySparkException("a worker died"), CommitFailedError("another writer"), FileNotFoundError()],
    )
    monkeypatch.setattr(Replay, "_choose", lambda *given: raise_it(failures.pop()) if failures else choose(*given))
    execute(parts)
    assert failures == []
    assert requests.take_result(parts.lake, request)["resolved"] == {"silver_uno_events": 2}
    assert landed(parts) == RESOLVED


@pytest.mark.nightly
def test_a_step_that_always_fails_is_answered_with_what_it_said(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    request = Request("replay", {})
    requests.submit(parts.lake, request)
    monkeypatch.setattr(Replay, "_choose", lambda *_: raise_it(PySparkException("a worker died")))
    execute(parts)
    answer = requests.take_result(parts.lake, request)
    assert (
        answer["exit_code"],
        f"after {MOST_ATTEMPTS} attempts" in answer["error"],
        "a worker died" in answer["error"],
    ) == (
        ExitCode.BUG,
        True,
        True,
    )
    assert landed(parts) == REFUSED


def test_a_request_of_another_release_is_answered_at_once(new_parts: NewParts) -> None:
    parts = refuse_uno(new_parts)
    request = Request("replay", {"of a newer release": 1})
    requests.submit(parts.lake, request)
    assert parts.service.step()
    assert requests.take_result(parts.lake, request)["exit_code"] == ExitCode.BUG


def raise_it(error: Exception) -> Any:
    raise error


def execute(parts: Parts) -> None:
    while parts.service.step():
        pass


def no_space(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_widened_allow_list_lets_records_in_once(new_parts: NewParts) -> None:
    refuse_uno(new_parts)
    parts = new_parts(tables=ONLY_RUMMY)
    assert replay(parts)["refused"] == {"route_refused": 2, "frame_magic": 1, "decode_payload": 1}
    assert (landed(parts), parts.manifests.last) == (REFUSED, 1)

    parts = new_parts()
    files = len(parts.files())
    result = replay(parts)
    assert result == {
        "candidates": {"route_refused": 2, "frame_magic": 1, "decode_payload": 1},
        "resolved": {"silver_uno_events": 2},
        "refused": {"frame_magic": 1, "decode_payload": 1},
        "waiting": 0,
    }
    assert landed(parts) == RESOLVED
    assert len(parts.files()) == files + 2
    rows = parts.read("resolved_events").sort("offset").to_dicts()
    assert [(r["topic"], r["topic_id"], r["partition"], r["schema_id"]) for r in rows] == [("t", "id of t", 0, 1)] * 2
    assert [(r["cause"], r["table"], r["unit"]) for r in rows] == [("route_refused", "silver_uno_events", 2)] * 2
    times = dict(parts.read("bronze_events").select("offset", "landed_at").iter_rows())
    silver = dict(parts.read("silver_uno_events").select("_offset", "_landed_at").iter_rows())
    assert silver == {offset: times[offset] for offset in (1, 3)}
    parts.gold.run()
    assert ledger.verify(parts.lake.root, truth(parts)).faults() == {}
    assert "resolved_at" in ids_of(parts.lake.root)

    again = new_parts()
    assert replay(again)["resolved"] == {}
    assert (landed(again), again.manifests.last) == (RESOLVED, 2)


def test_filters_choose(new_parts: NewParts) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    refused, magic, payload = {"route_refused": 2}, {"frame_magic": 1}, {"decode_payload": 1}
    for arguments, candidates in [
        ({"causes": ["route_refused"]}, refused),
        ({"causes": ["frame_magic", "decode_payload"]}, magic | payload),
        ({"schemas": ["1"]}, refused | payload),
        ({"schemas": ["2"]}, {}),
        ({"until": 1.0}, {}),
        ({"since": 1.0}, refused | magic | payload),
        ({"since": 4e9}, {}),
        ({"topic": "t", "partition": 0, "offsets": [2, 6]}, {"route_refused": 1} | magic),
        ({"topic": "t", "partition": 0, "offsets": [0, 3]}, {"route_refused": 1}),
        ({"topic": "t", "partition": 1}, {}),
        ({"topic": "u"}, {}),
    ]:
        assert replay(parts, dry_run=True, **arguments) == {"candidates": candidates}, arguments
    replay(parts, offsets=[2, 4])
    assert (landed(parts)["resolved"], landed(parts)["open"]) == ([3], [1, 5, 7])
    replay(parts)
    assert landed(parts) == RESOLVED


def test_a_dry_run_counts_and_changes_nothing(new_parts: NewParts) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    before = parts.files()
    assert replay(parts, dry_run=True, causes=["route_refused"]) == {"candidates": {"route_refused": 2}}
    assert (parts.files(), parts.manifests.last, parts.tables.admitted) == (before, 1, {"rummy": "rummy"})


def test_ids_that_were_given_up_are_asked_for_again(new_parts: NewParts, answers: Answers) -> None:
    parts = new_parts(answers.url, schemas={"unknown_id_grace_s": 0.001, "max_unknown_ids_per_batch": 1})
    parts.learn(1)
    parts.take(events(1, PLAYERS[:1]) + events(2, PLAYERS[1:3]) + events(3, PLAYERS[3:]))
    time.sleep(0.1)
    for _ in range(3):
        parts.deferred.step(None)
    assert sorted(parts.read("quarantine_events")["offset"].to_list()) == [1, 2, 3, 4]

    parts = new_parts(answers.url, schemas={"max_unknown_ids_per_batch": 1})
    answers["/schemas/ids/3"] = (500, {"error_code": 50001, "message": "starting"})
    answers.schema(2, source(2))
    result = replay(parts)
    assert (result["resolved"], result["waiting"]) == ({"silver_rummy_events": 1, "silver_uno_events": 1}, 2)
    assert parts.read("silver_uno_events")["col_custom_1"].to_list() == ["a"]
    assert landed(parts)["open"] == [3, 4]
    answers.schema(3, source(3))
    parts.ledger.add_refused(3, *REFUSAL)
    assert replay(parts, schemas=["3"])["resolved"] == {"silver_rummy_events": 1, "silver_uno_events": 1}
    parts.gold.run()
    assert ledger.verify(parts.lake.root, truth(parts)).faults() == {}


REFUSAL = (Cause.SCHEMA_INVALID, "over a cap that was raised since", 0.0)


@pytest.mark.parametrize("table", ["silver_uno_events", pytest.param("resolved_events", marks=pytest.mark.nightly)])
def test_crash_after_the_decision_is_redone_once(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    request = Request("replay", {})
    parts.kill_at_commit(table, monkeypatch)
    with pytest.raises(Killed):
        finish(parts, request)
    parts = new_parts()
    assert parts.redone_units == 1
    result = finish(parts, request)
    assert (result["resolved"], landed(parts)) == ({"silver_uno_events": 2}, RESOLVED)
    assert replay(parts)["resolved"] == {}
    parts.gold.run()
    assert ledger.verify(parts.lake.root, truth(parts)).faults() == {}


def test_crash_before_the_decision_leaves_nothing(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_uno(new_parts)
    parts = new_parts()
    before = parts.files()
    request = Request("replay", {})
    with monkeypatch.context() as broken:
        broken.setattr("spark_app.recovery.replay.resolved_rows", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            finish(parts, request)
    parts = new_parts()
    assert (parts.files(), landed(parts)) == (before, REFUSED)
    finish(parts, request)
    assert landed(parts) == RESOLVED


def test_record_that_breaks_the_pass_stays_and_holds_up_nobody(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_app.units.driver.ingest.MOST_AT_ONCE", 10)
    refuse_uno(new_parts)
    request = Request("replay", {})
    parts = new_parts()
    for _ in range(5):  # with and without restarts
        parts = new_parts()
        parts.fail_tasks_at(1, monkeypatch)
        job = Replay(parts.spark, parts.opened, parts.units, request)
        assert job.step() is not None
    result = finish(parts, request)
    assert result["resolved"] == {"silver_uno_events": 1}
    assert result["refused"] == {"decode_crash": 1, "frame_magic": 1, "decode_payload": 1}
    assert landed(parts)["open"] == [1, 5, 7]
    assert replay(new_parts())["resolved"] == {"silver_uno_events": 1}


def test_several_units_each_with_its_progress(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_app.units.driver.ingest.MOST_AT_ONCE", 2)
    refuse_uno(new_parts)
    request = Request("replay", {})
    parts = new_parts()
    job = Replay(parts.spark, parts.opened, parts.units, request)
    assert job.step() is not None
    step = job.step()
    assert step is not None
    assert (step[0].silver, step[1]) == ({"uno": 2}, {"route_refused": 2})
    (parts.lake.path(parts.lake.requests) / f"{request.id}.progress.json").unlink()  # lost with the machine
    result = finish(new_parts(), request)
    assert result["resolved"] == {}
    assert landed(parts) == RESOLVED


def test_quarantine_is_looked_through_once_however_many_units_it_takes(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_app.units.driver.ingest.MOST_AT_ONCE", 1)
    refuse_uno(new_parts)
    parts = new_parts()
    read: list[str] = []
    monkeypatch.setattr(
        "spark_app.recovery.replay.read_table", lambda *given: read.append(given[2]) or read_table(*given)
    )
    units = parts.manifests.last
    replay(parts)
    assert parts.manifests.last - units == 2
    assert landed(parts) == RESOLVED
    assert read.count("quarantine_events") == 2  # to count, and to choose


@pytest.mark.nightly
def test_many_quarantined_records_are_placed_once(new_parts: NewParts) -> None:
    parts = new_parts(tables=ONLY_RUMMY)
    parts.learn(1)
    games = ["uno", "poker", "hearts", "spades", "euchre"]
    values = events(1, [(games[i % 5], f"g{i % 997}") for i in range(RECORDS)])
    assert parts.take(values).quarantine == {"route_refused": RECORDS}
    parts = new_parts()
    began = time.monotonic()
    result = replay(parts)
    seconds = time.monotonic() - began
    assert result["resolved"] == {f"silver_{game}_events": RECORDS // 5 for game in games}
    parts.gold.run()
    assert ledger.verify(parts.lake.root, truth(parts)).faults() == {}
    last = parts.manifests.last
    assert (replay(parts)["candidates"], parts.manifests.last) == ({}, last)
    print(f"\nreplay of {RECORDS:,} quarantined records: {seconds:.1f} s")
