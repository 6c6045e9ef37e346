"""Changes of gold and of tables by SQL: the newest row of each changed key leaves, and what is gone is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_app.followers.sinks import state
from spark_app.followers.sinks.process import SinkProcess
from spark_app.followers.sinks.sink import Outcome
from tests.support.event_lakes import take
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN
from tests.support.targets import OK, Target, open_sink

GOLD = pa.schema([("gamer_id", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
Rows = list[dict[str, Any]]


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target().up()
    yield made
    made.down()


class Sent:
    """A lake with a sink from gold, or from another table."""

    def __init__(self, root: Path, target: Target, table: str = "gold_uno_player_agg", **sink: Any):
        self.target = target
        rest = {"url": f"{target.url}/{{name}}", "allow_private": True}
        settings = {"from": "gold", "rest": rest, **sink}
        self.lake = SmallLake(root / "lake", EVENTS, GROWN, sinks={"crm": settings})
        take(self.lake)
        self._table = self.lake.lake.path(table)

    def write(self, *rows: tuple[str | None, int | None]) -> None:
        made = [{"gamer_id": name, "n": count, "tags": [str(count)]} for name, count in rows]
        write_deltalake(str(self._table), pa.Table.from_pylist(made, GOLD), mode="overwrite")

    def deliver(self) -> list[tuple[str | None, int | None, str]]:
        """(key, value, operation) of the rows that were accepted this time."""
        self.target.accepted.clear()
        process = SinkProcess("crm", self.lake.settings, once=True)
        process.start()
        assert process.join(60), state.read(self.lake.lake, "crm")
        rows = [(row["gamer_id"], row["n"], row["_op"]) for row in self.target.rows()]
        return sorted(rows, key=repr)


def test_new_changed_and_gone_rows_leave_and_no_others(tmp_path: Path, target: Target) -> None:
    sent = Sent(tmp_path, target)
    sent.write(("a", 1), ("b", 1), (None, 1), ("d", 1))
    assert sent.deliver() == [("a", 1, "upsert"), ("b", 1, "upsert"), ("d", 1, "upsert"), (None, 1, "upsert")]
    assert sent.deliver() == []
    sent.write(("a", 1), ("b", 2), (None, None), ("e", 1))
    expected = [("b", 2, "upsert"), ("d", None, "delete"), ("e", 1, "upsert"), (None, None, "upsert")]
    assert sent.deliver() == expected
    sent.write(("e", 1), (None, None), ("b", 2), ("a", 1))
    assert sent.deliver() == []
    sent.write()
    assert {op for *_, op in sent.deliver()} == {"delete"}


def test_a_condition_that_a_row_no_longer_meets_is_its_end(tmp_path: Path, target: Target) -> None:
    sent = Sent(tmp_path, target, where="n > 1", columns=["n"])
    sent.write(("a", 1), ("b", 2))
    assert sent.deliver() == [("b", 2, "upsert")]
    sent.write(("a", 2), ("b", 1))
    assert sent.deliver() == [("a", 2, "upsert"), ("b", None, "delete")]


@pytest.mark.parametrize("step", ["plans", "sent", "state"])
def test_a_crash_while_it_plans_loses_no_change(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The round ends before its plan, behind it, or behind the hashes."""
    sent = Sent(tmp_path, target)
    sent.write(("a", 1), ("b", 1))
    assert len(sent.deliver()) == 2
    sent.write(("a", 2), ("b", 1), ("c", 1))
    opened = open_sink(sent.lake)
    opened._runner.begin()
    planner = opened._planner
    with monkeypatch.context() as patched:
        failing = {"plans": "_plans", "sent": "_sent_files"}.get(step)

        def fail(*_: Any) -> None:
            raise OSError("no space")

        if failing:
            patched.setattr(getattr(planner, failing), "store", fail)
        else:
            patched.setattr("spark_app.followers.sinks.changes.write_durably", fail)
        with pytest.raises(OSError, match="no space"):
            opened._runner.call()
    opened._lake.lease.release()
    assert sent.deliver() == [("a", 2, "upsert"), ("c", 1, "upsert")]


