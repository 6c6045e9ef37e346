"""A simple chart of a result: its first column along the x axis, its numeric columns as lines or bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from spark_app.page import charts
from spark_app.page.moments import moment_of

MOST_SERIES = 8
MOST_POINTS = 1000
MOST_NAMES = 200  # along the x axis
Form = Literal["lines", "bars"]


def chart_of(columns: Sequence[Mapping[str, str]], rows: Sequence[Sequence[Any]], form: Form) -> dict[str, Any] | None:
    """Options of ECharts; None if the result has no column for the x axis, or no numbers.

    Args:
        columns: each with "name" and "kind" (number, time or other), see the job `query`.
    """
    numeric = [place for place, one in enumerate(columns) if place and one["kind"] == "number"][:MOST_SERIES]
    if not numeric or len(rows) < 2:
        return None
    names = {place: _unlike(columns, place) for place in numeric}
    if columns[0]["kind"] == "time":
        moments = [moment_of(row[0]) for row in rows[:MOST_POINTS]]
        series = {
            names[place]: sorted(
                (at, _number(row[place])) for at, row in zip(moments, rows, strict=False) if at is not None
            )
            for place in numeric
        }
        return (charts.lines if form == "lines" else charts.bars)("", series)
    shown = rows[:MOST_NAMES]
    values = {names[place]: [_number(row[place]) for row in shown] for place in numeric}
    return charts.by_name("", ["NULL" if row[0] is None else str(row[0]) for row in shown], values, form)


def form_of(columns: Sequence[Mapping[str, str]]) -> Form:
    """What suits the first column."""
    return "lines" if columns and columns[0]["kind"] in ("time", "number") else "bars"


def _unlike(columns: Sequence[Mapping[str, str]], place: int) -> str:
    """The name of a column, unlike those before it."""
    name = columns[place]["name"]
    before = sum(one["name"] == name for one in columns[:place])
    return name if not before else f"{name} ({before + 1})"


def _number(value: Any) -> float | None:
    """Decimals and large integers come as text; NaN and infinity are gaps."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if found - found == 0 else None
