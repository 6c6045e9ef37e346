"""The units of the last hour as charts, and the newest and the slowest ones as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from nicegui import ui

from spark_app.model.text import one_line
from spark_app.page import charts
from spark_app.page.moments import utc
from spark_app.page.said import amount
from spark_app.page.widgets import NUMBER, draw, heading, table

MOST_RANGES = 5  # partitions that a row names
ORDERS = {"newest": "newest", "slowest": "slowest"}
COLUMNS: list[dict[str, Any]] = [
    {"name": "unit", "label": "unit", "field": "unit", "sortable": True},
    {"name": "at", "label": "time, UTC", "field": "at", "align": "left", "sortable": True},
    {"name": "kind", "label": "kind", "field": "kind", "align": "left", "sortable": True},
    {"name": "records", "label": "records", "field": "records", "sortable": True, ":format": NUMBER},
    {"name": "seconds", "label": "seconds", "field": "seconds", "sortable": True, ":format": NUMBER},
    {"name": "range", "label": "offsets", "field": "range", "align": "left"},
]
STEPS = {"name": "steps", "label": "shares of the time of tasks", "field": "steps", "align": "left"}
Series = dict[str, list[tuple[float, float | None]]]


class RunUnits:
    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}
        with ui.row().classes("full-width no-wrap"):
            self._records = ui.echart(charts.bars("records per minute", {}), renderer="svg")
            self._seconds = ui.echart(charts.lines("seconds per unit", {}), renderer="svg")
            for chart in (self._records, self._seconds):
                chart.style("height: 220px; width: 50%")
        self._steps = ui.echart(charts.bars("seconds by step", {}), renderer="svg").classes("full-width")
        self._steps.style("height: 240px").props('data-testid="steps"').set_visibility(False)
        with ui.row().classes("items-center").style("gap: 12px"):
            heading("Units", 2)
            self._order = ui.toggle(ORDERS, value="newest", on_change=self._list)
            self._order.props('no-caps unelevated padding="4px 12px" aria-label="Which units"')
        self._table = table("Units", COLUMNS, "unit", pagination=15).props('data-testid="units"')

    def show(self, answer: dict[str, Any]) -> None:
        """`answer` is that of the job `runs`."""
        self._answer = answer
        minutes, steps = answer["minutes"], answer["steps"]
        draw(self._records, charts.bars("records per minute, last hour", _records(minutes)))
        draw(self._seconds, charts.lines("seconds per unit, last hour", _seconds(minutes)))
        self._steps.set_visibility(bool(steps))
        if steps:
            title = "seconds by step, per minute, summed over tasks; read includes waiting for Kafka"
            draw(self._steps, charts.bars(title, by_minute(steps)))
        self._list()

    def _list(self) -> None:
        rows = [_row(unit) for unit in self._answer.get(self._order.value, [])]
        columns = [*COLUMNS, STEPS] if any(row["steps"] for row in rows) else COLUMNS
        if columns != self._table.columns:
            self._table.columns = columns
        if rows != self._table.rows:
            self._table.rows = rows


def _records(minutes: list[list[Any]]) -> Series:
    """By kind of unit."""
    return by_minute((minute, kind, records) for minute, kind, _, records, _, _ in minutes)


def _seconds(minutes: list[list[Any]]) -> Series:
    """The mean and the longest of each minute."""
    sums: dict[float, tuple[int, float, float]] = {}
    for minute, _, units, _, seconds, longest in minutes:
        if seconds is not None:
            many, total, most = sums.get(minute, (0, 0.0, 0.0))
            sums[minute] = (many + units, total + seconds, max(most, longest))
    if not sums:
        return {}
    return {
        "mean": [(minute, round(total / many, 3)) for minute, (many, total, _) in sums.items()],
        "longest": [(minute, round(most, 3)) for minute, (_, _, most) in sums.items()],
    }


def by_minute(values: Iterable[Sequence[Any]]) -> Series:
    """(minute, name, value) as series by name. ECharts stacks points by their places, so all get the same minutes."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    for minute, name, value in values:
        found[charts.short(name)][minute] = round(value or 0.0, 3)
    minutes = sorted({minute for points in found.values() for minute in points})
    return {name: [(minute, points.get(minute, 0.0)) for minute in minutes] for name, points in found.items()}


def _row(unit: dict[str, Any]) -> dict[str, Any]:
    details = unit["details"]
    return {
        "unit": unit["unit"],
        "at": utc(unit["at"]),
        "kind": one_line(str(details.get("kind", "-"))),
        "records": _number(details.get("records")),
        "seconds": _number(details.get("seconds")),
        "range": _range(details.get("range")),
        "steps": steps_text(details.get("steps")),
    }


def steps_text(steps: Any) -> str:
    """The share of each step, the longest first; "" if the unit does not tell."""
    numbers = {name: _number(value) for name, value in steps.items()} if isinstance(steps, dict) else {}
    known = {name: value for name, value in numbers.items() if value is not None and value > 0}
    total = sum(known.values())
    longest = sorted(known.items(), key=lambda one: -one[1])
    return one_line(", ".join(f"{name} {value / total:.0%}" for name, value in longest))


def _range(value: Any) -> str:
    if not isinstance(value, dict):
        return "-"
    pairs = [(name, pair) for name, pair in value.items() if isinstance(pair, list) and len(pair) == 2]
    said = ", ".join(f"{name} {_offset(pair[0])} to {_offset(pair[1])}" for name, pair in pairs[:MOST_RANGES])
    return one_line(said + (f" and {len(pairs) - MOST_RANGES} more" if len(pairs) > MOST_RANGES else ""))


def _offset(value: Any) -> str:
    return amount(_number(value))


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
