"""Rows of silver leave the lake: each in at least one accepted call, under keys that stay, whatever crashes."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.audit import audit_sink
from spark_app.followers.runner import FollowerRunner
from spark_app.followers.sinks import people, state
from spark_app.followers.sinks.ledger import Ledger, Line, open_spans
from spark_app.followers.sinks.open_sink import OpenSink
from spark_app.followers.sinks.plan import Plans, number_of
from spark_app.followers.sinks.process import SinkProcess
from spark_app.followers.sinks.tables import SinkTables
from spark_app.lake import cursors
from spark_app.lake.lake import Lake
from spark_app.model.errors import LeaseLost
from tests.support.event_lakes import take
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN
from tests.support.targets import OK, Target, open_sink

SINK = {"begin": "all", "rows_per_call": 8}


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target().up()
    yield made
    made.down()


@pytest.fixture
def lake_of(tmp_path: Path, target: Target) -> Callable[..., SmallLake]:
    def make(rest: dict[str, Any] | None = None, **sink: Any) -> SmallLake:
        settings = {**SINK, "rest": {"url": f"{target.url}/{{name}}", "allow_private": True, **(rest or {})}, **sink}
        return SmallLake(tmp_path / "lake", EVENTS, GROWN, sinks={"crm": settings})

    return make


def deliver(lake: SmallLake) -> None:
    """All that there is now."""
    process = SinkProcess("crm", lake.settings, once=True)
    process.start()
    assert process.join(60), state.read(lake.lake, "crm")


def sent(target: Target) -> list[tuple[str, int, int]]:
    """The coordinates of the rows that were accepted, as often as they were in calls of different keys."""
    return sorted((row["_topic"], row["_partition"], row["_offset"]) for row in target.rows())


def silver(lake: SmallLake, *games: str) -> list[tuple[str, int, int]]:
    found = []
    for game in games or ("uno",):
        table = DeltaTable(str(lake.lake.path(f"silver_{game}_events"))).to_pyarrow_table()
        found += zip(*(table[name].to_pylist() for name in ("_topic", "_partition", "_offset")), strict=True)
    return sorted(found)


def ledger(lake: SmallLake) -> list[Line]:
    found = Ledger(Lake(lake.lake.address, "crm"), lake.lake.sink("crm")).read()
    return [line for lines in found.values() for line in lines]


def moving_of(lake: SmallLake) -> FollowerRunner:
    """What moves the ledgers into tables, in the app."""
    tables = SinkTables(lake.lake, lake.settings, lake.opened.units.committer.synced)
    return FollowerRunner(tables, lake.lake, lake.opened.units.manifests)


def test_each_row_of_each_unit_is_sent_once(lake_of: Callable[..., SmallLake], target: Target) -> None:
    lake = lake_of()
    take(lake, 20)
    deliver(lake)
    assert sent(target) == silver(lake)
    assert sorted(len(calls[0]) for calls in target.accepted.values()) == [4, 8, 8]
    take(lake, 3)
    take(lake, 2, game="poker")
    deliver(lake)
    deliver(lake)
    assert sent(target) == silver(lake, "uno", "poker")
    assert Counter(path for _, _, path, _ in target.got) == {"/uno": 4, "/poker": 1}
    assert {line.result for line in ledger(lake)} == {"accepted"}
    assert Counter(key for _, _, _, key in target.got).total() == len(target.accepted) == 5


def test_a_new_sink_begins_with_the_next_unit(lake_of: Callable[..., SmallLake], target: Target) -> None:
    lake = lake_of(begin="new")
    take(lake, 3)
    deliver(lake)
    assert target.got == []
    take(lake, 2)
    deliver(lake)
    assert sent(target) == silver(lake)[3:]


def test_only_chosen_tables_rows_and_columns_leave(lake_of: Callable[..., SmallLake], target: Target) -> None:
    lake = lake_of(tables=["uno"], where="latency_ms > 5", columns=["gamer_id"])
    for latency in (1, 9, 3, 7):
        take(lake, latency=latency)
        take(lake, game="poker", latency=latency)
    deliver(lake)
    own = [row for row in target.rows() if row.pop("_topic") and row.pop("_topic_id") and row.pop("_partition") == 0]
    assert own == [{"gamer_id": "g4", "_offset": 4}, {"gamer_id": "g12", "_offset": 12}]


def test_a_setting_that_does_not_fit_is_named_and_loses_nothing(
    lake_of: Callable[..., SmallLake], target: Target
) -> None:
    lake = lake_of(where="latency > 5")
    take(lake, 2)
    opened = open_sink(lake)
    with pytest.raises(Exception, match=r"sinks.crm.where: no column has the name latency; did you mean latency_ms"):
        opened.run(threading.Event(), once=True)
    opened._lake.lease.release()
    lake.reopen(sinks={"crm": {**SINK, "rest": {"url": target.url, "allow_private": True}}})
    deliver(lake)
    assert sent(target) == silver(lake)


@pytest.mark.parametrize(("count", "poison"), [(8, 1), (8, 15), (8, 7), (5, 1), (5, 9), (1, 1), (8, 3)])
def test_a_row_that_is_refused_is_alone_in_the_end(
    lake_of: Callable[..., SmallLake], target: Target, count: int, poison: int
) -> None:
    """The records with a frame have even offsets."""
    poison = 2 * (poison // 2)
    target.answer = lambda key, rows, tried: 422 if any(row["_offset"] == poison for row in rows) else OK
    target.said = "a bet is negative"
    lake = lake_of(order="table")
    take(lake, count)
    deliver(lake)
    assert sent(target) == [row for row in silver(lake) if row[2] != poison]
    [rejected] = [line for line in ledger(lake) if line.result == "rejected"]
    assert (rejected.status, rejected.answer) == (422, "a bet is negative")
    assert [json.loads(row)["_offset"] for row in rejected.rejects] == [poison]
    assert len(target.got) - 1 <= (count - 1).bit_length() + 2
    assert state.read(lake.lake, "crm")["rejected"] == 1


def test_rejected_rows_are_sent_again_when_somebody_asks(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: 400 if any(row["_offset"] in (2, 6) for row in rows) else OK
    lake = lake_of()
    take(lake, 8)
    deliver(lake)
    before = set(target.accepted)
    target.answer = lambda key, rows, tried: OK
    assert "sends 2 rejected rows again" in people.send_rejected(lake.lake, lake.settings, "crm")
    deliver(lake)
    assert sent(target) == silver(lake)
    assert {row["_offset"] for key, [rows] in target.accepted.items() if key not in before for row in rows} == {2, 6}
    assert "no row of crm was rejected" in people.send_rejected(lake.lake, lake.settings, "crm")
    people.send_from(lake.lake, "crm", 7)
    deliver(lake)
    again = Counter(sent(target))
    assert [row for row, count in again.items() if count == 2] == silver(lake)[6:]


@pytest.mark.parametrize("way", [500, 429, 503, 408, "reset"])
def test_a_call_without_success_is_repeated_under_its_key(
    lake_of: Callable[..., SmallLake], target: Target, way: int | str
) -> None:
    target.answer = lambda key, rows, tried: way if tried < 3 else OK
    lake = lake_of()
    take(lake, 10)
    deliver(lake)
    assert sent(target) == silver(lake)
    assert sorted(Counter(key for _, _, _, key in target.got).values()) == [3, 3]
    assert [line.attempts for line in ledger(lake)] == [3, 3]


def test_an_answer_that_comes_too_late_is_no_loss(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: "late" if tried == 1 else OK
    lake = lake_of({"timeout_s": 0.3})
    take(lake, 3)
    deliver(lake)
    assert sent(target) == silver(lake)
    [calls] = target.accepted.values()
    assert calls[0] == calls[1]


def test_what_is_given_up_is_rejected_or_waits_for_a_person(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: 500
    lake = lake_of(attempts=2)
    take(lake, 3)
    deliver(lake)
    [line] = ledger(lake)
    assert (line.result, line.attempts, len(line.rejects)) == ("rejected", 2, 3)


def test_a_sink_that_pauses_goes_on_when_a_person_says_so(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: 500
    lake = lake_of(attempts=2, give_up="pause")
    take(lake, 3)
    process = SinkProcess("crm", lake.settings)
    process.start()
    wait(lambda: state.pause_of(lake.lake, "crm") is not None)
    assert "2 attempts without success" in str(state.pause_of(lake.lake, "crm"))
    wait(lambda: state.read(lake.lake, "crm").get("state") == "paused")
    target.answer = lambda key, rows, tried: OK
    made = len(target.got)
    state.resume(lake.lake, "crm")
    wait(lambda: sent(target) == silver(lake))
    assert len(target.got) == made + 1
    process.stop()
    assert process.join(30)


def test_while_the_target_is_down_one_call_at_a_time_tries_it(
    lake_of: Callable[..., SmallLake], target: Target
) -> None:
    lake = lake_of(rows_per_call=1)
    take(lake, 20)
    port = target.port
    target.down()
    process = SinkProcess("crm", lake.settings)
    process.start()
    wait(lambda: state.read(lake.lake, "crm").get("state") == "down")
    assert state.read(lake.lake, "crm")["waiting"] == 20
    target.port = port
    target.up()
    wait(lambda: sent(target) == silver(lake))
    process.stop()
    assert process.join(30)
    assert state.read(lake.lake, "crm")["waiting"] == 0
    assert cursors.read(lake.lake, "sink.crm") == 20


@pytest.mark.parametrize("order", ["table", "key"])
def test_rows_that_have_an_order_keep_it(lake_of: Callable[..., SmallLake], target: Target, order: str) -> None:
    """Every third call fails at first."""
    target.answer = lambda key, rows, tried: 503 if tried == 1 and int(key, 16) % 3 == 0 else OK
    lake = lake_of(order=order, key=["latency_ms"], rows_per_call=2, in_flight=4)
    for number in range(30):
        take(lake, latency=number % 5)
    deliver(lake)
    assert sent(target) == silver(lake)
    for latency in range(5):
        own = [row["_offset"] for row in target.rows() if row["latency_ms"] == latency]
        assert own == sorted(own)
    if order == "table":
        assert [row["_offset"] for row in target.rows()] == [row[2] for row in silver(lake)]
        assert target.most_at_once == 1


def test_no_more_calls_at_once_and_in_a_second_than_allowed(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.delay_s = 0.05
    lake = lake_of(rows_per_call=1, in_flight=4, calls_per_s=50)
    take(lake, 60)
    deliver(lake)
    times = [at for at, *_ in target.got]
    assert len(times) == 60
    assert target.most_at_once <= 4
    assert times[-1] - times[0] >= 59 / 50 - 0.1


def wait(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_crash_sends_what_has_no_answer_again_under_equal_keys(
    lake_of: Callable[..., SmallLake], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger cannot be written: what the target has accepted is not known after the next start."""
    lake = lake_of(rows_per_call=2)
    take(lake, 10)

    def full(self: Ledger, lines: Any) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "write", full)
        opened = open_sink(lake)
        with pytest.raises(OSError, match="no space"):
            opened.run(threading.Event())
        opened._lake.lease.release()
    assert len(target.accepted) > 0
    deliver(lake)
    assert sent(target) == silver(lake)
    assert len(target.accepted) == 5
    assert [calls[0] for calls in target.accepted.values()] == [calls[-1] for calls in target.accepted.values()]


