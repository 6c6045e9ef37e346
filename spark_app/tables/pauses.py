"""The paused tables of a lake: which rows wait, and when they are let in.

The last manifest has the pauses, so a pause begins and ends with a unit. A table is let in when its expectation was
changed in the settings, or when a person decided what becomes of the rows that fail it. Until all of its rows have been
let in, new rows of the table wait behind them.

The reasons: docs/decisions/waiting.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.lake import Lake
from spark_app.model.definitions import Action, Definition, Definitions, Expectation
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.model.pauses import FailedRow, Failing, Pause, Pauses, change_rows, wait_text
from spark_app.model.reports import Report
from spark_app.model.table_names import TableNames
from spark_app.tables.definitions import number
from spark_app.tables.expectations.in_force import ExpectationsInForce

# What the expectation does to the rows that are let in.
ACTION_OF: dict[Failing, Action] = {"quarantine": "quarantine", "land": "warn"}


class PausedTables:
    """The pauses of the last unit. `expectations` are those in force."""

    def __init__(self, lake: Lake, manifests: Manifests, expectations: ExpectationsInForce):
        self._lake = lake
        self._manifests = manifests
        self._expectations = expectations

    @property
    def pauses(self) -> Pauses:
        return self._manifests.pauses

    def is_let_in(self, name: str) -> bool:
        """Whether the waiting rows of a paused table are let in."""
        pause = self.pauses[name]
        return bool(pause.failing) or not self._is_in_force(name, pause)

    def describe(self) -> dict[str, Any]:
        """Routing name -> the fields of the pause, and whether its rows are let in; for the status."""
        return {name: {**vars(pause), "let_in": self.is_let_in(name)} for name, pause in self.pauses.items()}

    def waiting(self, letting_in: bool) -> dict[str, str]:
        """Routing name -> what its rows wait for.

        Args:
            letting_in: leave out the tables whose waiting rows are let in.
        """
        return {
            name: wait_text(pause.rule)
            for name, pause in self.pauses.items()
            if not (letting_in and self.is_let_in(name))
        }

    def let_in_by(self, definitions: Definitions) -> Definitions:
        """The definitions for the rows that are let in: each decision of a person changes the action of one
        expectation.

        Args:
            definitions: those in force.
        """
        for name, pause in self.pauses.items():
            if pause.failing and self._is_in_force(name, pause):
                definitions = definitions.with_changes(name, partial(self._decide, pause))
        return definitions

    def _is_in_force(self, name: str, pause: Pause) -> bool:
        expectation = Expectation(pause.rule, pause.check, "pause")
        return any(expectation in definition.expectations for definition in self._expectations.definitions.every(name))

    def _decide(self, pause: Pause, definition: Definition) -> Definition:
        paused, action = Expectation(pause.rule, pause.check, "pause"), ACTION_OF[pause.failing]
        if paused not in definition.expectations:
            return definition
        expectations = (replace(one, action=action) if one == paused else one for one in definition.expectations)
        return number(self._lake, tuple(expectations))

    def after(self, report: Report, released: Mapping[str, int]) -> dict[str, Pause]:
        """The pauses after a unit; `released`: routing name -> waiting rows that it took out of the deferred ones."""
        begun = {name: self._begin(name, FailedRow(*row)) for name, row in report.failing.items()}
        return change_rows({**self.pauses, **begun}, report.waiting, released)

    def _begin(self, name: str, row: FailedRow) -> Pause:
        """A new pause. If the table was paused before, the rows that wait already go on waiting."""
        before = self.pauses.get(name)
        return replace(Pause.by(row, time.time()), rows=before.rows if before else 0)


def pause_events(layout: TableNames, before: Pauses, after: Pauses) -> list[Event]:
    """Which tables a unit pauses, and whose rows have all been let in with it."""
    found = []
    for name, pause in after.items():
        if _begins(name, pause, before):
            table, details = layout.silver_of(name), {"rule": pause.rule, "record": pause.record}
            text = f"Table {table} is paused: {pause.record} fails {pause.rule}"
            found.append(Event("paused", text, "ERROR", table, details))
    for table in map(layout.silver_of, before.keys() - after.keys()):
        found.append(Event("paused", f"Table {table} goes on: all waiting rows were let in", table=table))
    return found


def _begins(name: str, pause: Pause, before: Pauses) -> bool:
    return name not in before or before[name].since != pause.since


def log_changes(before: Pauses, after: Pauses) -> None:
    """Log which tables a unit paused, and whose rows have all been let in."""
    for name, pause in after.items():
        if _begins(name, pause, before):
            remedy = f"change the expectation and restart, or decide: protolake resume {name} --failing quarantine|land"
            text = "table paused: a row fails an expectation"
            log.error(text, table=name, rule=pause.rule, record=pause.record, remedy=remedy)
    for name in before.keys() - after.keys():
        log.info("table goes on: all waiting rows were let in", table=name)
