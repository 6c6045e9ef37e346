"""The result of a scenario, stored as one JSON line, and the table of the published results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.local import results
from scripts.local.artifacts import ROOT
from tests.chaos.scenarios import ANCHORS, ENTRIES

FILE = ROOT / "local" / "chaos.jsonl"
PUBLISHED = Path(__file__).with_name("results.jsonl")
PAGE = Path(__file__).with_name("RESULTS.md")


@dataclass(frozen=True)
class Outcome:
    """The result of a scenario.

    Attributes:
        done: number of times that the fault was made.
        faults: what was wrong afterwards; empty = no record was lost and the app behaved as expected.
        figures: measured values, by a name with the unit.
    """

    done: int
    faults: Mapping[str, object] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


def record(name: str, row: str, seed: int, command: str, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The result with time, machine and the command that repeats it."""
    return {
        "scenario": name,
        "row": row,
        "done": outcome.done,
        "faults": dict(outcome.faults),
        "figures": dict(outcome.figures),
        "seconds": round(seconds),
        "seed": seed,
        "command": command,
        **results.stamp(),
    }


def publish(entry: Mapping[str, Any]) -> None:
    """Add the result to the repository's table; the last one per scenario and size counts."""
    with results.alone(PUBLISHED):
        results.append(PUBLISHED, entry)
        PAGE.write_text(page(results.read(PUBLISHED)))


def page(entries: Iterable[Mapping[str, Any]]) -> str:
    """The table of results as Markdown."""
    latest = {(e["scenario"], e["command"]): e for e in entries}
    lines = [
        "# Injected faults and their results",
        "",
        "Written by `./scripts/chaos --publish`. The command in a line repeats it; 0 faults: every record that",
        "a read_committed consumer finds is in the lake once, in its table, with its content, and gold is right.",
        "",
        "| scenario | row | times | faults | figures | compared with | command | machine | date |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in sorted(latest.values(), key=lambda entry: list(ENTRIES).index(entry["scenario"])):
        figures = ", ".join(f"{name.replace('_', ' ')} {_cell(value)}" for name, value in entry["figures"].items())
        faults = "0" if not entry["faults"] else json.dumps(entry["faults"])
        anchor, command = ANCHORS[entry["row"]], f"`{entry['command']}`"
        cells = (entry["scenario"], entry["row"], f"{entry['done']:,}", faults, figures, anchor, command)
        lines.append(f"| {' | '.join(cells)} | {entry['machine']} | {entry['at'][:10]} |")
    missing = [f"{name} ({entry.row})" for name, entry in ENTRIES.items() if not _is_released(name, latest.values())]
    if missing:
        lines += ["", f"Not run in the release tier yet: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def _is_released(name: str, entries: Iterable[Mapping[str, Any]]) -> bool:
    return any(e["scenario"] == name and "--tier release" in e["command"] for e in entries)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
