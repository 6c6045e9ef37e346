"""The number of executors follows the load: up within seconds, down after a calm while."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from spark_app.model.events import Event
from spark_app.units.driver.executor_watch import KEEP_S, ExecutorCount, ExecutorScaling
from spark_app.units.spark import jvm
from spark_app.units.spark.jvm import ExecutorWork

LOOK_S = 3.0


class Cluster:
    """Executors of one core that are there as soon as they are asked for."""

    def __init__(self, count: ExecutorCount, have: int):
        self.count, self.have, self.now = count, have, 100.0
        self.worked = {str(number): 0.0 for number in range(have)}

    def look(self, busy: float, looks: int = 1) -> int:
        """Let the executors be busy for some looks: `busy` cores, at most all of them."""
        for _ in range(looks):
            self.now += LOOK_S
            for name in self.worked:
                self.worked[name] += LOOK_S * min(1.0, busy / len(self.worked))
            works = {name: ExecutorWork(1, seconds, 0) for name, seconds in self.worked.items()}
            wanted = self.count.choose(self.now, works)
            names = list(self.worked)[:wanted]
            self.worked = {name: self.worked[name] for name in names}
            self.worked |= {f"{self.now} {n}": 0.0 for n in range(wanted - len(names))}
        return len(self.worked)


def test_a_backlog_gets_all_executors_within_half_a_minute() -> None:
    cluster = Cluster(ExecutorCount(1, 16, 60), 1)
    assert cluster.look(0.0, looks=22) == 1
    assert cluster.look(16.0, looks=9) == 16


def test_idle_executors_are_given_back_after_the_calm_while_and_not_before() -> None:
    cluster = Cluster(ExecutorCount(2, 16, 60), 16)
    assert cluster.look(16.0, looks=10) == 16
    assert cluster.look(0.0, looks=19) == 16
    assert cluster.look(0.0, looks=3) == 2


def test_a_trickle_that_keeps_every_executor_a_little_busy_gives_most_of_them_back() -> None:
    cluster = Cluster(ExecutorCount(1, 8, 60), 8)
    assert cluster.look(0.5, looks=40) == 1


def test_a_steady_load_keeps_what_it_fills() -> None:
    cluster = Cluster(ExecutorCount(1, 16, 60), 16)
    assert cluster.look(2.9, looks=40) == 5
    assert cluster.look(2.9, looks=200) == 5


def test_a_short_pause_of_a_load_gives_nothing_back() -> None:
    cluster = Cluster(ExecutorCount(1, 8, 60), 8)
    for _ in range(10):
        assert cluster.look(4.5, looks=5) == 8
        assert cluster.look(0.0, looks=10) == 8


def test_a_start_asks_for_all_that_may_be_had() -> None:
    count = ExecutorCount(1, 8, 60)
    assert [count.choose(LOOK_S * look, {}) for look in range(5)] == [8] * 5


def test_work_of_an_executor_that_died_is_not_counted_against_the_others() -> None:
    count = ExecutorCount(1, 8, 3)
    count.choose(0.0, {"1": ExecutorWork(1, 1000.0, 0), "2": ExecutorWork(1, 1000.0, 0)})
    assert count.choose(3.0, {"2": ExecutorWork(1, 1003.0, 0)}) == 2


def test_the_loss_of_all_executors_is_no_calm() -> None:
    cluster = Cluster(ExecutorCount(1, 8, 60), 8)
    assert cluster.look(8.0, looks=30) == 8
    assert cluster.count.choose(cluster.now + LOOK_S, {}) == 8


def test_tasks_that_run_for_longer_than_the_calm_while_keep_their_executors() -> None:
    count = ExecutorCount(1, 8, 60)
    works = {name: ExecutorWork(2, 5.0, 2) for name in "abcd"}
    assert [count.choose(LOOK_S * look, works) for look in range(60)][-1] == 7
    ended = {name: ExecutorWork(2, 5.0 + 2 * 177.0, 0) for name in "abcd"}
    assert count.choose(LOOK_S * 60, ended) == 7


@given(
    least=st.integers(1, 5),
    more=st.integers(0, 20),
    looks=st.lists(
        st.dictionaries(
            st.sampled_from("abcdef"), st.builds(ExecutorWork, st.integers(1, 9), st.floats(0, 1e6), st.integers(0, 9))
        ),
        max_size=30,
    ),
)
def test_whatever_is_seen_the_number_is_between_its_bounds(
    least: int, more: int, looks: list[dict[str, ExecutorWork]]
) -> None:
    count = ExecutorCount(least, least + more, 10)
    for number, works in enumerate(looks):
        assert least <= count.choose(number * 3.0, works) <= least + more


class Master:
    """What the JVM says and is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.works = {str(number): ExecutorWork(1, 0.0, 0) for number in range(6, 12)}
        self.answers: bool | Exception = True
        self.asked: list[int] = []
        self.released: list[list[str]] = []
        monkeypatch.setattr(jvm, "executor_work", lambda _: self.works)
        monkeypatch.setattr(jvm, "request_executors", self.request)
        monkeypatch.setattr(jvm, "release_executors", lambda _, names: self.released.append(names))

    def request(self, _: object, number: int) -> bool:
        self.asked.append(number)
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    return Master(monkeypatch)


def scaling(told: list[Event]) -> ExecutorScaling:
    status: Any = SimpleNamespace(set_executors=lambda executors: None)
    settings: Any = SimpleNamespace(min_executors=1, max_executors=4, executor_calm_s=60)
    return ExecutorScaling(cast(Any, None), settings, status, told.append)


def test_the_newest_are_given_back_while_no_task_runs(master: Master) -> None:
    """While one runs, an executor without a task may hold rows that it will ask for."""
    told: list[Event] = []
    one = scaling(told)
    master.works["9"] = ExecutorWork(1, 0.0, 1)
    one.look()
    assert (master.asked, master.released) == ([4], [])
    one._surplus_since = time.monotonic() - KEEP_S - 1
    one.look()
    assert master.released.pop() == ["11", "10"]
    master.works["9"], master.asked = ExecutorWork(1, 3.0, 0), []
    one.look()
    assert (master.asked, master.released) == ([4], [["11", "10"]])
    assert [event.details for event in told] == [{"wanted": 4, "now": 6}]


def test_a_master_that_was_restarted_is_told_again(master: Master) -> None:
    one = scaling([])
    for _ in range(3):
        one.look()
    assert master.asked == [4, 4, 4]


@pytest.mark.parametrize("answers", [False, Py4JError("the master is down"), OSError("gone")])
def test_nothing_is_given_back_while_the_cluster_does_not_answer(master: Master, answers: bool | Exception) -> None:
    told: list[Event] = []
    one = scaling(told)
    master.answers = answers
    one.look()
    assert (master.released, told) == ([], [])
    master.answers = True
    one.look()
    assert (len(master.released), len(told)) == (1, 1)
