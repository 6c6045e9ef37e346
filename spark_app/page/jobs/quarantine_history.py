"""How many records were quarantined, and how many rows failed a rule, over time: from the table of events."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.page.jobs.shown_text import plain
from spark_app.page.queries.locked_tables import connect, open_tables
from spark_app.page.queries.quoting import quoted
from spark_app.settings.models import Settings

SPANS = {"hour": (3600, 60), "day": (86_400, 1800), "week": (7 * 86_400, 3 * 3600)}  # seconds, and of a bar
MOST_NAMES = 12
OTHERS = "others"
# A later release may write details that are no JSON.
QUERY = """
SELECT kind, epoch(happened_at)::BIGINT // $bar * $bar AS at,
    if(kind = 'rule', said->>'$.rule', said->>'$.cause') AS name,
    sum(try_cast(if(kind = 'rule', said->>'$.failed', said->>'$.count') AS BIGINT)) AS records
FROM (SELECT *, if(json_valid(details), details, '{}') AS said FROM %s
    WHERE kind IN ('quarantine', 'rule') AND happened_at >= to_timestamp($since) AND happened_at < to_timestamp($until))
GROUP BY ALL
"""


def answer(lake: Lake, settings: Settings, span: str) -> dict[str, Any]:
    """{"causes", "rules": name -> [[seconds since 1970, records]] for each bar of the span}; a name without records is
    left out. `span`: one of `SPANS`."""
    length, bar = SPANS[span]
    last = int(time.time()) // bar * bar
    bars = range(last - length + bar, last + 1, bar)
    table = settings.tables.layout.events
    if not lake.has_table(table):
        return {"causes": {}, "rules": {}}
    con = connect()
    open_tables(con, lake, [table])
    given = {"bar": bar, "since": bars[0], "until": last + bar}
    found: dict[str, dict[str, Counter[int]]] = {"quarantine": defaultdict(Counter), "rule": defaultdict(Counter)}
    for kind, at, name, records in con.execute(QUERY % quoted(table), given).fetchall():
        if name and records:
            found[kind][plain(name)][at] += records
    return {"causes": _series(found["quarantine"], bars), "rules": _series(found["rule"], bars)}


def _series(counts: dict[str, Counter[int]], bars: range) -> dict[str, list[list[int]]]:
    """A value for each bar, because bars are stacked by their order. What has least records is one series."""
    names = sorted(counts, key=lambda name: (-counts[name].total(), name))
    rest: Counter[int] = sum((counts[name] for name in names[MOST_NAMES:]), Counter())
    shown = {name: counts[name] for name in names[:MOST_NAMES]} | ({OTHERS: rest} if rest else {})
    return {name: [[at, one[at]] for at in bars] for name, one in shown.items()}
