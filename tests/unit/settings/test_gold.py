"""The settings of gold tables: what is refused, and what a name means."""

from __future__ import annotations

from typing import Any

import pytest

from spark_app.settings.gold import seconds_of
from spark_app.settings.models import Settings

COUNT: dict[str, Any] = {"aggregates": {"n": {"function": "count"}}}


def settings(tables: dict[str, Any], **names: str) -> Settings:
    return Settings.model_validate({"tables": names, "gold": {"tables": tables}})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1 hour", 3600), ("15 minutes", 900), ("90s", 90), ("2 days", 172_800), ("1 MIN", 60), ("0 s", 0)],
)
def test_durations(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "hour", "1 month", "-1 s", "1.5 h", "1 hours 2 min", "s", "1 sec"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration: write a number and a unit, such as 15 minutes"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("name", "table", "names", "why"),
    [
        ("player_agg", COUNT, {}, "that name has the table of .gold. itself"),
        ("agg", COUNT, {}, "gold.tables.agg and player_agg could make the same table"),
        ("x", COUNT | {"table": "gold_{name}_x_player_agg"}, {}, "could make the same table"),
        ("x", COUNT | {"table": "silver_{name}_events"}, {}, "gold.tables.x and silver could make the same table"),
        ("x", COUNT | {"table": "pipeline_{name}"}, {}, "could make the table pipeline_events"),
        ("x", COUNT | {"table": "gold_uno"}, {}, "gold_uno is no pattern such as gold_{name}_x"),
        ("x", COUNT | {"table": "{name}_gold"}, {}, "is no pattern"),
        ("X", COUNT, {}, "should match pattern"),
        ("x", {"aggregates": {}}, {}, "at least 1 item"),
        ("x", COUNT | {"key": ["a", "N"]}, {}, "n is there twice"),
        ("x", COUNT | {"key": ["a", "A"]}, {}, "a is there twice"),
        ("x", COUNT | {"key": "window_start", "window": {"size": "1 h"}}, {}, "window_start is there twice"),
        ("x", COUNT | {"window": {}}, {}, "a window has a size"),
        ("x", COUNT | {"window": {"size": "1 h", "gap": "1 h"}}, {}, "a window has a size"),
        ("x", COUNT | {"window": {"gap": "1 h", "slide": "1 h"}}, {}, "a window has a size"),
        ("x", COUNT | {"window": {"gap": "0 s"}}, {}, "gap has to be longer than nothing"),
        ("x", COUNT | {"window": {"size": "1 h", "slide": "2 h"}}, {}, "slide no longer than size"),
        ("x", COUNT | {"window": {"size": "0 h"}}, {}, "longer than nothing"),
        ("x", COUNT | {"window": {"size": "1 day", "slide": "1 s"}}, {}, "in 86,400 windows, at most 1,000"),
        ("x", COUNT | {"window": {"size": "1 fortnight"}}, {}, "no duration"),
        ("x", COUNT | {"interval_s": 0}, {}, "greater than 0"),
        ("x", COUNT | {"keys": "a"}, {}, "Extra inputs"),
    ],
)
def test_what_cannot_be_is_refused(name: str, table: dict[str, Any], names: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        settings({name: table}, **names)


def test_names_of_tables() -> None:
    layout = settings({"hourly": COUNT, "x": COUNT | {"table": "of_{name}"}}).layout
    assert layout.all_gold_of("uno") == ["gold_uno_player_agg", "gold_uno_hourly", "of_uno"]
    for table, kind in (("gold_uno_player_agg", "player_agg"), ("gold_uno_hourly", "hourly"), ("of_uno", "x")):
        assert (layout.gold_kind(table), layout.gold_name_of(table)) == (kind, "uno")
    assert [layout.gold_kind(name) for name in ("silver_uno_events", "gold__hourly", "of_", "bronze_events")] == [
        None
    ] * 4
