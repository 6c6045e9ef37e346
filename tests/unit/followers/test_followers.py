"""What reads the units beside ingest: its cursor, the manifests that are kept for it, and one that is far behind."""

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_app.app.text import status_lines
from spark_app.audit.snapshot import Snapshot
from spark_app.followers.follower import Follower, Units
from spark_app.followers.runner import FollowerRunner, Followers
from spark_app.lake import cursors
from spark_app.lake.delta.manifest import Manifest, Manifests, counts_of
from spark_app.lake.files.state_files import write_quickly
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.model.events import Event
from spark_app.model.reports import Report
from spark_app.units.driver.status import Status, StatusSources
from tests.support.event_lakes import lake_of, take

MOST = 1 << 30


class Slow(Follower):
    """A follower that takes the units up to `until`."""

    interval_s = 0.01

    def __init__(self, until: int = 0, name: str = "slow", rests: bool = False):
        self.until = until
        self.name = name
        self.taken: list[int] = []
        self.calls = self.flushes = 0
        self.asked = threading.Event()
        self.fails = False
        self._rests = rests

    def begin(self, stored: int | None, newest: int) -> int:
        return stored or 0

    def follow(self, units: Units) -> int:
        self.calls += 1
        if self.fails:
            raise OSError("no luck")
        self.taken += [unit.sequence for unit in units if unit.sequence <= self.until]
        return max([units.after, *self.taken[-1:]])

    def flush(self) -> None:
        self.flushes += 1

    def rests(self) -> bool:
        self.asked.set()
        return self._rests


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.prepare()
    return made


@pytest.fixture
def manifests(lake: Lake) -> Manifests:
    """Ten applied units."""
    made = Manifests(lake)
    for number in range(1, 11):
        made.commit(Manifest(number, "deferred", {}, {}, counts_of(Report())))
    made.mark_applied(10)
    return made


def run(lake: Lake, manifests: Manifests, *followers: Slow, most: int = MOST, **options: Any) -> Followers:
    """The followers, which have taken what they want."""
    running = Followers(followers, lake, manifests, threading.Event(), most, **options)
    for follower in followers:
        running[follower.name].call()
        running[follower.name].flush()
    return running


def test_what_a_follower_lacks_is_kept(lake: Lake, manifests: Manifests) -> None:
    slow, fast = Slow(4), Slow(9, "fast")
    running = run(lake, manifests, slow, fast)
    running.forget(keep=1, durable=10)
    assert manifests.numbers() == [5, 6, 7, 8, 9, 10]
    slow.until = 10
    running["slow"].call()
    running.forget(keep=1, durable=10)
    assert manifests.numbers() == [5, 6, 7, 8, 9, 10]  # the cursor is not stored yet
    running["slow"].flush()
    running.forget(keep=1, durable=10)
    assert manifests.numbers() == [10]


def test_each_unit_is_given_once_also_to_the_next_process(lake: Lake, manifests: Manifests) -> None:
    slow = Slow(4)
    run(lake, manifests, slow)
    assert json.loads((lake.path(lake.followers) / "slow.json").read_text()) == {"unit": 4}
    again = Slow(10)
    running = run(lake, manifests, again)
    assert (slow.taken, again.taken) == ([1, 2, 3, 4], [5, 6, 7, 8, 9, 10])
    running["slow"].call()
    assert again.taken == [5, 6, 7, 8, 9, 10]


def test_what_is_not_flushed_is_given_again(lake: Lake, manifests: Manifests) -> None:
    running = run(lake, manifests, Slow(4))
    running["slow"]._follower.until = 6  # type: ignore[attr-defined]
    running["slow"].call()
    again = Slow(10)
    run(lake, manifests, again)
    assert again.taken == [5, 6, 7, 8, 9, 10]


def test_a_follower_goes_on_from_a_unit_that_a_person_names(lake: Lake, manifests: Manifests) -> None:
    run(lake, manifests, Slow(10))
    cursors.store(lake, "slow", 7)
    again = Slow(10)
    run(lake, manifests, again)
    assert again.taken == [8, 9, 10]


