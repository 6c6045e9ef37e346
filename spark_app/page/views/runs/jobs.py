"""Reads the table of events: the newest events, the units of each run, and where the seconds of units went."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import duckdb

from spark_app.lake.lake import Lake
from spark_app.model.text import quoted
from spark_app.page.queries.locked_tables import connect, open_tables
from spark_app.page.views.runs.events import LEVELS, LIFE, MOST, kinds_outside
from spark_app.settings.models import Settings

HOUR_S = 3600
MOST_RUNS = 200
MOST_UNITS = 30
LONGEST = 20_000  # characters of the details of an event
COLUMNS = f"""id, epoch_us(happened_at) / 1e6 as "at", kind, level, run, unit, "table", message,
    left(details, {LONGEST}) as details"""
NUMBER = "try_cast(try_cast(details as json)->>'$.{}' as {})"
RECORDS, SECONDS = NUMBER.format("records", "bigint"), NUMBER.format("seconds", "double")


def run_history(
    lake: Lake, settings: Settings, since: float | None, groups: Sequence[str], levels: Sequence[str] = LEVELS
) -> dict[str, Any]:
    """
    Args:
        since: seconds since 1970; None = all events.
        groups: some of `events.GROUPS`.

    Returns:
        `events` of these groups and levels, and starts and ends, as `ShownEvent` has them; `sums`: run -> units and
        their records; `minutes` of the last hour: (minute, kind of unit, units, records, seconds, most seconds);
        `steps` of the last hour: (minute, step, seconds); `newest` and `slowest` units. Empty if there is no table.
    """
    table = settings.layout.events
    if not lake.has_table(table):
        return {"events": [], "sums": {}, "minutes": [], "steps": [], "newest": [], "slowest": []}
    con = connect()
    try:
        open_tables(con, lake, [table])
        return _EventTable(con, table, since or 0.0).all(groups, levels)
    finally:
        con.close()


class _EventTable:
    def __init__(self, con: duckdb.DuckDBPyConnection, table: str, since: float):
        self._con = con
        self._table = quoted(table)
        self._since = since

    def all(self, groups: Sequence[str], levels: Sequence[str]) -> dict[str, Any]:
        hour = max(self._since, time.time() - HOUR_S)
        life = self._events("list_contains(?, kind)", list(LIFE), most=MOST_RUNS)
        events = self._events(
            "list_contains(?, level) and not list_contains(?, kind) and (? or list_contains(?, kind))",
            list(levels),
            kinds_outside(groups),
            "other" in groups,
            kinds_outside(()),
            most=MOST,
        )
        return {
            "events": list({event["id"]: event for event in (*events, *life)}.values()),
            "sums": self._sums(),
            "minutes": self._minutes(hour),
            "steps": self._steps(hour),
            "newest": self._units("happened_at desc"),
            "slowest": self._units(f"{SECONDS} desc nulls last"),
        }

    def _rows(self, select: str, condition: str, rest: str, since: float, *values: Any) -> list[tuple[Any, ...]]:
        """`since` comes first in the condition: the statistics of files leave out those that are older."""
        sql = f"select {select} from {self._table} where happened_at >= to_timestamp(?) and {condition} {rest}"
        return self._con.execute(sql, [since, *values]).fetchall()

    def _events(self, condition: str, *values: Any, most: int) -> list[dict[str, Any]]:
        rest = f"order by happened_at desc limit {most}"
        names = ("id", "at", "kind", "level", "run", "unit", "table", "message", "details")
        rows = self._rows(COLUMNS, condition, rest, self._since, *values)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _sums(self) -> dict[str, Any]:
        select = f"run, count(*), sum({RECORDS})::bigint"
        rows = self._rows(select, "kind = 'unit' and run is not null", "group by 1", self._since)
        return {run: {"units": units, "records": records or 0} for run, units, records in rows}

    def _minutes(self, since: float) -> list[tuple[Any, ...]]:
        kind = NUMBER.format("kind", "varchar")
        select = f"epoch_us(happened_at) // 60000000 * 60, coalesce({kind}, '?'), count(*), sum({RECORDS})::bigint"
        select += f", sum({SECONDS}), max({SECONDS})"
        return self._rows(select, "kind = 'unit'", "group by 1, 2 order by 1, 2 limit 2000", since)

    def _steps(self, since: float) -> list[tuple[Any, ...]]:
        """Of an app that stores them."""
        steps = "try_cast(try_cast(details as json)->'$.steps' as map(varchar, double))"
        select = f"epoch_us(happened_at) // 60000000 * 60 as minute, unnest(map_entries({steps})) as step"
        inner = f"select {select} from {self._table} where happened_at >= to_timestamp(?) and kind = 'unit'"
        sql = f"select minute, step.key, sum(step.value) as s from ({inner}) group by 1, 2 having s > 0 order by 1, 2"
        return self._con.execute(f"{sql} limit 3000", [since]).fetchall()

    def _units(self, order: str) -> list[dict[str, Any]]:
        select = f"unit, epoch_us(happened_at) / 1e6, left(details, {LONGEST})"
        rows = self._rows(select, "kind = 'unit'", f"order by {order} limit {MOST_UNITS}", self._since)
        return [{"unit": unit, "at": at, "details": _object(details)} for unit, at, details in rows]


def _object(details: Any) -> dict[str, Any]:
    try:
        value = json.loads(details)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
