"""The open records of quarantine, and how many records came into it over time. No value, key or header is read."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.record_schemas import COORDINATES
from spark_app.model.text import quoted
from spark_app.page.clear_text import shows_clear_text
from spark_app.page.format import escaped
from spark_app.page.queries.locked_tables import connect, open_tables
from spark_app.settings.models import Settings

MOST_ROWS = 200
MOST_CHOICES = 100  # schemas and expectations to filter by
LONGEST_DETAIL = 300
FRAMED = "coalesce({}::VARCHAR, {})"
SAME = " AND ".join(f"q.{name} IS NOT DISTINCT FROM r.{name}" for name in COORDINATES)
SPANS = {"hour": (3600, 60), "day": (86_400, 1800), "week": (7 * 86_400, 3 * 3600)}  # seconds, and of a bar
MOST_NAMES = 12
OTHERS = "others"
# A later release may write details that are no JSON.
QUERY = """
SELECT kind, epoch(happened_at)::BIGINT // $bar * $bar AS at,
    if(kind = 'rule', facts->>'$.rule', facts->>'$.cause') AS name,
    sum(try_cast(if(kind = 'rule', facts->>'$.failed', facts->>'$.count') AS BIGINT)) AS records
FROM (SELECT *, if(json_valid(details), details, '{}') AS facts FROM %s
    WHERE kind IN ('quarantine', 'rule') AND happened_at >= to_timestamp($since) AND happened_at < to_timestamp($until))
GROUP BY ALL
"""


def open_records(
    lake: Lake, settings: Settings, cause: str = "", expectation: str = "", schema: str = ""
) -> dict[str, Any]:
    """{"rows": newest first, "open": records that match, "causes": cause -> open records, "rules", "schemas"}; a row
    has its time "at" in seconds since 1970. An empty filter selects all."""
    rows = OpenRows(lake, settings)
    if not rows.exist:
        return {"rows": [], "open": 0, "causes": {}, "rules": [], "schemas": []}
    framed = FRAMED.format(rows.column("schema_id"), rows.column("schema_guid"))
    refused, failed = rows.column("refused_schema"), rows.column("rules")
    conditions = {
        "q.cause = ?": [cause],
        f"list_contains({failed}::VARCHAR[], ?)": [expectation],
        f"({framed} = ? OR {refused} = ?)": [schema, schema],
    }
    chosen = {condition: values for condition, values in conditions.items() if values[0]}
    where = f"WHERE {' AND '.join(chosen)}" if chosen else ""
    values = [value for each in chosen.values() for value in each]
    causes = {cause or "": count for cause, count in rows.select("q.cause, count(*)", "GROUP BY 1")}
    found = _rows(rows, framed, where, values, shows_clear_text(lake, settings))
    return {
        "rows": found,
        "open": rows.select("count(*)", where, *values)[0][0] if chosen else sum(causes.values()),
        "causes": causes,
        "rules": [] if failed == "NULL" else _most(rows, f"unnest({failed})"),
        "schemas": _most(rows, f"coalesce({refused}, {framed})"),
    }


def _rows(rows: OpenRows, framed: str, where: str, values: list[str], clear: bool) -> list[dict[str, Any]]:
    detail = f"left({rows.column('detail')}, {LONGEST_DETAIL})" if clear else "NULL"  # it may quote a value
    found = rows.select(
        f"q.topic, q.topic_id, q.partition, q.offset, epoch_us(q.quarantined_at) / 1e6, q.cause, {detail}, {framed}, "
        f"{rows.column('refused_schema')}",
        f"{where} ORDER BY q.quarantined_at DESC, q.topic, q.partition, q.offset DESC LIMIT {MOST_ROWS}",
        *values,
    )
    return [
        {
            "topic": topic,
            "topic_id": topic_id,
            "partition": partition,
            "offset": offset,
            "at": at,
            "cause": cause or "",
            "detail": escaped(text or ""),
            "schema": refused or schema or "",
        }
        for topic, topic_id, partition, offset, at, cause, text, schema, refused in found
    ]


def _most(rows: OpenRows, value: str) -> list[str]:
    """The values that most records have, sorted."""
    found = rows.select(f"{value}, count(*)", f"GROUP BY 1 ORDER BY 2 DESC LIMIT {MOST_CHOICES}")
    return sorted(name for name, _ in found if name)


class OpenRows:
    """Rows of quarantine in DuckDB, without those that a replay has inserted.

    Attributes:
        exist: whether the lake has a quarantine.
    """

    def __init__(self, lake: Lake, settings: Settings):
        layout = settings.layout
        there = [table for table in (layout.quarantine, layout.resolved) if lake.has_table(table)]
        self.exist = layout.quarantine in there
        if not self.exist:
            return
        self._con = connect()
        open_tables(self._con, lake, there)
        self._columns = frozenset(self._con.table(layout.quarantine).columns)
        self._all = f"FROM {quoted(layout.quarantine)} q"
        replayed = layout.resolved in there
        self._open = f"{self._all} ANTI JOIN {quoted(layout.resolved)} r ON {SAME}" if replayed else self._all

    def column(self, name: str) -> str:
        """The column; NULL if no record has it yet."""
        return f"q.{quoted(name)}" if name in self._columns else "NULL"

    def select(self, what: str, behind: str = "", *values: Any, replayed: bool = False) -> list[tuple[Any, ...]]:
        """The rows of a SELECT.

        Args:
            behind: what follows the tables, with a ? for each value.
            replayed: also the records that a replay has inserted.
        """
        return self._con.execute(f"SELECT {what} {self._all if replayed else self._open} {behind}", values).fetchall()


def history(lake: Lake, settings: Settings, span: str) -> dict[str, Any]:
    """{"causes", "rules": name -> [[seconds since 1970, records]] for each bar of the span}; a name without records is
    left out. `span`: one of `SPANS`."""
    length, bar = SPANS[span]
    last = int(time.time()) // bar * bar
    bars = range(last - length + bar, last + 1, bar)
    table = settings.layout.events
    if not lake.has_table(table):
        return {"causes": {}, "rules": {}}
    con = connect()
    open_tables(con, lake, [table])
    given = {"bar": bar, "since": bars[0], "until": last + bar}
    found: dict[str, dict[str, Counter[int]]] = {"quarantine": defaultdict(Counter), "rule": defaultdict(Counter)}
    for kind, at, name, records in con.execute(QUERY % quoted(table), given).fetchall():
        if name and records:
            found[kind][escaped(name)][at] += records
    return {"causes": _series(found["quarantine"], bars), "rules": _series(found["rule"], bars)}


def _series(counts: dict[str, Counter[int]], bars: range) -> dict[str, list[list[int]]]:
    """A value for each bar, because bars are stacked by their order. What has least records is one series."""
    names = sorted(counts, key=lambda name: (-counts[name].total(), name))
    rest: Counter[int] = sum((counts[name] for name in names[MOST_NAMES:]), Counter())
    shown = {name: counts[name] for name in names[:MOST_NAMES]} | ({OTHERS: rest} if rest else {})
    return {name: [[at, one[at]] for at in bars] for name, one in shown.items()}
