"""The observations of the lake: the newest reading, and the rates of the last minute. All views share them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.log import log
from spark_app.model.table_names import GOLD, TableNames, gold_follower
from spark_app.page.format import amount
from spark_app.page.metrics.reading import ALIVE, Reading, read

EVERY_S = 0.5
SILENT_S = 3.5  # the app writes its status once a second
NO_APP = "no app yet"
SAMPLE_S = 5.0
WINDOW_S = 60.0
KEPT_S = 600.0


@dataclass(frozen=True)
class Second:
    """One second of the last minutes.

    Attributes:
        at: seconds since 1970.
        rate: records per second.
        age_s: from produced to visible of the newest row.
    """

    at: float
    rate: float | None
    age_s: float | None


class Observations:
    """
    Attributes:
        newest: the last reading.
        number: grows with each reading.
        seconds: what was seen, oldest first.
    """

    def __init__(self, lake: Lake, clock: Callable[[], float] = time.time):
        self._lake = lake
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[str, float]]] = deque()
        self._new_rows_at: dict[str, float] = {}
        self.seconds: deque[Second] = deque(maxlen=int(KEPT_S))
        self.number = 0
        self.newest = read(lake, clock())
        self._add(self.newest)

    def start(self) -> None:
        threading.Thread(target=self._forever, name="observations", daemon=True).start()

    def step(self) -> None:
        reading = read(self._lake, self._clock(), self.newest)
        self._add(reading)
        self.newest = reading
        self.number += 1

    @property
    def state(self) -> str:
        """One of `STATES`, or `NO_APP`, or "silent": the app wrote no status for some seconds, and may be dead."""
        if self.newest.is_new:
            return NO_APP
        age = self.newest.status_age_s
        silent = self.newest.state in ALIVE and age is not None and age > SILENT_S
        return "silent" if silent else self.newest.state

    def rate_of(self, table: str) -> float | None:
        """Rows per second of a silver table in the last minute; None if it is not known yet."""
        if len(self._samples) < 2:
            return None
        (since, before), (until, now) = self._samples[0], self._samples[-1]
        return max(0.0, now.get(table, 0.0) - before.get(table, 0.0)) / max(until - since, 1.0)

    def silent_s(self, table: str) -> float | None:
        """Seconds since a silver table got rows; None if it got none since the page is up."""
        at = self._new_rows_at.get(table)
        return None if at is None else max(0.0, self.newest.moment - at)

    def _add(self, reading: Reading) -> None:
        if not self.seconds or reading.moment - self.seconds[-1].at >= 1.0:
            rate = reading.number("rate") if reading.is_up else None
            self.seconds.append(Second(reading.moment, rate, reading.age_s))
        silver = reading.each("tables", "silver")
        newest = self._samples[-1][1] if self._samples else silver
        self._new_rows_at.update({name: reading.moment for name, rows in silver.items() if rows > newest.get(name, 0)})
        if not self._samples or reading.moment - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((reading.moment, silver))
        while len(self._samples) > 2 and self._samples[1][0] < reading.moment - WINDOW_S:
            self._samples.popleft()

    def _forever(self) -> None:
        failed = False
        while True:
            time.sleep(EVERY_S)
            try:
                self.step()
                failed = False
            except OSError as error:  # the next step makes up for it
                if not failed:
                    log.warning("the lake could not be read", reason=str(error))
                failed = True


def gold_state(reading: Reading, layout: TableNames, table: str) -> str:
    """Whether a gold table has all rows of silver."""
    behind = reading.each("followers", "lag").get(gold_follower(layout.gold_kind(table) or GOLD))
    if table in reading.objects("gold_failed"):
        return "failed"
    if not behind:
        return "up to date"
    return f"gold is {amount(behind)} unit{'' if behind == 1 else 's'} behind"


def troubled_tables(reading: Reading, layout: TableNames) -> dict[str, str]:
    """Routing name -> what is wrong, in two words at most."""
    gold = filter(layout.is_gold, reading.objects("gold_failed"))
    failed = dict.fromkeys(map(layout.gold_name_of, gold), "gold failed")
    return failed | dict.fromkeys(reading.objects("paused"), "paused")


def pause_text(pause: Mapping[str, Any]) -> str:
    """The fate of the rows of a paused table; `pause` is its part of the status."""
    rows = f"{amount(pause.get('rows'))} rows"
    if pause.get("let_in"):
        return f"{rows} are let in"
    return f"{rows} wait: the record {pause.get('record')} fails the expectation {pause.get('rule')}"
