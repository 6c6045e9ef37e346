"""Keeps the states of the alerts, and the transitions that are not sent yet, through kills and power cuts.

Both are one file, replaced in one step. So a transition is either there with the new state of its alert, or neither is,
and the number of a transition never stands for two. The spool of events gets each transition afterwards: a start adds
those that a kill left out.
"""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from spark_app.followers.events import spool
from spark_app.followers.events.spool import SpoolWriter
from spark_app.model.events import RUN_ID, EventRow, Level
from spark_app.model.log import log
from spark_app.page.files import PageFiles
from spark_app.settings.watching import AlertRule

State = Literal["ok", "pending", "firing"]
Turn = Literal["firing", "resolved"]


@dataclass(frozen=True)
class AlertState:
    """The state of an alert: pending while its condition holds for less than `for_s`, then firing, else ok.

    Attributes:
        since: when the state began, in seconds since 1970.
        number: how many transitions there were: the odd ones are firing, the even ones resolved.
    """

    state: State = "ok"
    since: float = 0.0
    number: int = 0


def advance(old: AlertState, holds: bool | None, for_s: float, moment: float) -> tuple[AlertState, Turn | None]:
    """The next state, and the transition to send.

    Args:
        holds: whether the condition holds; None = nobody knows, and nothing changes.
        moment: seconds since 1970. A clock that was set back begins the wait anew.
    """
    if holds is None:
        return old, None
    if not holds:
        if old.state == "firing":
            return AlertState("ok", moment, old.number + 1), "resolved"
        return (AlertState("ok", moment, old.number) if old.state == "pending" else old), None
    if old.state == "firing":
        return old, None
    since = min(old.since, moment) if old.state == "pending" else moment
    if moment - since >= for_s:
        return AlertState("firing", moment, old.number + 1), "firing"
    return AlertState("pending", since, old.number), None


MOST_WAITING = 100  # transitions of one alert that are not sent; then its state stays until one is
SAVE_S = 10.0  # between two writes of what may be lost: since when a condition holds, and rows were seen
WRITER = "page"  # of events
LEVELS: dict[str, Level] = {"INFO": "INFO", "WARNING": "WARN", "ERROR": "ERROR"}
SEVERITIES = {"INFO": "info", "WARNING": "warning", "ERROR": "critical"}

Transition = dict[str, Any]
Seen = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Judged:
    """Whether a condition holds, and by which values."""

    holds: bool | None
    values: Mapping[str, Any]


