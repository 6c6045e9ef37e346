"""The newest events of a lake: those of the table of events, and those that are still in spools. No event twice."""

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
    "schemas": ("schema_resolved", "schema_refused", "schema_waiting", "schema_changed"),
    "tables": ("table_admitted", "columns_added", "paused"),
    "followers": ("follower", "gap"),
    "files": ("file",),
    "rules and quarantine": ("rule", "quarantine"),
    "units and upkeep": ("unit", "table_rows", "gold", "maintenance"),
    "cluster": ("executors",),
    "other": (),
}
QUIET = tuple(group for group in GROUPS if group not in ("rules and quarantine", "units and upkeep"))
LIFE = ("start", "stop", "held", "bump")
MOST = 500  # events that are shown
MOST_SPOOLED = 2000
MOST_LINES = 80  # of the details of an event
LONGEST = 400  # characters of such a line


@dataclass(frozen=True)
class ToldEvent:
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
    def of(value: Mapping[str, Any]) -> ToldEvent:
        """`value` has the fields of this class, or lacks some."""
        at, unit, level = value.get("at"), value.get("unit"), value.get("level")
        return ToldEvent(
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
    def of_row(row: EventRow) -> ToldEvent:
        at = row.happened_at
        return ToldEvent.of({**vars(row), "at": at / 1e6 if isinstance(at, int | float) else None})


class EventFeed:
    """
    Attributes:
        troubles: writers of events whose spool cannot be read -> why.
    """

    def __init__(self, lake: Lake):
        self._lake = lake
        self._of_table: dict[str, ToldEvent] = {}
        self._spooled: dict[str, ToldEvent] = {}
        self._read: dict[str, int] = {}  # writer -> number of its last event that was read
        self.troubles: dict[str, str] = {}

    def set_table(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Replace the events of the table."""
        self._of_table = {event.id: event for event in map(ToldEvent.of, events)}

    def read_spools(self) -> bool:
        """Whether there are new events in the spools."""
        found: dict[str, ToldEvent] = {}
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
            found |= {event.id: event for event in map(ToldEvent.of_row, rows.values())}
            self._read[writer] = max([self._read.get(writer, 0), *rows])
        kept = sorted((self._spooled | found).values(), key=_moment)[-MOST_SPOOLED:]
        self._spooled = {event.id: event for event in kept}
        return bool(found)

    def events(self) -> list[ToldEvent]:
        """All events, the newest first."""
        return sorted((self._spooled | self._of_table).values(), key=_moment, reverse=True)

    def shown(self, groups: Collection[str], levels: Collection[str], since: float | None) -> list[ToldEvent]:
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


def _moment(event: ToldEvent) -> float:
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
