"""The starts of the app: when each began, how it ended, and what it did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_app.page.event_feed import LIFE, ToldEvent

# What exit codes mean: docs/operations.md.
ENDS: Mapping[int, str] = {
    0: "stopped, or had no more records",
    64: "wrong arguments",
    65: "records were lost, or files contradict each other",
    69: "Kafka, the registry or the lake did not answer",
    70: "a bug, or a process that died",
    73: "the disk was full",
    75: "a bump: it restarts for new columns",
    78: "a wrong setting",
}


@dataclass(frozen=True)
class Run:
    """One start of the app.

    Attributes:
        started, ended: seconds since 1970; None = not known, or outside of what was asked.
        how: how it ended, in words.
        level: "INFO", or "ERROR" if it ended by an error.
    """

    id: str
    started: float | None
    ended: float | None
    how: str
    level: str
    units: int
    records: int
    is_bump: bool

    def lasted(self, now: float) -> float | None:
        """Seconds; of a run that goes on until now."""
        if self.started is None or (self.ended is None and self.how != "runs"):
            return None
        return max(0.0, (now if self.ended is None else self.ended) - self.started)


def runs_of(events: Iterable[ToldEvent], sums: Mapping[str, Mapping[str, Any]], is_up: bool) -> list[Run]:
    """The runs of some events, the newest first.

    Args:
        sums: run -> {"units", "records"}.
        is_up: whether the app runs now: then the newest run does.
    """
    starts: dict[str, ToldEvent] = {}
    ends: dict[str, ToldEvent] = {}
    for event in sorted(events, key=lambda event: event.at or 0.0):
        if event.kind in LIFE:
            (starts if event.kind == "start" else ends)[event.run] = event
    newest = max(starts, key=lambda run: starts[run].at or 0.0, default="")
    found = [
        _run(run, starts.get(run), ends.get(run), sums.get(run, {}), is_up and run == newest)
        for run in starts.keys() | ends.keys()
    ]
    return sorted(found, key=lambda run: (run.started or run.ended or 0.0, run.id), reverse=True)


def _run(id: str, start: ToldEvent | None, end: ToldEvent | None, sums: Mapping[str, Any], is_up: bool) -> Run:
    how, level = (
        "runs" if is_up else "killed or crashed, without a message",
        "INFO" if is_up else "ERROR",
    )
    if end is not None:
        code = _exit_code(end)
        said = ENDS.get(code, "an unknown code") if code is not None else end.kind
        how, level = f"{said} ({code})" if code is not None else said, end.level
    return Run(
        id,
        start.at if start else None,
        end.at if end else None,
        how,
        level,
        _whole(sums.get("units")),
        _whole(sums.get("records")),
        end is not None and end.kind == "bump",
    )


def _exit_code(end: ToldEvent) -> int | None:
    try:
        code = json.loads(end.details)["exit_code"]
    except (ValueError, TypeError, LookupError):
        return None
    return code if type(code) is int else None


def _whole(value: Any) -> int:
    return value if type(value) is int else 0
