"""Runs the SQL checks of alerts one after the other, each in a child process, beside the evaluation of conditions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.log import log
from spark_app.page.queries import asking
from spark_app.settings.watching import AlertRule

WITHIN_S = 60.0


def ask(lake: Lake, sql: str, bind: bool = False, within_s: float = WITHIN_S) -> dict[str, Any]:
    """What the child process says: one of "holds", "refused" and "failed"."""
    question = {"lake": asdict(lake.place), "sql": sql, "bind": bind}
    return asking.ask("spark_app.page.alerts.sql_child", question, within_s)


class SqlChecks:
    """The newest answer of each check; None until there is one, and while a check fails."""

    def __init__(self, lake: Lake, rules: Mapping[str, AlertRule], run: Callable[[Lake, str], dict[str, Any]] = ask):
        self._lake = lake
        self._rules = rules
        self._run = run
        self._answers: dict[str, bool | None] = {}
        self._due = dict.fromkeys(rules, 0.0)

    def start(self) -> None:
        if self._rules:
            threading.Thread(target=self._forever, name="sql checks", daemon=True).start()

    def holds(self, name: str) -> bool | None:
        return self._answers.get(name)

    def step(self, moment: float) -> float:
        """Run the checks that are due. Returns the moment of the next one."""
        for name, rule in self._rules.items():
            if self._due[name] <= moment:
                said = self._run(self._lake, rule.sql)
                self._answers[name] = said.get("holds")
                if "holds" not in said:
                    why = said.get("refused") or said.get("failed")
                    log.warning("an SQL check could not be run", rule=name, reason=str(why))
                self._due[name] = moment + rule.every_s
        return min(self._due.values())

    def _forever(self) -> None:
        while True:
            next_at = self.step(time.monotonic())
            time.sleep(max(0.1, next_at - time.monotonic()))
