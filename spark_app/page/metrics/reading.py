"""Reads the state of a lake at one moment: its status, its newest unit, and the free disk space.

No table is opened. The status may be missing, old, damaged, or of another release, so each value is looked at before
it is used, and None stands for a value that is not known.

The reasons: docs/decisions/alerts.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from spark_app.followers.sinks import state
from spark_app.lake.cursors import SINK
from spark_app.lake.files.disk import free_bytes
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.page.format import moment_of
from spark_app.settings.sinks import NAMES
from spark_app.units.driver.status import STALE_S, problem

STATES = ("starting", "running", "waiting", "held", "stopped", "dead")
ALIVE = STATES[:3]
NO_STATUS = "there is no status, or it cannot be read"


class Reading:
    """
    Attributes:
        moment: when it was read, in seconds since 1970.
        units: number of the newest committed unit.
        free: free bytes on the disk of the lake.
        newest_at: when the newest visible row was produced, in seconds since 1970.
    """

    def __init__(
        self,
        status: Mapping[str, Any] | None,
        moment: float,
        units: int | None = None,
        free: int | None = None,
        before: Reading | None = None,
    ):
        """`before` has the newest row while an app that has just started does not know it."""
        self._status = status or {}
        self.moment = moment
        self.units = units
        self.free = free
        self.newest_at: float | None = before.newest_at if before else None
        age, at = self.number("age_s"), self.last_unit_at
        if age is not None and at is not None:
            self.newest_at = at - age

    def number(self, *path: str) -> float | None:
        """The number at a path in the status."""
        return _number(self._at(*path))

    def counts(self, *path: str) -> dict[str, float]:
        """Name -> number, of an object of the status."""
        found = ((name, _number(value)) for name, value in self.objects(*path).items())
        return {name: value for name, value in found if value is not None}

    def objects(self, *path: str) -> dict[str, Any]:
        found = self._at(*path)
        return found if isinstance(found, dict) else {}

    def has(self, key: str) -> bool:
        """Whether the release that wrote the status knows this part of it."""
        return key in self._status

    def each(self, key: str, part: str) -> dict[str, float]:
        """Name -> number in the part of that name, of an object of objects."""
        found = {name: _number(one.get(part)) for name, one in self.objects(key).items() if isinstance(one, dict)}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def sink_age_s(self) -> float:
        """Seconds for which the oldest row waits for a sink."""
        since = [self.moment - at / 1e6 for at in self.each("sinks", "waits_since").values()]
        return max(since, default=0.0)

    @cached_property
    def status_age_s(self) -> float | None:
        """Seconds since the status was written."""
        at = moment_of(self._status.get("updated_at"))
        return None if at is None else max(0.0, self.moment - at)

    @cached_property
    def state(self) -> str:
        """One of `STATES`. An app is dead if its status is old, unless it was stopped or has drained."""
        stored = self._status.get("state")
        if stored == "held":
            return "held"
        if stored == "stopped" and not self._status.get("reason"):
            return "stopped"
        fresh = self.status_age_s is not None and self.status_age_s <= STALE_S
        return stored if fresh and stored in STATES else "dead"

    @property
    def is_new(self) -> bool:
        """Whether no app has worked on the lake yet."""
        return not self._status and self.units is None

    @property
    def is_up(self) -> bool:
        return self.state in ALIVE

    @cached_property
    def problem(self) -> str | None:
        """Why the app is not healthy; None if it is healthy."""
        try:
            return problem(dict(self._status) or None)
        except (KeyError, TypeError, ValueError):
            return NO_STATUS

    @property
    def last_unit_at(self) -> float | None:
        """When the last unit of Kafka's records was applied."""
        return moment_of(self._at("batch", "at"))

    @property
    def age_s(self) -> float | None:
        """Seconds from produced to visible of the newest row. While records wait, or nobody knows whether they do, its
        age grows."""
        if self.is_up and self.number("lag") == 0 and self.number("age_s") is not None:
            return self.number("age_s")
        return None if self.newest_at is None else max(0.0, self.moment - self.newest_at)

    @cached_property
    def expectations(self) -> dict[str, tuple[float, float]]:
        """Expectation -> rows that pass and that fail it, since the start of the app."""
        found = {}
        for name, counts in self.objects("expectations").items():
            if isinstance(counts, list) and len(counts) == 2:
                passed, failed = map(_number, counts)
                if passed is not None and failed is not None:
                    found[name] = (passed, failed)
        return found

    def _at(self, *path: str) -> Any:
        value: Any = self._status
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def read(lake: Lake, moment: float, before: Reading | None = None) -> Reading:
    """The state of the lake now.

    Args:
        moment: seconds since 1970.
        before: an earlier reading of the same lake.
    """
    units, status = lake.units(), read_json(lake.storage, lake.status)
    followers = (status or {}).get("followers")
    names = [str(name) for name in followers] if isinstance(followers, dict) else []
    names = [own for name in names if name.startswith(SINK) and NAMES.fullmatch(own := name.removeprefix(SINK))]
    if sinks := {name: said for name in names if (said := state.read(lake, name))}:  # of another process than the app's
        status = {**(status or {}), "sinks": sinks}
    return Reading(status, moment, units[-1] if units else None, free_bytes(lake.root), before)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
