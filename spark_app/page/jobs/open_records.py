"""The newest open records of quarantine, and what they may be filtered by. No value, key or header is read."""

from __future__ import annotations

from typing import Any

from spark_app.lake.lake import Lake
from spark_app.page.clear_text import shows_clear_text
from spark_app.page.jobs.open_rows import OpenRows
from spark_app.page.jobs.shown_text import plain
from spark_app.settings.models import Settings

MOST_ROWS = 200
MOST_CHOICES = 100  # schemas and rules to filter by
LONGEST_DETAIL = 300
FRAMED = "coalesce({}::VARCHAR, {})"


def answer(lake: Lake, settings: Settings, cause: str = "", rule: str = "", schema: str = "") -> dict[str, Any]:
    """{"rows": newest first, "open": records that match, "causes": cause -> open records, "rules", "schemas"}; a row
    has its time "at" in seconds since 1970. An empty filter selects all."""
    rows = OpenRows(lake, settings)
    if not rows.exist:
        return {"rows": [], "open": 0, "causes": {}, "rules": [], "schemas": []}
    framed = FRAMED.format(rows.column("schema_id"), rows.column("schema_guid"))
    refused, rules = rows.column("refused_schema"), rows.column("rules")
    conditions = {
        "q.cause = ?": [cause],
        f"list_contains({rules}::VARCHAR[], ?)": [rule],
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
        "rules": [] if rules == "NULL" else _most(rows, f"unnest({rules})"),
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
            "detail": plain(said or ""),
            "schema": refused or schema or "",
        }
        for topic, topic_id, partition, offset, at, cause, said, schema, refused in found
    ]


def _most(rows: OpenRows, value: str) -> list[str]:
    """The values that most records have, sorted."""
    found = rows.select(f"{value}, count(*)", f"GROUP BY 1 ORDER BY 2 DESC LIMIT {MOST_CHOICES}")
    return sorted(name for name, _ in found if name)