def test_a_crash_before_the_cursor_plans_the_same_rows_anew(
    lake_of: Callable[..., SmallLake], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(begin="new")
    deliver(lake)
    take(lake, 5)
    with monkeypatch.context() as patched:
        patched.setattr(FollowerRunner, "flush", lambda self: (_ for _ in ()).throw(OSError("no space")))
        opened = open_sink(lake)
        opened._runner.begin()
        with pytest.raises(OSError, match="no space"):
            opened._plan()
        opened._lake.lease.release()
    assert len(lake.lake.storage.list(f"{lake.lake.sink('crm')}/plans")) == 1
    deliver(lake)
    assert sent(target) == silver(lake)


@pytest.mark.parametrize("begin", ["all", "new"])
def test_a_crash_before_the_first_cursor_loses_no_unit(
    lake_of: Callable[..., SmallLake], target: Target, begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink has begun, and units come before it begins again: it was in the settings all the time."""
    lake = lake_of(begin=begin)
    take(lake, 2)
    for _ in range(2):
        opened = open_sink(lake)
        with monkeypatch.context() as patched:
            patched.setattr(cursors, "store", lambda *_: (_ for _ in ()).throw(OSError("no space")))
            with pytest.raises(OSError, match="no space"):
                opened._runner.begin()
        opened._lake.lease.release()
        assert cursors.read(lake.lake, "sink.crm") is None
        take(lake, 2)
    deliver(lake)
    offsets = sorted(row["_offset"] for row in target.rows())
    assert offsets == ([0, 2, 4, 6, 8, 10] if begin == "all" else [4, 6, 8, 10])


def test_another_process_waits_for_the_sink(lake_of: Callable[..., SmallLake]) -> None:
    lake = lake_of()
    first = Lake(lake.lake.address, "crm")
    first.storage.create_folders(lake.lake.sink("crm"))
    first.lease.acquire()
    with pytest.raises(Exception, match="for sink crm is in use by another process"):
        Lake(lake.lake.address, "crm").lease.acquire(0.1)
    lake.lake.lease.acquire(0.1)  # that of the app is another one


def test_rows_are_found_where_compaction_has_put_them(lake_of: Callable[..., SmallLake], target: Target) -> None:
    """The target is down until the files of the units are merged and removed."""
    target.answer = lambda key, rows, tried: 503
    lake = lake_of(begin="new", where="latency_ms = 1")
    process = SinkProcess("crm", lake.settings)
    process.start()
    wait(lambda: cursors.read(lake.lake, "sink.crm") is not None)
    for _ in range(6):
        take(lake, latency=1)
        take(lake, latency=2)
    wait(lambda: cursors.read(lake.lake, "sink.crm") == 12)
    table = DeltaTable(str(lake.lake.path("silver_uno_events")))
    merged = table.to_pyarrow_table().sort_by([("_offset", "descending")])
    write_deltalake(table, merged, mode="overwrite")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    target.answer = lambda key, rows, tried: OK
    wait(lambda: state.read(lake.lake, "crm").get("accepted") == 6)
    process.stop()
    assert process.join(30)
    assert sent(target) == silver(lake)[::2]


def test_rows_that_silver_has_no_longer_are_counted(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: 503
    lake = lake_of(rows_per_call=2)
    take(lake, 6)
    process = SinkProcess("crm", lake.settings)
    process.start()
    wait(lambda: state.read(lake.lake, "crm").get("state") == "down")
    process.stop()
    assert process.join(30)
    table = DeltaTable(str(lake.lake.path("silver_uno_events")))
    write_deltalake(table, table.to_pyarrow_table().filter(pc.field("_offset") > 4), mode="overwrite")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    target.answer = lambda key, rows, tried: OK
    deliver(lake)
    assert [row[2] for row in sent(target)] == [6, 8, 10]
    assert state.read(lake.lake, "crm")["gone"] == 3
    assert sorted(line.result for line in ledger(lake)) == ["accepted", "accepted", "gone"]


def test_a_renewal_sends_nothing_again(lake_of: Callable[..., SmallLake], target: Target) -> None:
    lake = lake_of()
    take(lake, 3)
    deliver(lake)
    units = lake.opened.units.manifests
    last = units.read(units.last)
    own = {table: change for table, change in last.tables.items() if table == "silver_uno_events"}
    counts = {**last.counts, "bronze": 1, "quarantine": {}}
    units.commit(replace(last, sequence=units.last + 1, kind="renew", source={}, tables=own, counts=counts))
    units.mark_applied(units.last)
    deliver(lake)
    assert len(sent(target)) == 3
    assert cursors.read(lake.lake, "sink.crm") == 4


def test_the_app_moves_the_ledger_into_tables(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: 400 if any(row["_offset"] == 2 for row in rows) else OK
    lake = lake_of(rows_per_call=4)
    take(lake, 8)
    deliver(lake)
    lines = ledger(lake)
    moving = moving_of(lake)
    for _ in range(2):
        moving.call()
        moving.flush()
    calls = pl.read_delta(str(lake.lake.path("sink_calls"))).select("key", "result").rows()
    assert sorted(calls) == sorted((line.key, line.result) for line in lines)
    [reject] = DeltaTable(str(lake.lake.path("sink_rejects"))).to_pyarrow_table().to_pylist()
    assert (json.loads(reject["row"])["_offset"], reject["status"], reject["sink"]) == (2, 400, "crm")
    target.answer = lambda key, rows, tried: OK
    assert "1 rejected rows" in people.send_rejected(lake.lake, lake.settings, "crm")
    deliver(lake)
    assert sent(target) == silver(lake)
    assert lake.audit().faults() == {}


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ([], [(0, 8, 0)]),
        ([(0, 8, "accepted")], []),
        ([(0, 8, "divided")], [(0, 8, 8)]),
        ([(0, 8, "divided"), (0, 4, "accepted")], [(4, 8, 8)]),
        ([(0, 8, "divided"), (0, 4, "divided"), (0, 2, "accepted")], [(2, 8, 4)]),
        ([(0, 8, "divided"), (0, 4, "divided"), (0, 2, "divided"), (0, 1, "rejected")], [(1, 8, 2)]),
        (
            [(0, 8, "divided"), (0, 1, "accepted"), (1, 3, "divided"), (1, 2, "accepted"), (2, 3, "rejected")],
            [(3, 8, 0)],
        ),
    ],
)
def test_a_division_goes_on_where_it_was(lines: list[tuple[int, int, Any]], left: list[tuple[int, int, int]]) -> None:
    made = [Line("p", 0, start, stop, "k", "t", 1, result, 0, 1, 0.0, 0) for start, stop, result in lines]
    assert open_spans(0, 8, made) == left


def test_the_audit_finds_what_a_receiver_has_not_got(
    lake_of: Callable[..., SmallLake], target: Target, tmp_path: Path
) -> None:
    target.answer = lambda key, rows, tried: 400 if any(row["_offset"] == 2 for row in rows) else OK
    lake = lake_of(begin="new", where="latency_ms = 1", rows_per_call=2)
    take(lake, 2)
    deliver(lake)
    take(lake, 2, latency=2)
    take(lake, 8)
    deliver(lake)
    calls = [{"key": key, "rows": rows} for key, several in target.accepted.items() for rows in several]

    def found(*calls: dict[str, Any]) -> dict[str, Any]:
        log = tmp_path / "received.jsonl"
        log.write_text("".join(json.dumps(call) + "\n" for call in calls) + '{"key": "cut')
        return audit_sink(lake.settings, "crm", log).faults()

    assert found(*calls, calls[0]) == {}
    first, *others = calls
    offset = first["rows"][0]["_offset"]
    assert found(*others)["lost"][0] == len(first["rows"])
    assert found(*calls, {**first, "key": "other"})["doubled"][0] == len(first["rows"])
    changed = {**first, "rows": [{**first["rows"][0], "gamer_id": "x"}, *first["rows"][1:]]}
    assert [one.what for one in found(changed, *others)["altered"][1]] == [f"t/0@{offset}"]
    strange = {"key": "k", "rows": [{**first["rows"][0], "_offset": 999}]}
    assert [one.what for one in found(*calls, strange)["phantom"][1]] == ["t/0@999"]
    assert found(*others, {**first, "rows": first["rows"][:1]}, first)["altered"][0] == 1


def test_what_cannot_be_planned_ends_with_a_reason_and_sending_goes_on(
    lake_of: Callable[..., SmallLake], target: Target
) -> None:
    lake = lake_of(begin="new")
    deliver(lake)
    take(lake, 2)
    settings = lake.settings.sinks["crm"].model_copy(update={"where": "latency > 5"})
    wrong = lake.settings.model_copy(update={"sinks": {"crm": settings}})
    process = SinkProcess("crm", wrong, once=True)
    process.start()
    assert process.join(60)
    assert "sinks.crm.where: no column has the name latency" in process.failed
    assert state.read(lake.lake, "crm")["state"] == "failed"
    deliver(lake)
    assert sent(target) == silver(lake)


def test_the_ledger_is_removed_when_the_app_has_moved_it(
    lake_of: Callable[..., SmallLake], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_app.lake.spool.PER_FILE", 1)
    lake = lake_of(rows_per_call=1, in_flight=1)
    moving = moving_of(lake)
    for _ in range(4):
        take(lake, 3)
        deliver(lake)
        moving.call()
    deliver(lake)
    assert len(lake.lake.storage.list(f"{lake.lake.sink('crm')}/ledger")) == 1


def test_rejected_rows_of_an_ordered_sink_are_sent_again(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: 400 if any(row["_offset"] == 2 for row in rows) else OK
    lake = lake_of(order="key", key=["gamer_id"])
    take(lake, 4)
    deliver(lake)
    target.answer = lambda key, rows, tried: OK
    people.send_rejected(lake.lake, lake.settings, "crm")
    take(lake)
    deliver(lake)
    assert sent(target) == silver(lake)


def test_plans_of_other_lanes_are_not_sent_side_by_side(lake_of: Callable[..., SmallLake], target: Target) -> None:
    """The rows of a key keep their order although the number of calls at a time is another one after a start."""
    target.answer = lambda key, rows, tried: 503
    lake = lake_of(order="key", key=["latency_ms"], begin="new", rows_per_call=1, in_flight=3)
    deliver(lake)
    for latency in range(40):
        take(lake, latency=latency % 10)
    opened = open_sink(lake)
    opened._runner.call()
    opened._runner.flush()
    opened._lake.lease.release()
    changed = lake.settings.sinks["crm"].model_copy(update={"in_flight": 16})
    lake.reopen(sinks={"crm": changed.model_dump()})
    for latency in range(40):
        take(lake, latency=latency % 10)
    target.answer = lambda key, rows, tried: OK
    deliver(lake)
    assert sent(target) == silver(lake)
    for latency in range(10):
        own = [row["_offset"] for row in target.rows() if row["latency_ms"] == latency]
        assert own == sorted(own)


def test_a_sink_that_was_not_in_the_settings_keeps_what_was_planned(
    lake_of: Callable[..., SmallLake], target: Target
) -> None:
    target.answer = lambda key, rows, tried: 503
    lake = lake_of()
    take(lake, 3)
    process = SinkProcess("crm", lake.settings)
    process.start()
    wait(lambda: state.read(lake.lake, "crm").get("state") == "down")
    process.stop()
    assert process.join(30)
    state.leave(lake.lake, "crm")  # as the app does without the sink
    lake.lake.storage.delete(cursors.key_of(lake.lake, "sink.crm"))
    take(lake, 2)
    target.answer = lambda key, rows, tried: OK
    deliver(lake)
    take(lake, 1)
    deliver(lake)
    assert sent(target) == [*silver(lake)[:3], silver(lake)[5]]


def test_a_process_that_has_lost_its_lease_removes_nothing(
    lake_of: Callable[..., SmallLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(begin="new")
    deliver(lake)
    take(lake, 2)
    opened = open_sink(lake)
    opened._runner.begin()
    other = open_sink_of_another(lake)
    other._plan()

    def lost() -> None:
        raise LeaseLost("another process")

    monkeypatch.setattr(opened._lake.lease, "check", lost)
    with pytest.raises(LeaseLost):
        opened._plan()
    with pytest.raises(LeaseLost):
        opened._plan()
    assert len(lake.lake.storage.list(f"{lake.lake.sink('crm')}/plans")) == 1


def open_sink_of_another(lake: SmallLake) -> OpenSink:
    own = Lake(lake.lake.address, "crm")
    return OpenSink(own, "crm", lake.settings, 0, threading.Event())


def test_the_target_is_told_whom_to_forget(lake_of: Callable[..., SmallLake], target: Target) -> None:
    target.answer = lambda key, rows, tried: 400 if not rows else OK
    lake = lake_of({"on_erase": f"{target.url}/players/{{key}}"})
    take(lake, 2)
    state.request(lake.lake, "crm", {"erase": ["a/b", "someone"]})
    deliver(lake)
    told = [(method, path) for _, method, path, _ in target.got if method == "DELETE"]
    assert sorted(told) == [("DELETE", "/players/a%2Fb"), ("DELETE", "/players/someone")]
    assert sent(target) == silver(lake)
    assert [line.result for line in ledger(lake) if not line.table] == ["rejected", "rejected"]
    left = [path.read_bytes() for path in lake.lake.path(lake.lake.sink("crm")).rglob("*") if path.is_file()]
    assert [data for data in left if b"someone" in data] == []
    people.send_rejected(lake.lake, lake.settings, "crm")  # whom the target did not forget is no row to send again
    deliver(lake)
    assert sent(target) == silver(lake)
    target.answer = lambda key, rows, tried: OK
    state.request(lake.lake, "crm", {"erase": ["someone"]})
    deliver(lake)
    assert ledger(lake)[-1].result == "accepted"


def test_plans_of_requests_come_behind_the_others_of_their_unit(tmp_path: Path) -> None:
    """So no row that is planned anew comes before the one that it repeats."""
    lake = SmallLake(tmp_path / "lake", EVENTS).lake
    made = [(42, 0, ""), (42, 1, ""), (42, 0, "a"), (42, 101, "a"), (42, 1000, "a"), (42, 0, "b"), (43, 0, "")]
    due = [number_of(*one) for one in made]
    for number in random.sample(due, len(due)):
        lake.storage.create_folders("_protolake/sinks/x/plans")
        lake.storage.put_if_absent(f"_protolake/sinks/x/plans/{number}.plan", b"", True)
    assert Plans(lake, "_protolake/sinks/x").numbers() == due
