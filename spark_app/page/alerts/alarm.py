"""Watches the conditions of the settings: judges them once a second and SQL when it is due, and sends the alerts.

The reasons: docs/decisions/alerts.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.model.log import log
from spark_app.page.alerts.book import Book, Judged
from spark_app.page.alerts.conditions import Conditions
from spark_app.page.alerts.delivery import Delivery, Receiver
from spark_app.page.alerts.measuring import History, measures_of
from spark_app.page.files import PageFiles
from spark_app.page.metrics.reading import Reading, read
from spark_app.page.queries.child_process import Child
from spark_app.settings.models import Settings
from spark_app.settings.watching import AlertRule

EVERY_S = 1.0


class Alarm:
    """
    Attributes:
        book: the states of the alerts.
    """

    def __init__(self, lake: Lake, settings: Settings, files: PageFiles, identity: Callable[[], str]):
        """
        Args:
            identity: the id of the lake, which a new lake gets from its app.

        Raises:
            ConfigurationError: a condition cannot be judged, or a file of a secret cannot be used.
            ContractError: the states of the alerts are damaged.
            UnreachableError: the process that judges conditions does not answer.
        """
        self._lake = lake
        self._files = files
        self._rules = settings.alerts.rules
        self._reading: Reading = read(lake, time.time())
        measures = measures_of(lake, settings, self._reading)
        self._conditions = Conditions({name: rule.when for name, rule in self._rules.items() if rule.when}, measures)
        with_sql = {name: rule for name, rule in self._rules.items() if rule.sql}
        for name, rule in with_sql.items():
            refused = run_sql(lake, rule.sql, bind=True).get("refused")
            if refused:
                raise ConfigurationError(f"alerts.rules.{name}.sql: {refused}")
        self._checks = SqlChecks(lake, with_sql)
        is_sent = bool(settings.alerts.webhook or settings.alerts.webhook_file)
        self.book = Book(files, identity, is_sent)
        uses = [use for found in self._conditions.uses.values() for use in found]
        self._history = History((table for measure, table in uses if measure == "silent_s"), self.book.seen)
        self._delivery: Delivery | None = None
        if is_sent:
            repeats = settings.alerts.format == "alertmanager"
            self._delivery = Delivery(self.book, Receiver(settings.alerts).post, repeats)

    def start(self) -> None:
        """Judge and send in threads of their own."""
        self._checks.start()
        threading.Thread(target=self._forever, args=(time.time,), name="alerts", daemon=True).start()
        if self._delivery is not None:
            self._delivery.start(time.monotonic)

    def step(self, moment: float) -> None:
        """Judge all conditions by the present reading of the lake.

        Args:
            moment: seconds since 1970.

        Raises:
            OSError: the states could not be written.
            UnreachableError: the lake was moved away.
        """
        self._files.check()
        self._reading = read(self._lake, moment, self._reading)
        if self._reading.is_new:
            return  # the lake has no id yet, which is a part of the key of each transition
        self._history.add(self._reading)
        judged = {name: Judged(self._checks.holds(name), {}) for name in self._rules}
        for name, holds in self._conditions.judge(self._history.value).items():
            uses = self._conditions.uses[name]
            values = {f"{m}('{argument}')" if argument else m: self._history.value(m, argument) for m, argument in uses}
            judged[name] = Judged(holds, values)
        self.book.judge(self._rules, judged, moment, self._history.seen)

    def _forever(self, clock: Callable[[], float]) -> None:
        failed = False
        while True:
            try:
                self.step(clock())
                failed = False
            except OSError as error:  # the next step makes up for it
                if not failed:
                    log.warning("alerts could not be judged, or their state not be written", reason=str(error))
                failed = True
            time.sleep(EVERY_S)


WITHIN_S = 60.0


def run_sql(lake: Lake, sql: str, bind: bool = False, within_s: float = WITHIN_S) -> dict[str, Any]:
    """The response of the child process: one of "holds", "refused" and "failed"."""
    request = {"lake": asdict(lake.address), "sql": sql, "bind": bind}
    return Child().run("spark_app.page.alerts.sql_child", request, within_s)


class SqlChecks:
    """Runs SQL checks one after the other, each in a child process, beside the judging of conditions. It has the newest
    result of each check; None until there is one, and while a check fails."""

    def __init__(
        self, lake: Lake, rules: Mapping[str, AlertRule], run: Callable[[Lake, str], dict[str, Any]] = run_sql
    ):
        self._lake = lake
        self._rules = rules
        self._run = run
        self._results: dict[str, bool | None] = {}
        self._logged: dict[str, str | None] = {}  # why a check could not be run the last time
        self._due = dict.fromkeys(rules, 0.0)

    def start(self) -> None:
        if self._rules:
            threading.Thread(target=self._forever, name="sql checks", daemon=True).start()

    def holds(self, name: str) -> bool | None:
        return self._results.get(name)

    def step(self, moment: float) -> float:
        """Run the checks that are due. Returns the moment of the next one."""
        for name, rule in self._rules.items():
            if self._due[name] <= moment:
                response = self._run(self._lake, rule.sql)
                self._results[name] = response.get("holds")
                why = None if "holds" in response else str(response.get("refused") or response.get("failed"))
                if why and why != self._logged.get(name):
                    log.warning("an SQL check could not be run, and may hold or not", rule=name, reason=why)
                self._logged[name] = why
                self._due[name] = moment + rule.every_s
        return min(self._due.values())

    def _forever(self) -> None:
        while True:
            next_at = self.step(time.monotonic())
            time.sleep(max(0.1, next_at - time.monotonic()))