def test_a_new_follower_begins_with_the_next_unit(lake: Lake, manifests: Manifests) -> None:
    class New(Follower):
        name = "new"

        def follow(self, units: Units) -> int:
            assert list(units) == []
            return units.upto

    runner = FollowerRunner(New(), lake, manifests)
    runner.call()
    assert (runner.cursor, cursors.read(lake, "new")) == (10, 10)


def test_after_a_failure_the_same_units_are_given_again(lake: Lake, manifests: Manifests) -> None:
    slow = Slow(4)
    runner = FollowerRunner(slow, lake, manifests)
    slow.fails = True
    with pytest.raises(OSError, match="no luck"):
        runner.call()
    slow.fails = False
    runner.call()
    assert (slow.taken, runner.cursor, runner.failed) == ([1, 2, 3, 4], 4, None)


def test_the_cursor_of_another_process_keeps_manifests(lake: Lake, manifests: Manifests) -> None:
    cursors.store(lake, "deliver", 6)
    running = run(lake, manifests, Slow(10))
    running.forget(keep=1, durable=10)
    assert manifests.numbers() == [7, 8, 9, 10]
    assert running.describe()["deliver"] == {"unit": 6, "lag": 4, "paused": None, "failed": None}
    (lake.path(lake.followers) / "deliver.json").write_text("{")
    running.forget(keep=1, durable=10)  # what another process has done wrong holds nothing up
    assert manifests.numbers() == [7, 8, 9, 10]


def test_the_cursor_of_gold_in_an_older_lake_is_found(lake: Lake, manifests: Manifests) -> None:
    write_quickly(lake.storage, lake.synced, {"unit": 10, "folded": 7, "versions": {}}, None)
    assert cursors.read(lake, "gold") == 7
    gold = Slow(10, "gold")
    run(lake, manifests, gold)
    assert (gold.taken, cursors.read(lake, "gold")) == ([8, 9, 10], 10)


@pytest.mark.parametrize("text", ["{", '{"unit": 99}'])
def test_a_cursor_that_cannot_be_right_is_no_beginning(tmp_path: Path, text: str) -> None:
    small = lake_of(tmp_path)
    take(small)
    folder = small.lake.path(small.lake.followers)
    folder.mkdir()
    (folder / "slow.json").write_text(text)
    runner = FollowerRunner(Slow(10), small.lake, small.opened.units.manifests)
    with pytest.raises(ContractError, match=r"slow\.json"):
        runner.call()


def test_the_audit_reads_the_cursor_of_gold(tmp_path: Path) -> None:
    small = lake_of(tmp_path)
    take(small, 3)
    small.fold("_landed_at", unit=2)
    assert Snapshot.read(small.settings, 10).folded == {"player_agg": 2}
    cursors.store(small.lake, "gold", 3)
    assert Snapshot.read(small.settings, 10).folded == {"player_agg": 3}


def test_rows_are_read_by_columns(tmp_path: Path) -> None:
    small = lake_of(tmp_path)
    take(small, 2)
    units = Units.since(small.lake, small.opened.units.manifests, 1)
    (unit,) = units
    assert (unit.sequence, unit.kind, unit.at > 0, unit.replaces("silver_uno_events")) == (2, "ingest", True, False)
    assert sum(add.rows for add in unit.tables["silver_uno_events"].adds) == 1
    read = pa.Table.from_batches(units.rows(unit, "silver_uno_events", ["gamer_id", "nothing"]))
    assert read.to_pylist() == [{"gamer_id": "g2", "nothing": None}]
    (whole,) = units.rows(unit, "silver_uno_events")
    assert {"game_name", "gamer_id", "_offset"} <= set(whole.schema.names)
    assert list(units.rows(unit, "silver_poker_events")) == []
    (told,) = units.without_files()
    assert (told.counts["silver"], told.tables) == ({"uno": 1}, {})


