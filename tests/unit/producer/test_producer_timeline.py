"""Bumps: how they are written, when they are due and whose window they move."""

import pytest

from producer.timeline import Bump, Timeline, parse_timeline

GAMES = ("rummy", "uno")


def test_a_timeline_is_read() -> None:
    assert parse_timeline(" rummy=2@30s, uno=v3@5000r,,*=4@2m,uno=5@1.5h ") == (
        Bump("rummy", 2, at_seconds=30),
        Bump("uno", 3, at_record=5000),
        Bump("*", 4, at_seconds=120),
        Bump("uno", 5, at_seconds=5400),
    )
    assert parse_timeline("") == ()


@pytest.mark.parametrize(
    "text", ["rummy", "rummy=2", "rummy=2@", "rummy=2@3", "rummy=x@3s", "=2@3s", "a=2@1.5r", "a=2@-1s"]
)
def test_what_cannot_be_read_is_shown(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        parse_timeline(text)


def test_a_bump_by_seconds_moves_its_game_alone() -> None:
    timeline = Timeline(GAMES, 1, 1, parse_timeline("rummy=2@30s"))
    timeline.advance(10**6, 29.9)
    assert timeline.window("rummy") == (1,)
    timeline.advance(10**6, 30.0)
    assert (timeline.window("rummy"), timeline.window("uno")) == ((2,), (1,))


def test_a_bump_by_records_comes_before_that_record() -> None:
    timeline = Timeline(GAMES, 1, 1, parse_timeline("*=3@5r"))
    timeline.advance(4, 1e9)
    assert timeline.window("uno") == (1,)
    timeline.advance(5, 0)
    assert (timeline.window("rummy"), timeline.window("uno")) == ((3,), (3,))


def test_bumps_that_are_due_together_end_with_the_last() -> None:
    timeline = Timeline(GAMES, 1, 1, parse_timeline("rummy=2@1s,rummy=4@2s"))
    timeline.advance(0, 10)
    assert timeline.window("rummy") == (4,)


@pytest.mark.parametrize(
    ("newest", "width", "window"), [(1, 1, (1,)), (3, 2, (2, 3)), (5, 5, (1, 2, 3, 4, 5)), (2, 4, (1, 2))]
)
def test_a_window_holds_the_newest_versions(newest: int, width: int, window: tuple[int, ...]) -> None:
    assert Timeline(GAMES, newest, width).window("uno") == window
