"""Paused tables: a row failed a rule with the action pause, so all rows of its table wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Failing = Literal["", "quarantine", "land"]


class FailedRow(NamedTuple):
    """The row for which a table is paused: its record, and the rule that it fails."""

    topic: str
    partition: int
    offset: int
    rule: str
    check: str


@dataclass(frozen=True)
class Pause:
    """A pause as manifests have it.

    Attributes:
        rule, check: name and expression of the rule that a row failed.
        record: the record of that row, as topic/partition@offset.
        since: when the table was paused, in seconds since 1970.
        rows: rows of the table that wait.
        failing: what a person decided for waiting rows that fail the rule; "" = nothing yet.
    """

    rule: str
    check: str
    record: str
    since: float
    rows: int = 0
    failing: Failing = ""

    @staticmethod
    def by(row: FailedRow, since: float) -> Pause:
        return Pause(row.rule, row.check, f"{row.topic}/{row.partition}@{row.offset}", since)


Pauses = Mapping[str, Pause]  # routing name -> pause


def change_rows(pauses: Pauses, added: Mapping[str, int], released: Mapping[str, int]) -> dict[str, Pause]:
    """The pauses after rows of their tables began to wait or were released. A pause without rows has ended."""
    rows = {name: pause.rows + added.get(name, 0) - released.get(name, 0) for name, pause in pauses.items()}
    return {name: replace(pause, rows=rows[name]) for name, pause in pauses.items() if rows[name]}


def wait_text(rule: str) -> str:
    """The value of `waits_for` in `deferred_events` for the rows of a paused table."""
    return f"rule:{rule}"