def test_a_unit_that_is_committed_while_the_manifests_are_listed_is_not_gone(
    manifests: Manifests, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = manifests.numbers()

    def numbers() -> list[int]:
        manifests.commit(Manifest(manifests.last + 1, "deferred", {}, {}, counts_of(Report())))
        return listed

    monkeypatch.setattr(manifests, "numbers", numbers)
    assert manifests.gone_until(4) == 0


def test_units_that_are_not_durable_are_kept_as_ever(lake: Lake, manifests: Manifests) -> None:
    run(lake, manifests, Slow(10)).forget(keep=1, durable=7)
    assert manifests.numbers() == [8, 9, 10]


def test_a_follower_keeps_so_many_bytes_and_no_more(
    lake: Lake, manifests: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    size = len(manifests.read(10).text)
    told: list[Event] = []
    running = run(lake, manifests, Slow(2), most=4 * size, emit=told.append)
    for _ in range(3):
        running.forget(keep=1, durable=10)
    left = manifests.numbers()
    assert left == list(range(left[0], 11))
    assert 2 <= len(left) <= 4
    assert manifests.gone_until(2) == left[0] - 1
    assert manifests.gone_until(left[0] - 1) == 0
    assert capfd.readouterr().err.count("too far behind") == 1
    (event,) = told
    assert (event.kind, event.level, event.details["name"]) == ("follower", "ERROR", "slow")
    assert event.details["units"][0] == 3
    late = Slow(10)
    runner = run(lake, manifests, late)["slow"]
    assert (late.taken, "--accept-gap" in str(runner.paused)) == ([], True)
    run(lake, manifests, late, accepted=10)
    assert late.taken == left
    cursors.store(lake, "slow", 2)
    late.taken, late.recomputes = [], True
    assert run(lake, manifests, late)["slow"].paused is None
    assert late.taken == left


def test_manifests_that_are_kept_anyway_are_not_reported_as_removed(
    lake: Lake, manifests: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    run(lake, manifests, Slow(2), most=1).forget(keep=8, durable=10)
    assert manifests.numbers() == [3, 4, 5, 6, 7, 8, 9, 10]
    assert "too far behind" not in capfd.readouterr().err


def test_the_status_says_how_far_each_is_behind(lake: Lake, manifests: Manifests) -> None:
    running = run(lake, manifests, Slow(10), Slow(4, "late"), Slow(9, "broken"))
    running["late"].paused = "run it"
    running["broken"].failed = "no luck"
    status = Status(lake, manifests._layout, StatusSources(parts=lambda: {"followers": running.describe()}))
    status.end("stopped", None)
    assert status.value["followers"]["late"] == {"unit": 4, "lag": 6, "paused": "run it", "failed": None}
    lines = status_lines(status.value)
    assert "follower    late is 6 units behind; paused: run it" in lines
    assert "follower    broken is 1 units behind; it failed last: no luck" in lines
    assert not any("slow" in line for line in lines)


def test_a_thread_calls_its_follower_until_the_app_stops(
    lake: Lake, manifests: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    stop, slow = threading.Event(), Slow()
    slow.fails = True
    runner = FollowerRunner(slow, lake, manifests, stop)
    runner.start()
    while slow.calls < 3:
        stop.wait(0.001)
    stop.set()
    assert runner.join()
    assert runner.calls == 2 * slow.calls
    assert "a follower failed" in capfd.readouterr().err
    with pytest.raises(OSError, match="no luck"):
        runner.call()
    assert runner.failed == "no luck"
    slow.fails = False
    runner.call()
    assert runner.failed is None


def test_a_follower_rests_while_it_must_not_run(lake: Lake, manifests: Manifests) -> None:
    stop, slow = threading.Event(), Slow(rests=True)
    runner = FollowerRunner(slow, lake, manifests, stop)
    runner.start()
    assert slow.asked.wait(5)
    stop.set()
    assert runner.join()
    assert slow.calls == 0