class Book:
    """
    Attributes:
        changed: set when there is something to send.
    """

    def __init__(self, files: PageFiles, identity: Callable[[], str], is_sent: bool):
        """
        Args:
            identity: the id of the lake.
            is_sent: whether transitions wait to be sent; otherwise they are only recorded.
        """
        stored = files.read_alerts()
        self._files = files
        self._spooling = SpoolWriter(files.lake, WRITER)
        self._identity = identity
        self._is_sent = is_sent
        self._lock = threading.Lock()
        self.changed = threading.Event()
        self._states = {name: AlertState(**state) for name, state in stored.get("states", {}).items()}
        self._firing: dict[str, Transition] = stored.get("firing", {})
        self._waiting: list[Transition] = stored.get("waiting", []) if is_sent else []
        self._unspooled: list[Transition] = stored.get("unspooled", [])
        self.seen: Seen = {table: (rows, at) for table, (rows, at) in stored.get("seen", {}).items()}
        self._saved_at = 0.0
        self._is_spool_known = False  # at a start, and after an error, some of them may be there

    def waiting(self) -> list[Transition]:
        """The transitions that are not sent yet, in order."""
        with self._lock:
            return list(self._waiting)

    def firing(self) -> list[Transition]:
        """The transitions by which the alerts that fire now began to."""
        with self._lock:
            return list(self._firing.values())

    def states(self) -> dict[str, AlertState]:
        with self._lock:
            return dict(self._states)

    def judge(
        self,
        rules: Mapping[str, AlertRule],
        judged: Mapping[str, Judged],
        moment: float,
        seen: Seen | None = None,
    ) -> None:
        """Advance all alerts. One whose alert rule is no longer in the settings is resolved.

        Args:
            seen: for each table the rows that were seen last, and since when; None if they are those of the last call.

        Raises:
            OSError: a file could not be written. The next call makes what was not made, and nothing twice.
        """
        with self._lock:
            self.seen = self.seen if seen is None else seen
            if not rules and not self._states:
                return
            states, firing, made = dict(self._states), dict(self._firing), []
            for name in sorted(states.keys() | rules.keys()):
                rule, found = rules.get(name), judged.get(name, Judged(None, {}))
                if sum(one["details"]["rule"] == name for one in self._waiting) >= MOST_WAITING:
                    continue
                holds, for_s = (found.holds, rule.for_s) if rule else (False, 0.0)
                old = states.get(name, AlertState())
                states[name], turn = advance(old, holds, for_s, moment)
                if turn:
                    since = moment if old.state == "ok" else old.since
                    one = self._transition(name, rule, states[name], turn, found, since)
                    made.append(one)
                    firing.pop(name, None)
                    firing |= {name: one} if turn == "firing" else {}
            if made or moment - self._saved_at >= SAVE_S or moment < self._saved_at:
                waiting = [*self._waiting, *made] if self._is_sent else []
                self._save(states, firing, waiting, [*self._unspooled, *made], durable=bool(made))
                self._saved_at = moment
            self._states = states
            for one in made:
                written = log.info if one["level"] == "INFO" else log.warning
                written("alert", rule=one["details"]["rule"], state=one["details"]["state"], message=one["message"])
            if made:
                self.changed.set()
            self._spool()

    def mark_sent(self, transition: Transition) -> None:
        """A receiver has it; a kill before this is durable sends it again, under the same key."""
        with self._lock:
            waiting = [one for one in self._waiting if one["id"] != transition["id"]]
            self._save(self._states, self._firing, waiting, self._unspooled, durable=True)

    def _save(
        self,
        states: Mapping[str, AlertState],
        firing: dict[str, Transition],
        waiting: list[Transition],
        unspooled: list[Transition],
        durable: bool,
    ) -> None:
        kept = {name: asdict(state) for name, state in states.items()}
        value = {"states": kept, "firing": firing, "waiting": waiting, "unspooled": unspooled, "seen": self.seen}
        self._files.write_alerts(value, durable)
        self._firing, self._waiting, self._unspooled = firing, waiting, unspooled

    def _spool(self) -> None:
        if not self._unspooled:
            return
        there = set() if self._is_spool_known else spool.ids(self._files.lake, WRITER)
        self._is_spool_known = False
        rows = [_event(one) for one in self._unspooled if one["id"] not in there]
        if rows:
            self._spooling.put(rows)
        self._is_spool_known, self._unspooled = True, []

    def _transition(
        self, name: str, rule: AlertRule | None, state: AlertState, turn: Turn, judged: Judged, since: float
    ) -> Transition:
        condition = (rule.when or rule.sql) if rule else ""
        shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in judged.values.items()}
        by = ", ".join(f"{measure} is {value}" for measure, value in shown.items())
        verb = "fires" if turn == "firing" else "is resolved"
        why = f"{condition} ({by})" if by else condition or "its rule is no longer in the settings"
        lake = self._identity()
        details = {"lake": lake, "rule": name, "number": state.number, "state": turn, "condition": condition}
        details |= {"values": dict(judged.values), "description": rule.description if rule else ""}
        before = self._firing.get(name)  # the severity stays that of the alert that is resolved
        severity = before["details"]["severity"] if before else SEVERITIES[rule.level] if rule else "info"
        return {
            "id": f"{lake}/{name}/{state.number}",
            "at": iso(state.since),
            "kind": "alert",
            "level": rule.level if rule and turn == "firing" else "INFO",
            "message": f"alert {name} {verb}: {why}",
            "details": details | {"since": iso(since), "severity": severity},
        }


def _event(one: Transition) -> EventRow:
    at = datetime.datetime.fromisoformat(one["at"]).timestamp()
    details = json.dumps(one["details"], ensure_ascii=False)
    return EventRow(
        one["id"], round(at * 1e6), one["kind"], LEVELS[one["level"]], RUN_ID, None, None, one["message"], details
    )


def iso(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="milliseconds")
