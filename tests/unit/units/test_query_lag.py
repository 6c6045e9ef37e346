"""The lag that `status` shows, by Spark's reports, and how often a report is read."""

from __future__ import annotations

from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from spark_app.units.driver.streaming import FRESH_S, LOOK_S, QueryLag


class Query:
    """A query with a report; `read` counts how often it was read."""

    def __init__(self) -> None:
        self.report: Any = None
        self.read = 0

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        self.read += 1
        if isinstance(self.report, Exception):
            raise self.report
        return self.report


class Watched:
    def __init__(self) -> None:
        self.now, self.unit, self.query = 100.0, 1, Query()
        self.lag = QueryLag(cast(StreamingQuery, self.query), lambda: self.unit, lambda: self.now)

    def look(self, later_s: float = 1.0) -> int | None:
        self.now += later_s
        return self.lag.look()


def report(latest: dict[str, int], taken: dict[str, int]) -> dict[str, Any]:
    return {"sources": [{"latestOffset": {"t": latest}, "endOffset": {"t": taken}}]}


def test_lag_is_what_the_last_batch_did_not_include() -> None:
    watched = Watched()
    watched.query.report = report({"0": 10, "1": 7}, {"0": 4})
    assert watched.look() == 13


def test_without_a_report_the_lag_is_unknown() -> None:
    for found in (None, {"sources": []}, report({}, {}), {"sources": [{}]}, PySparkException("gone")):
        watched = Watched()
        watched.query.report = found
        assert watched.look() is None


def test_without_new_units_a_report_is_read_rarely() -> None:
    watched = Watched()
    for _ in range(60):
        watched.look()
    assert 60 / LOOK_S <= watched.query.read <= 60 / LOOK_S + FRESH_S


def test_after_a_unit_its_report_is_seen_at_once_although_it_comes_a_little_later() -> None:
    watched = Watched()
    watched.query.report = report({"0": 5}, {"0": 5})
    for _ in range(20):
        watched.look()
    watched.unit += 1
    assert watched.look() == 0
    watched.query.report = report({"0": 9}, {"0": 6})
    assert watched.look() == 3
