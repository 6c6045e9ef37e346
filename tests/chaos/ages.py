"""How old the newest rows of silver tables are, while something else happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

EVERY_S = 0.25


def watch(lake: Path, games: Sequence[str], has_ended: Callable[[], bool], warm_s: float = 0.0) -> list[float]:
    """The age of each game's newest row in seconds, ascending; the games take turns. The first `warm_s` seconds do not
    count."""
    began = time.monotonic()
    ages: list[float] = []
    tables: dict[str, DeltaTable] = {}
    for game in cycle(games):
        time.sleep(EVERY_S)
        if has_ended():
            break
        table = tables.setdefault(game, DeltaTable(str(lake / f"silver_{game}_events")))
        table.update_incremental()
        if time.monotonic() - began > warm_s:
            ages.append(_age(table))
    return sorted(ages)


def summary(ages: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and worst of ascending ages."""
    found = {"median": median(ages), "p99": ages[len(ages) * 99 // 100], "at_most": ages[-1]}
    return {name: round(age, 2) for name, age in found.items()}


def _age(table: DeltaTable) -> float:
    newest = pc.max(pa.table(table.get_add_actions(flatten=True))["max._kafka_timestamp"]).as_py()
    age: timedelta = datetime.now(UTC) - newest.replace(tzinfo=UTC)
    return age.total_seconds()
