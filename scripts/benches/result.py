"""The result of a measurement: figures for the terminal and the page, everything else as JSON in local/bench.jsonl."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scripts.benches.options import Options
from scripts.benches.targets import Target
from scripts.local import results
from scripts.local.artifacts import ROOT

FILE = ROOT / "local" / "bench.jsonl"


@dataclass(frozen=True)
class Figure:
    """One number; `what` contains its unit. Without a target it has no verdict.

    Attributes:
        spread: minimum and maximum of the values of which `value` is the median.
    """

    what: str
    value: float
    target: Target | None = None
    spread: tuple[float, float] | None = None

    @classmethod
    def of(cls, what: str, values: Iterable[float], target: Target | None = None) -> Figure:
        """The median of all rounds, with their spread."""
        found = list(values)
        return cls(what, median(found), target, (min(found), max(found)))

    def line(self) -> str:
        """`what: 1.32, 1.21 to 1.44 (target <= 1.5: met)`."""
        text = f"{self.what}: {number(self.value)}"
        if self.spread:
            text += f", {' to '.join(map(number, self.spread))}"
        if self.target is None:
            return text
        verdict = "met" if self.target.is_met(self.value) else "not met"
        return f"{text} (target {self.target.bound}: {verdict})"

    def found(self) -> dict[str, Any]:
        """For the JSON line. The verdict is stored, so that it stays the same when the target changes."""
        target = {"target": self.target.bound, "met": self.target.is_met(self.value)} if self.target else {}
        spread = {"least": self.spread[0], "greatest": self.spread[1]} if self.spread else {}
        return {"what": self.what, "value": self.value, **spread, **target}


@dataclass(frozen=True)
class Result:
    """The result of a measurement.

    Attributes:
        details: the data behind the figures, as JSON values.
    """

    figures: Sequence[Figure]
    details: Mapping[str, Any]


def record(options: Options, outcome: Result) -> dict[str, Any]:
    """The result with time, machine and the command that repeats it."""
    head = {"bench": options.name, "command": options.command, **results.stamp()}
    return head | {"figures": [figure.found() for figure in outcome.figures], **outcome.details}


def log_progress(line: str) -> None:
    """Print a line about the progress."""
    print(line, file=sys.stderr, flush=True)


def show(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, numbers aligned to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def number(value: float) -> str:
    """A number with a measurement's precision."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{3 if abs(value) < 1 else 2 if abs(value) < 10 else 1}f}"


def _cell(value: object) -> str:
    return number(value) if isinstance(value, int | float) else "-" if value is None else str(value)
