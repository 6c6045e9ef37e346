"""The newest events of a lake, of its table and of spools, no event twice; and the starts of the app among them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spark_app.followers.events import spool
from spark_app.lake.lake import Lake
from spark_app.model.events import EventRow
from spark_app.model.text import one_line

LEVELS = ("INFO", "WARN", "ERROR")
# What is filtered together -> kinds of events. Kinds of a later release are in "other".
GROUPS: Mapping[str, tuple[str, ...]] = {
    "starts": ("start", "stop", "held", "bump", "waiting"),
    "settings": ("settings",),
    "requests": ("request",),
    "alerts": ("alert",),
    "schemas": ("schema_resolved", "schema_refused", "schema_waiting", "schema_changed", "wire_type"),
    "tables": ("table_admitted", "columns_added", "paused"),
    "followers": ("follower", "gap"),
    "files": ("file",),
    "expectations and quarantine": ("rule", "quarantine"),
    "units and upkeep": ("unit", "table_rows", "gold", "maintenance"),
    "cluster": ("executors",),
    "other": (),
}
QUIET = tuple(group for group in GROUPS if group not in ("expectations and quarantine", "units and upkeep"))
LIFE = ("start", "stop", "held", "bump")
MOST = 500  # events that are shown
MOST_SPOOLED = 2000
MOST_LINES = 80  # of the details of an event
LONGEST = 400  # characters of such a line
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
class ShownEvent:
    """An event whose values are of their types, whoever has written it.

    Attributes:
        at: seconds since 1970; None = not known.
        details: JSON.
    """

    id: str
    at: float | None
    kind: str
    level: str
    run: str
    unit: int | None
    table: str
    message: str
    details: str

    @staticmethod
    def of(value: Mapping[str, Any]) -> ShownEvent:
        """`value` has the fields of this class, or lacks some."""
        at, unit, level = value.get("at"), value.get("unit"), value.get("level")
        return ShownEvent(
            _text(value.get("id")),
            float(at) if isinstance(at, int | float) else None,
            _text(value.get("kind")),
            level if level in LEVELS else "INFO",
            _text(value.get("run")),
            unit if type(unit) is int else None,
            _text(value.get("table")),
            _text(value.get("message")),
            _text(value.get("details")),
        )

    @staticmethod
    def of_row(row: EventRow) -> ShownEvent:
        at = row.happened_at
        return ShownEvent.of({**vars(row), "at": at / 1e6 if isinstance(at, int | float) else None})


class EventFeed:
    """The newest events: those of the table, and those that are still in spools.

    Attributes:
        troubles: writers of events whose spool cannot be read -> why.
    """

    def __init__(self, lake: Lake):
        self._lake = lake
        self._of_table: dict[str, ShownEvent] = {}
        self._spooled: dict[str, ShownEvent] = {}
        self._read: dict[str, int] = {}  # writer -> number of its last event that was read
        self.troubles: dict[str, str] = {}

    def set_table(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Replace the events of the table."""
        self._of_table = {event.id: event for event in map(ShownEvent.of, events)}

    def read_spools(self) -> bool:
        """Whether there are new events in the spools."""
        found: dict[str, ShownEvent] = {}
        self.troubles = {}
        try:
            writers = spool.writers(self._lake)
        except OSError:
            return False
        for writer in writers:
            try:
                rows = spool.read(self._lake, writer, self._read.get(writer, 0))
            except FileNotFoundError:
                continue  # the app has moved its events into the table meanwhile
            except (OSError, ValueError, TypeError) as error:
                self.troubles[writer] = one_line(str(error))
                continue
            found |= {event.id: event for event in map(ShownEvent.of_row, rows.values())}
            self._read[writer] = max([self._read.get(writer, 0), *rows])
        kept = sorted((self._spooled | found).values(), key=_moment)[-MOST_SPOOLED:]
        self._spooled = {event.id: event for event in kept}
        return bool(found)

    def events(self) -> list[ShownEvent]:
        """All events, the newest first."""
        return sorted((self._spooled | self._of_table).values(), key=_moment, reverse=True)

    def shown(self, groups: Collection[str], levels: Collection[str], since: float | None) -> list[ShownEvent]:
        """The newest events of these groups and levels, the newest first; `since` is in seconds since 1970."""
        left_out = kinds_outside(groups)
        has_others = "other" in groups
        known = {kind for kinds in GROUPS.values() for kind in kinds}
        found = (
            event
            for event in self.events()
            if event.kind not in left_out
            and (has_others or event.kind in known)
            and event.level in levels
            and (since is None or _moment(event) >= since)
        )
        return list(itertools.islice(found, MOST))


def kinds_outside(groups: Collection[str]) -> list[str]:
    """The known kinds of all other groups."""
    return [kind for group, kinds in GROUPS.items() if group not in groups for kind in kinds]


def _moment(event: ShownEvent) -> float:
    return event.at if event.at is not None else 0.0


def details_text(details: str) -> str:
    """The details of an event, a line per value."""
    try:
        value = json.loads(details)
    except (ValueError, RecursionError):
        return one_line(details)[:LONGEST]
    lines = [one_line(line)[:LONGEST] for line in itertools.islice(_lines("", value), MOST_LINES + 1)]
    return "\n".join([*lines[:MOST_LINES], *(["..."] if len(lines) > MOST_LINES else [])])


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            is_change = name == "changed" and isinstance(inner, list) and len(inner) == 2
            if is_change:
                yield f"{key}: {_short(inner[0])} -> {_short(inner[1])}"
            else:
                yield from _lines(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value, start=1):
            yield from _lines(f"{name}.{number}", inner)
    elif isinstance(value, list):
        yield f"{name}: {', '.join(map(_short, value))}"
    elif value is not None:
        yield f"{name}: {_short(value)}"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


@dataclass(frozen=True)
class Run:
    """One start of the app.

    Attributes:
        started, ended: seconds since 1970; None = not known, or outside of the time that was read.
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


def runs_of(events: Iterable[ShownEvent], sums: Mapping[str, Mapping[str, Any]], is_up: bool) -> list[Run]:
    """The runs of some events, the newest first.

    Args:
        sums: run -> {"units", "records"}.
        is_up: whether the app runs now: then the newest run does.
    """
    starts: dict[str, ShownEvent] = {}
    ends: dict[str, ShownEvent] = {}
    for event in sorted(events, key=lambda event: event.at or 0.0):
        if event.kind in LIFE:
            (starts if event.kind == "start" else ends)[event.run] = event
    newest = max(starts, key=lambda run: starts[run].at or 0.0, default="")
    found = [
        _run(run, starts.get(run), ends.get(run), sums.get(run, {}), is_up and run == newest)
        for run in starts.keys() | ends.keys()
    ]
    return sorted(found, key=lambda run: (run.started or run.ended or 0.0, run.id), reverse=True)


def _run(id: str, start: ShownEvent | None, end: ShownEvent | None, sums: Mapping[str, Any], is_up: bool) -> Run:
    how, level = (
        "runs" if is_up else "killed or crashed, without a message",
        "INFO" if is_up else "ERROR",
    )
    if end is not None:
        code = _exit_code(end)
        words = ENDS.get(code, "an unknown code") if code is not None else end.kind
        how, level = f"{words} ({code})" if code is not None else words, end.level
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


def _exit_code(end: ShownEvent) -> int | None:
    try:
        code = json.loads(end.details)["exit_code"]
    except (ValueError, TypeError, LookupError):
        return None
    return code if type(code) is int else None


def _whole(value: Any) -> int:
    return value if type(value) is int else 0
