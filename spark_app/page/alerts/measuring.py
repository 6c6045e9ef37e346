"""The measures that a condition may name, and their values: of the last reading, or over the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.causes import Cause
from spark_app.page.alerts.conditions import Kind, Measures, Value
from spark_app.page.metrics.reading import Reading
from spark_app.settings.models import Settings

WINDOW_S = 60.0
SHORTEST_S = 30.0  # of a window over which a share is known: after a start the first records prove nothing
SAMPLE_S = 5.0
PROTO = "proto."  # rules in the .proto, which may be unknown before their first row

Of = Callable[[Reading], Value]
PLAIN: Mapping[str, Of] = {
    "state": lambda r: r.state,
    "age_s": lambda r: r.age_s,
    "status_age_s": lambda r: r.status_age_s,
    "quiet_s": lambda r: r.number("quiet_s") if r.is_up else None,
    "lag": lambda r: r.number("lag") if r.is_up else None,
    "rate": lambda r: r.number("rate") if r.is_up else None,
    "unit_s": lambda r: r.number("batch", "seconds"),
    "units": lambda r: r.units,
    "records": lambda r: r.number("bronze"),
    "deferred": lambda r: r.number("deferred"),
    "quarantine": lambda r: sum(r.counts("quarantine").values()) if r.has("quarantine") else None,
    "dropped": lambda r: r.number("dropped"),
    "blocked": lambda r: sum(r.counts("held_back").values()) if r.has("held_back") else None,
    "lost": lambda r: r.number("lost", "offsets"),
    "tables": lambda r: len(r.objects("tables")) if r.has("tables") else None,
    "paused_tables": lambda r: len(r.objects("paused")) if r.has("paused") else None,
    "gold_failed": lambda r: len(r.objects("gold_failed")) if r.has("gold_failed") else None,
    "schema_warnings": lambda r: r.number("schema_warnings", "count"),
    "starts": lambda r: r.number("starts"),
    "bumps": lambda r: r.number("bumps"),
    "free_bytes": lambda r: r.free,
    "sink_age_s": lambda r: r.sink_age_s,
    "sink_waiting": lambda r: sum(r.each("sinks", "waiting").values()),
    "sink_rejected": lambda r: sum(r.each("sinks", "rejected").values()),
    "sinks_stopped": lambda r: sum(one.get("state") in ("failed", "paused") for one in r.objects("sinks").values()),
    "follower_lag": lambda r: max(r.each("followers", "lag").values(), default=None),
}
OVER_A_MINUTE = ("quarantine_rate",)
OF = {"silent_s": "table", "rows": "table", "failure_rate": "expectation", "quarantine_of": "cause"}


def measures_of(lake: Lake, settings: Settings, reading: Reading) -> Measures:
    """The names that conditions on this lake may use. Before the lake has a table nobody knows the names of tables."""
    admitted = (read_json(lake.storage, lake.admitted) or {}).get("names", {})
    tables = {*map(str, admitted.values()), *settings.tables.allowlist}
    expectations = {*settings.expectations, *reading.expectations}
    kinds: dict[str, Kind] = {name: "text" if name == "state" else "number" for name in (*PLAIN, *OVER_A_MINUTE)}
    known = {"table": tables or None, "expectation": expectations, "cause": {cause.value for cause in Cause}}
    if settings.schemas.proto_rules != "off" and not any(name.startswith(PROTO) for name in expectations):
        known["expectation"] = None
    return Measures(kinds, OF, known)


@dataclass(frozen=True)
class _Sample:
    moment: float
    records: float
    quarantined: float | None
    expectations: Mapping[str, tuple[float, float]]

    def is_after(self, other: _Sample) -> bool:
        """Whether the counts went on: a start of the app counts them anew."""
        before = other.expectations.items()
        fewer = any(sum(self.expectations.get(name, (0, 0))) < sum(counts) for name, counts in before)
        return not fewer and self.records >= other.records and (self.quarantined or 0) >= (other.quarantined or 0)


class History:
    """The readings of the last minute, and when each watched table last had new rows.

    Attributes:
        seen: routing name -> rows, and the moment in seconds since 1970 when they last changed. A new dictionary after
            each change, because other threads read it.
    """

    def __init__(self, watched: Iterable[str], seen: Mapping[str, tuple[float, float]]):
        """
        Args:
            watched: routing names of the tables in conditions about silence.
            seen: as an earlier process left it.
        """
        watched = set(watched)
        self.seen = {table: (rows, at) for table, (rows, at) in seen.items() if table in watched}
        self._watched = watched
        self._samples: deque[_Sample] = deque()
        self._reading = Reading(None, 0.0)

    def add(self, reading: Reading) -> None:
        self._reading = reading
        silver = reading.each("tables", "silver")
        for table in self._watched:
            rows = silver.get(table, 0.0)
            if table not in self.seen or (table in silver and self.seen[table][0] != rows):
                self.seen = self.seen | {table: (rows, reading.moment)}
        records = reading.number("bronze")
        if not reading.is_up or records is None:
            return
        quarantined = sum(reading.counts("quarantined").values()) if reading.has("quarantined") else None
        sample = _Sample(reading.moment, records, quarantined, reading.expectations)
        if self._samples and not (
            0 <= sample.moment - self._samples[-1].moment <= WINDOW_S and sample.is_after(self._samples[-1])
        ):
            self._samples.clear()
        if len(self._samples) > 1 and self._samples[-1].moment - self._samples[-2].moment < SAMPLE_S:
            self._samples.pop()
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].moment <= sample.moment - WINDOW_S:
            self._samples.popleft()

    def value(self, measure: str, argument: str) -> Value:
        """The value of a measure; None if nobody knows it."""
        if measure in PLAIN:
            return PLAIN[measure](self._reading)
        if measure == "rows":
            return self._reading.each("tables", "silver").get(argument)
        if measure == "quarantine_of":
            known = self._reading.has("quarantine")
            return self._reading.counts("quarantine").get(argument, 0.0) if known else None
        if measure == "silent_s":
            return max(0.0, self._reading.moment - self.seen[argument][1]) if argument in self.seen else None
        return self._share(argument)

    def _share(self, expectation: str) -> float | None:
        """The share of the records of the last minute that went to quarantine; with an expectation that of its rows
        that failed it. It is 0 if there were none."""
        if not self._reading.is_up or not self._samples:
            return None
        first, last = self._samples[0], self._samples[-1]
        if last.moment - first.moment < SHORTEST_S:
            return None
        if not expectation:
            if last.quarantined is None:
                return None
            records, bad = last.records - first.records, last.quarantined - (first.quarantined or 0.0)
        else:
            passed, failed = last.expectations.get(expectation, (0.0, 0.0))
            before, bad_before = first.expectations.get(expectation, (0.0, 0.0))
            records, bad = passed + failed - before - bad_before, failed - bad_before
        return 0.0 if bad <= 0 else min(1.0, bad / max(records, bad))
