"""The lag of the streaming query, by its last progress report.

A report costs a call of the JVM, and Spark makes one per batch, or every ten seconds without records. So the report is
read each time only shortly after a unit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

FRESH_S = 3.0  # after a unit: Spark reports the batch a little later than the unit is committed
LOOK_S = 5.0


class QueryLag:
    """
    Args:
        last_unit: the number of the last committed unit.
    """

    def __init__(
        self, query: StreamingQuery, last_unit: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ):
        self._query = query
        self._last_unit = last_unit
        self._clock = clock
        self._lag: int | None = None
        self._unit = -1
        self._fresh_until = 0.0
        self._next = 0.0

    def look(self) -> int | None:
        """Records that the broker has and the last batch did not include; None if that is not known."""
        now, unit = self._clock(), self._last_unit()
        if unit != self._unit:
            self._unit, self._fresh_until = unit, now + FRESH_S
        if now >= self._next or now < self._fresh_until:
            self._lag, self._next = _lag(self._query), now + LOOK_S
        return self._lag


def _lag(query: StreamingQuery) -> int | None:
    try:
        progress = query.lastProgress
        sources = progress["sources"] if progress else []
        ends = [(json.loads(_text(s["latestOffset"])), json.loads(_text(s["endOffset"]))) for s in sources]
        pairs = [(latest[t][p], end.get(t, {}).get(p, 0)) for latest, end in ends for t in latest for p in latest[t]]
    except (PySparkException, Py4JError, OSError, ValueError, TypeError, KeyError):  # also: the JVM is gone
        return None
    return sum(latest - taken for latest, taken in pairs) if pairs else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
