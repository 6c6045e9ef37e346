"""Charts as options of ECharts. Tooltips are drawn, not HTML, so that no text of a record is markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from spark_app.page.widgets import TEXT

# Of series, seen on light and on dark ground; names and tooltips tell them apart, too.
SERIES = [
    *("#3b7dd8", "#c9741f", "#1f9d72", "#b85fb0", "#2392a3", "#d24d57", "#8a7fd6"),
    *("#9a7b1c", "#5f9e3a", "#d0659a", "#6f8796", "#a56a43", "#8a929c"),
]


def short(name: str) -> str:
    """A name that fits into a node, without the characters that mean something to ECharts."""
    plain = "".join(character for character in name if character not in "{}|\n")
    return plain if len(plain) <= 30 else f"{plain[:14]}…{plain[-15:]}"


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float | None]]]) -> dict[str, Any]:
    """Values over time; a point is (seconds since 1970, value)."""
    few = all(len(points) <= 3 for points in series.values())  # a line of one point is not seen
    return _over_time(title, series, {"type": "line", "showSymbol": few, "connectNulls": False})


def bars(title: str, series: Mapping[str, Sequence[tuple[float, float | None]]]) -> dict[str, Any]:
    """The same as bars, one on the other, each with its name. All series need the same moments, because ECharts stacks
    by position."""
    return _over_time(title, series, {"type": "bar", "stack": "all", "barMaxWidth": 24})


def by_name(
    title: str, names: Sequence[str], series: Mapping[str, Sequence[float | None]], form: Literal["lines", "bars"]
) -> dict[str, Any]:
    """Values by name, in the order of the names."""
    kind = {"type": "line", "showSymbol": len(names) < 60} if form == "lines" else {"type": "bar", "barMaxWidth": 40}
    return _axes(title, len(series) > 1 or form == "bars") | {
        "xAxis": {"type": "category", "data": list(names), "axisLabel": {"color": TEXT, "hideOverlap": True}},
        "series": [{"name": name, "data": list(values), **kind} for name, values in series.items()],
    }


def _over_time(
    title: str, series: Mapping[str, Sequence[tuple[float, float | None]]], form: Mapping[str, Any]
) -> dict[str, Any]:
    is_bar = form["type"] == "bar"
    return _axes(title, len(series) > 1 or is_bar, 1 if is_bar else 0) | {
        "xAxis": {"type": "time", "axisLabel": {"color": TEXT, "hideOverlap": True}},
        "series": [
            {"name": name, "data": [[at * 1000, value] for at, value in points], **form}
            for name, points in series.items()
        ],
    }


def _axes(title: str, named: bool, step: float = 0) -> dict[str, Any]:
    """The common options of charts with two axes.

    Args:
        named: the names of the series are shown.
        step: the smallest one between two marks of the y axis; 0 = any.
    """
    y = {
        "type": "value",
        "minInterval": step,
        "axisLabel": {"color": TEXT},
        "splitLine": {"lineStyle": {"opacity": 0.25}},
    }
    top = 26 if title else 0
    return {
        "animation": False,
        "useUTC": True,
        "color": SERIES,
        "title": {"text": title, "left": 0, "top": 0, "textStyle": {"fontSize": 13, "color": TEXT}},
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "legend": {"show": named, "type": "scroll", "left": 0, "top": top, "textStyle": {"color": TEXT}},
        "grid": {"left": 8, "right": 16, "top": top + (32 if named else 8), "bottom": 8, "containLabel": True},
        "yAxis": y,
        "aria": {"enabled": True, "label": {"description": title}},
    }
