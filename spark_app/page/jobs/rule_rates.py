"""How many rows of a table passed its rules over time, by the newest events."""

from __future__ import annotations

from typing import Any

from spark_app.lake.delta.opened_table import open_table
from spark_app.lake.lake import Lake
from spark_app.page.jobs.newest_rows import files_of
from spark_app.page.queries.locked_tables import connect
from spark_app.page.queries.parquet_rows import rows_of
from spark_app.settings.models import Settings

MOST_BYTES = 32 << 20  # of files
MOST_FILES = 400
POINTS = 120
SHORTEST_S = 10
SQL = """
WITH told AS (
  SELECT details->>'$.rule' AS rule, epoch(happened_at) AS moment,
    TRY_CAST(details->>'$.passed' AS BIGINT) AS passed, TRY_CAST(details->>'$.failed' AS BIGINT) AS failed
  FROM events WHERE kind = 'rule' AND "table" = $table AND json_valid(details)
),
width AS (SELECT greatest($shortest, ceil((max(moment) - min(moment)) / $points)) AS s FROM told)
SELECT rule, floor(moment / s) * s AS bucket, sum(passed)::BIGINT, sum(failed)::BIGINT
FROM told, width WHERE rule IS NOT NULL AND passed IS NOT NULL AND failed IS NOT NULL
GROUP BY ALL ORDER BY bucket, rule
"""


def rule_rates(lake: Lake, settings: Settings, table: str) -> dict[str, list[tuple[float, int, int]]]:
    """Rule -> (seconds since 1970, rows that passed, rows that failed), oldest first."""
    events = settings.tables.layout.events
    if not lake.has_table(events):
        return {}
    opened = open_table(lake, events)
    chosen: list[str] = []
    size = 0
    for file in files_of(opened, events)[:MOST_FILES]:
        size += file.bytes
        if chosen and size > MOST_BYTES:
            break
        chosen.append(file.key)
    if not chosen:
        return {}
    con = connect()
    rows_of(con, lake.storage, opened, chosen).create_view("events")
    found: dict[str, list[tuple[float, int, int]]] = {}
    arguments: dict[str, Any] = {"table": table, "shortest": SHORTEST_S, "points": POINTS}
    for rule, at, passed, failed in con.execute(SQL, arguments).fetchall():
        found.setdefault(rule, []).append((at, passed, failed))
    return found
