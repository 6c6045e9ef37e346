"""The states of an alert: ok, pending while its condition holds for less than `for_s`, firing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "pending", "firing"]
Turn = Literal["firing", "resolved"]


@dataclass(frozen=True)
class AlertState:
    """
    Attributes:
        since: when the state began, in seconds since 1970.
        number: how many transitions there were: the odd ones are firing, the even ones resolved.
    """

    state: State = "ok"
    since: float = 0.0
    number: int = 0


def advance(old: AlertState, holds: bool | None, for_s: float, moment: float) -> tuple[AlertState, Turn | None]:
    """The next state, and what somebody is told.

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
