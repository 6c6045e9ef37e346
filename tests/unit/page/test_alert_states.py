"""The states of alerts: when they turn, that no kill loses or repeats a turn, and what conditions are measured by."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.followers.events import spool
from spark_app.lake.lake import Lake
from spark_app.page.alerts import book as books
from spark_app.page.alerts.book import AlertState, Book, Judged, advance
from spark_app.page.alerts.measuring import History, measures_of
from spark_app.page.files import PageFiles
from spark_app.page.metrics.reading import Reading
from spark_app.settings.models import Settings
from spark_app.settings.watching import AlertRule
from tests.support.examples import examples
from tests.support.statuses import status_of

NOW = 1_000_000.0
LAKE = "protolake-1"


def rules(for_s: float = 0.0, *names: str) -> dict[str, AlertRule]:
    return {name: AlertRule(when="age_s > 60", for_s=for_s) for name in names or ("late",)}


def turns(answers: list[bool | None], for_s: float, every_s: float = 1.0) -> list[str | None]:
    state, found = AlertState(), []
    for step, holds in enumerate(answers):
        state, turn = advance(state, holds, for_s, NOW + step * every_s)
        found.append(turn)
    return found


def test_an_alert_fires_after_its_time_and_is_resolved_at_once() -> None:
    assert turns([True, True, True, True, False, False], 2.0) == [None, None, "firing", None, "resolved", None]
    assert turns([True, False, True, True], 2.0) == [None] * 4
    assert turns([True, False, True], 0.0) == ["firing", "resolved", "firing"]


def test_what_nobody_knows_changes_nothing() -> None:
    assert turns([True, None, None, False], 0.0) == ["firing", None, None, "resolved"]
    assert turns([True, None, True], 2.0) == [None, None, "firing"]


@given(st.lists(st.tuples(st.sampled_from([True, False, None]), st.floats(-50, 50)), max_size=60), st.floats(0, 20))
@examples(2)
def test_turns_alternate_and_are_numbered_and_none_comes_before_its_time(
    steps: list[tuple[bool | None, float]], for_s: float
) -> None:
    state, moment, found, held_since = AlertState(), NOW, [], None
    for holds, passed in steps:
        moment += passed
        if holds is not None:
            held_since = (moment if held_since is None else min(held_since, moment)) if holds else None
        before = state
        state, turn = advance(state, holds, for_s, moment)
        assert state.number == before.number + bool(turn)
        if turn == "firing":
            assert held_since is not None
            assert moment - held_since >= for_s
        found += [turn] if turn else []
    assert found == [("firing", "resolved")[number % 2] for number in range(len(found))]
    assert (state.state == "firing") == (state.number % 2 == 1)


@pytest.fixture
def files(tmp_path: Path) -> PageFiles:
    lake = Lake(tmp_path)
    lake.prepare()
    files = PageFiles(lake)
    files.acquire()
    return files


def judge(book: Book, given: Mapping[str, AlertRule], moment: float, **holds: bool | None) -> None:
    book.judge(given, {name: Judged(holds.get(name), {"age_s": 61.5}) for name in given}, moment)


def spooled(files: PageFiles) -> list[dict[str, Any]]:
    rows = spool.read(files.lake, "page", 0).values()
    return [{**asdict(row), "details": json.loads(row.details)} for row in rows]


def test_a_transition_is_recorded_sent_and_written_for_the_event_log(files: PageFiles) -> None:
    book = Book(files, lambda: LAKE, is_sent=True)
    judge(book, rules(2.0), NOW, late=True)
    assert book.waiting() == []
    judge(book, rules(2.0), NOW + 2, late=True)
    [one] = book.waiting()
    assert one == {
        "id": "protolake-1/late/1",
        "at": "1970-01-12T13:46:42.000+00:00",
        "kind": "alert",
        "level": "WARNING",
        "message": "alert late fires: age_s > 60 (age_s is 61.5)",
        "details": {
            "lake": LAKE,
            "rule": "late",
            "number": 1,
            "state": "firing",
            "condition": "age_s > 60",
            "values": {"age_s": 61.5},
            "description": "",
            "since": "1970-01-12T13:46:40.000+00:00",
            "severity": "warning",
        },
    }
    [event] = spooled(files)
    same = ("id", "kind", "message", "details")
    assert {name: event[name] for name in same} == {name: one[name] for name in same}
    assert (event["level"], event["happened_at"]) == ("WARN", round((NOW + 2) * 1e6))
    assert book.firing() == [one]


def test_a_restart_neither_forgets_a_firing_alert_nor_tells_it_anew(files: PageFiles) -> None:
    book = Book(files, lambda: LAKE, is_sent=True)
    judge(book, rules(), NOW, late=True)
    book.mark_sent(book.waiting()[0])
    again = Book(files, lambda: LAKE, is_sent=True)
    judge(again, rules(), NOW + 1, late=True)
    assert again.waiting() == []
    judge(again, rules(), NOW + 2, late=False)
    assert [one["id"] for one in again.waiting()] == ["protolake-1/late/2"]
    assert [one["id"] for one in Book(files, lambda: LAKE, is_sent=True).waiting()] == ["protolake-1/late/2"]
    assert again.firing() == []


def test_a_pending_alert_goes_on_after_a_restart(files: PageFiles) -> None:
    judge(Book(files, lambda: LAKE, is_sent=True), rules(100.0), NOW, late=True)
    again = Book(files, lambda: LAKE, is_sent=True)
    judge(again, rules(100.0), NOW + 100, late=True)
    assert len(again.waiting()) == 1


def test_an_alert_whose_rule_is_gone_is_resolved(files: PageFiles) -> None:
    judge(Book(files, lambda: LAKE, is_sent=True), rules(), NOW, late=True)
    book = Book(files, lambda: LAKE, is_sent=True)
    judge(book, {}, NOW + 1)
    judge(book, {}, NOW + 2)
    assert [one["details"]["state"] for one in book.waiting()] == ["firing", "resolved"]
    assert book.waiting()[1]["message"] == "alert late is resolved: its rule is no longer in the settings"


def test_an_alert_that_could_not_be_sent_a_hundred_times_waits_and_nothing_is_lost(files: PageFiles) -> None:
    book = Book(files, lambda: LAKE, is_sent=True)
    for step in range(300):
        judge(book, rules(0.0, "late", "other"), NOW + step, late=step % 2 == 0, other=step > 290)
    waiting = [one for one in book.waiting() if one["details"]["rule"] == "late"]
    assert [one["details"]["number"] for one in waiting] == list(range(1, books.MOST_WAITING + 1))
    assert len(book.waiting()) == books.MOST_WAITING + 1
    book.mark_sent(waiting[0])
    judge(book, rules(0.0, "late", "other"), NOW + 301, late=True, other=True)
    assert book.waiting()[-1]["details"]["number"] == books.MOST_WAITING + 1


class Killed(Exception):
    pass


WRITES = ("write_alerts", "append")  # of the files, of the storage


@given(
    st.lists(
        st.tuples(
            st.sampled_from([True, False, None]),
            st.sampled_from(["", "tell", *(f"{when} {write}" for write in WRITES for when in ("before", "after"))]),
        ),
        max_size=40,
    )
)
@examples(0.5)
def test_a_kill_at_any_write_loses_no_transition_and_makes_none_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool | None, str]]
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    lake.prepare()
    files = PageFiles(lake)
    book, told = Book(files, lambda: LAKE, is_sent=True), []
    for step, (holds, kill) in enumerate([*steps, (True, ""), (True, ""), (False, "")]):
        with dying(files, kill) as is_dead:
            try:
                judge(book, rules(), NOW + step, late=holds)
                for one in book.waiting() if kill == "tell" else []:
                    told.append(one["id"])
                    book.mark_sent(one)
            except Killed:
                pass
        if is_dead():
            book = Book(files, lambda: LAKE, is_sent=True)
    for one in book.waiting():
        told.append(one["id"])
    ids = [one["id"] for one in spooled(files)]
    expected = [f"{LAKE}/late/{number + 1}" for number in range(len(ids))]
    assert ids == expected
    assert list(dict.fromkeys(told)) == expected
    assert len(ids) % 2 == 0


class dying:  # noqa: N801 - a context
    """The process dies before or after a write, as `kill` says: its book is of no use afterwards."""

    def __init__(self, files: PageFiles, kill: str):
        self._when, _, self._write = kill.partition(" ")
        self._target = files.lake.storage if self._write == "append" else files
        self._dead = False

    def __enter__(self) -> Callable[[], bool]:
        if self._write:
            real = getattr(self._target, self._write)

            def write(*arguments: Any) -> None:
                if self._when == "after":
                    real(*arguments)
                self._dead = True
                raise Killed

            setattr(self._target, self._write, write)
        return lambda: self._dead

    def __exit__(self, *_: object) -> None:
        if self._write:
            delattr(self._target, self._write)


def test_a_full_disk_delays_an_alert_and_makes_it_once(files: PageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book(files, lambda: LAKE, is_sent=True)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_alerts", full)
        with pytest.raises(OSError, match="No space left"):
            judge(book, rules(), NOW, late=True)
        assert book.waiting() == []
    judge(book, rules(), NOW + 1, late=True)
    assert [one["id"] for one in book.waiting()] == [one["id"] for one in spooled(files)] == ["protolake-1/late/1"]


def history(*statuses: tuple[float, dict[str, Any]], watched: tuple[str, ...] = ()) -> History:
    made = History(watched, {})
    for after, values in statuses:
        made.add(Reading(status_of(at=NOW + after) | values, NOW + after))
    return made


def test_shares_are_those_of_the_last_minute() -> None:
    counts = []
    for s in range(0, 121, 5):
        bad = s if s > 60 else 0
        counts.append((s, {"bronze": 100 * s, "quarantined": {"a": bad}, "expectations": {"r": [9 * s, s]}}))
    found = history(*counts)
    assert found.value("quarantine_rate", "") == pytest.approx((120 - 0) / 6000)
    assert found.value("failure_rate", "r") == pytest.approx(0.1)
    assert found.value("failure_rate", "unknown") == 0.0


def test_a_share_is_unknown_until_it_has_half_a_minute_and_while_the_app_is_down() -> None:
    bad = {"bronze": 2, "quarantined": {"a": 1}}
    assert history((0, {"bronze": 0, "quarantined": {}}), (10, bad)).value("quarantine_rate", "") is None
    assert history((0, {"bronze": 0, "quarantined": {}}), (31, bad)).value("quarantine_rate", "") == 0.5
    down = history((0, {"bronze": 0, "quarantined": {}}), (31, bad))
    down.add(Reading(status_of(at=NOW + 31), NOW + 200))
    assert down.value("quarantine_rate", "") is None
    assert down.value("lag", "") is None
    assert down.value("state", "") == "dead"


def test_no_records_are_no_bad_ones() -> None:
    assert history((0, {}), (60, {})).value("quarantine_rate", "") == 0.0


def test_a_start_of_the_app_counts_rows_of_expectations_anew() -> None:
    counts = ((0, [0, 100]), (40, [5, 0]), (75, [9, 4]))
    found = history(*((after, {"expectations": {"r": both}}) for after, both in counts))
    assert found.value("failure_rate", "r") == 0.5


def test_a_table_is_silent_since_its_rows_changed_also_after_a_restart() -> None:
    uno = {"tables": {"uno": {"silver": 5, "gold": 1}}}
    more = {"tables": {"uno": {"silver": 6, "gold": 1}}}
    first = history((0, uno), (10, more), (50, more), watched=("uno",))
    assert first.value("silent_s", "uno") == 40
    again = History(["uno"], first.seen)
    again.add(Reading(status_of(at=NOW + 90) | more, NOW + 90))
    assert again.value("silent_s", "uno") == 80
    again.add(Reading(None, NOW + 100))
    assert again.value("silent_s", "uno") == 90


def test_every_measure_has_a_value_when_all_is_known(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    reading = Reading(status_of(), NOW, units=3, free=5)
    measures = measures_of(lake, Settings(), reading)
    known = history((0, {}), (40, {}), watched=("t0",))
    followers = {"gold": {"unit": 5, "lag": 3, "paused": None}}
    known.add(Reading(status_of(at=NOW + 60, followers=followers), NOW + 60, units=3, free=5))
    for name in measures.kinds:
        assert known.value(name, "") is not None, name
    for name, argument in (("rows", "t0"), ("silent_s", "t0"), ("failure_rate", "sane_time"), ("quarantine_of", "x")):
        assert known.value(name, argument) is not None, name
    page = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text()
    assert [name for name in measures.kinds if f"`{name}`" not in page] == []
    assert [name for name in measures.of if f"`{name}('" not in page] == []
