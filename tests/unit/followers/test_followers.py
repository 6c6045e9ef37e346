"""What reads the units beside ingest: which manifests are kept for it, and what becomes of one that is far behind."""

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_app.app.text.status import status_lines
from spark_app.followers.kept_manifests import KeptManifests
from spark_app.followers.thread import FollowerThread
from spark_app.lake.delta.manifest import Manifest, Manifests, counts_of
from spark_app.lake.lake import Lake
from spark_app.model.events import Event
from spark_app.model.reports import Report
from spark_app.units.driver.status import Status

MOST = 1 << 30


@dataclass
class Slow:
    """A follower that has the units up to `unit`."""

    unit: int = 0
    name: str = "slow"
    interval_s: float = 0.01
    why: str | None = None
    calls: int = 0
    fails: bool = False

    def cursor(self) -> int:
        return self.unit

    def durable(self) -> int:
        return self.unit

    def paused(self) -> str | None:
        return self.why

    def close(self) -> None:
        pass

    def follow(self) -> None:
        self.calls += 1
        if self.fails:
            raise OSError("no luck")


@pytest.fixture
def manifests(tmp_path: Path) -> Manifests:
    """Ten applied units."""
    lake = Lake(tmp_path)
    lake.prepare()
    made = Manifests(lake)
    for number in range(1, 11):
        made.commit(Manifest(number, "deferred", {}, {}, counts_of(Report())))
    made.mark_applied(10)
    return made


def test_what_a_follower_lacks_is_kept(manifests: Manifests) -> None:
    slow, fast = Slow(4), Slow(9, "fast")
    kept = KeptManifests(manifests, [slow, fast], MOST)
    kept.forget(keep=1, durable=10)
    assert manifests.numbers() == [5, 6, 7, 8, 9, 10]
    slow.unit = 10
    kept.forget(keep=1, durable=10)
    assert manifests.numbers() == [10]


def test_a_unit_that_is_committed_while_the_manifests_are_listed_is_not_gone(
    manifests: Manifests, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = manifests.numbers()

    def numbers() -> list[int]:
        manifests.commit(Manifest(manifests.last + 1, "deferred", {}, {}, counts_of(Report())))
        return listed

    monkeypatch.setattr(manifests, "numbers", numbers)
    assert manifests.gone_until(4) == 0


def test_units_that_are_not_durable_are_kept_as_ever(manifests: Manifests) -> None:
    KeptManifests(manifests, [Slow(10)], MOST).forget(keep=1, durable=7)
    assert manifests.numbers() == [8, 9, 10]


def test_a_follower_holds_so_many_bytes_and_no_more(manifests: Manifests, capfd: pytest.CaptureFixture[str]) -> None:
    size = len(manifests.read(10).text)
    told: list[Event] = []
    kept = KeptManifests(manifests, [Slow(2)], 4 * size, told.append)
    for _ in range(3):
        kept.forget(keep=1, durable=10)
    left = manifests.numbers()
    assert left == list(range(left[0], 11))
    assert 2 <= len(left) <= 4
    assert manifests.gone_until(2) == left[0] - 1
    assert manifests.gone_until(left[0] - 1) == 0
    assert capfd.readouterr().err.count("too far behind") == 1
    (event,) = told
    assert (event.kind, event.level, event.details["name"]) == ("follower", "ERROR", "slow")
    assert event.details["units"][0] == 3


def test_manifests_that_are_kept_anyway_are_not_told_as_removed(
    manifests: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    KeptManifests(manifests, [Slow(2)], 1).forget(keep=8, durable=10)
    assert manifests.numbers() == [3, 4, 5, 6, 7, 8, 9, 10]
    assert "too far behind" not in capfd.readouterr().err


def test_the_status_says_how_far_each_is_behind(manifests: Manifests, tmp_path: Path) -> None:
    kept = KeptManifests(manifests, [Slow(10), Slow(4, "late", why="run it"), Slow(9, "broken")], MOST)
    status = Status(Lake(tmp_path), manifests._layout)
    status.followers_of = lambda: kept.describe({"slow": None, "broken": "no luck"})
    status.end("stopped", None)
    assert status.value["followers"]["late"] == {"unit": 4, "lag": 6, "paused": "run it", "failed": None}
    lines = status_lines(status.value)
    assert "follower    late is 6 units behind; paused: run it" in lines
    assert "follower    broken is 1 units behind; it failed last: no luck" in lines
    assert not any("slow" in line for line in lines)


def test_a_thread_calls_its_follower_until_the_app_stops(capfd: pytest.CaptureFixture[str]) -> None:
    stop, slow = threading.Event(), Slow(fails=True)
    thread = FollowerThread(slow, stop)
    thread.start()
    while slow.calls < 3:
        stop.wait(0.001)
    stop.set()
    assert thread.join()
    assert thread.calls == 2 * slow.calls
    assert "a follower failed" in capfd.readouterr().err
    with pytest.raises(OSError, match="no luck"):
        thread.call()
    assert thread.failed == "no luck"
    slow.fails = False
    thread.call()
    assert thread.failed is None


def test_a_follower_rests_while_it_must_not_run() -> None:
    stop, slow, asked = threading.Event(), Slow(), threading.Event()
    thread = FollowerThread(slow, stop, rests=lambda: bool(asked.set() or True))
    thread.start()
    assert asked.wait(5)
    stop.set()
    assert thread.join()
    assert slow.calls == 0
