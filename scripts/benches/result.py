"""What a measurement found: a small table for people, a JSON line in local/bench.jsonl for machines."""

import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.local.artifacts import ROOT

FILE = ROOT / "local" / "bench.jsonl"


def tell(line: str) -> None:
    """A word on what is going on."""
    print(line, file=sys.stderr, flush=True)


def show(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def judge(what: str, ratio: float, target: float | None, at_most: bool) -> str:
    """`what 1.32 (target <= 1.5: met)`."""
    if target is None:
        return f"{what} {ratio:.2f}"
    met = ratio <= target if at_most else ratio >= target
    return f"{what} {ratio:.2f} (target {'<=' if at_most else '>='} {target:g}: {'met' if met else 'not met'})"


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Add the result to the file, with the moment and the machine."""
    moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    machine = {"cores": os.cpu_count(), "system": platform.system(), "load": load()}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("a") as file:
        file.write(json.dumps({"bench": name, "at": moment, **machine, **found}) + "\n")


def load() -> list[float]:
    """Load averages of the last 1, 5 and 15 minutes: other work on the machine is in every number."""
    return [round(value, 1) for value in os.getloadavg()]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if value < 10 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)