def test_the_values_of_a_plan_stay_those_that_were_planned(tmp_path: Path, target: Target) -> None:
    """While the target is down a key gets two more values: each is a call of its own, and the newest comes last."""
    sent = Sent(tmp_path, target, in_flight=8)
    target.answer = lambda key, rows, tried: 503
    for count in (1, 2, 3):
        sent.write(("a", count), ("b", 7))
        opened = open_sink(sent.lake)
        opened._runner.call()
        opened._lake.lease.release()
    target.answer = lambda key, rows, tried: OK if tried > 1 or hash(key) % 2 else 503
    sent.deliver()
    assert [row["n"] for row in target.rows() if row["gamer_id"] == "a"] == [1, 2, 3]
    assert [row["n"] for row in target.rows() if row["gamer_id"] == "b"] == [7]


def test_a_table_by_sql_needs_a_key_or_a_kind_that_replaces(tmp_path: Path, target: Target) -> None:
    sent = Sent(tmp_path, target, "board", **{"from": "board"})
    sent.write(("a", 1))
    opened = open_sink(sent.lake)
    with pytest.raises(Exception, match=r"sinks.crm.key: no columns name the rows of board"):
        opened._runner.call()
    opened._lake.lease.release()
    rest = sent.lake.settings.sinks["crm"].model_dump() | {"key": ["gamer_id"]}
    sent.lake.reopen(sinks={"crm": rest})
    assert sent.deliver() == [("a", 1, "upsert")]


def test_everything_is_sent_again_when_somebody_asks(tmp_path: Path, target: Target) -> None:
    sent = Sent(tmp_path, target)
    sent.write(("a", 1), ("b", 1))
    sent.deliver()
    sent.write(("a", 1))
    state.request(sent.lake.lake, "crm", {"from": 1})
    assert sent.deliver() == [("a", 1, "upsert"), ("b", None, "delete")]
    assert sent.deliver() == []


@pytest.mark.parametrize("changed", ["key", "target"])
def test_another_key_or_another_target_gets_all_rows(tmp_path: Path, target: Target, changed: str) -> None:
    sent = Sent(tmp_path, target)
    sent.write(("a", 1), ("b", 1))
    sent.deliver()
    own = sent.lake.settings.sinks["crm"].model_dump()
    if changed == "key":
        own["key"] = ["gamer_id", "n"]
    else:
        own["rest"]["url"] += "/other"
    sent.lake.reopen(sinks={"crm": own})
    sent.write(("a", 1), ("b", 1))
    assert sent.deliver() == [("a", 1, "upsert"), ("b", 1, "upsert")]
    assert sent.deliver() == []


class Replacing:
    """A target that has a table: a call that replaces it, and that may be refused or find nobody."""

    can_replace = True

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.calls: list[int] = []
        self.answers: list[Any] = []

    def open(self, options: Any) -> None:
        pass

    def send(self, calls: Any) -> list[Outcome]:
        [call] = calls
        assert call.replaces
        self.calls.append(len(call.rows))
        result = self.answers.pop(0) if self.answers else "accepted"
        if result == "accepted":
            self.rows = [row["n"] for row in call.objects]
        return [Outcome(call.key, result)]

    def close(self) -> None:
        pass


def test_a_table_without_key_is_replaced_by_one_call(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(tmp_path, target, "board", **{"from": "board", "rows_per_call": 2})
    kind = Replacing()
    monkeypatch.setattr("spark_app.followers.sinks.open_sink.sink_of", lambda *_: kind)
    sent.write(*((f"p{number}", number) for number in range(5)))
    sent.deliver()
    assert (kind.calls, kind.rows) == ([5], [0, 1, 2, 3, 4])
    sent.deliver()
    assert kind.calls == [5]
    kind.answers = ["refused"]  # it is not divided: a part would replace the whole
    sent.write(("a", 9), ("b", 8))
    sent.deliver()
    assert (kind.calls, kind.rows) == ([5, 2], [0, 1, 2, 3, 4])
    kind.answers = ["unavailable"] * 3
    for count in (1, 2, 3):
        sent.write(*((f"p{number}", count) for number in range(count)))
        opened = open_sink(sent.lake)
        opened._runner.call()
        opened._lake.lease.release()
    sent.deliver()
    assert kind.rows == [3, 3, 3]
    sent.write()
    sent.deliver()
    assert kind.rows == []
