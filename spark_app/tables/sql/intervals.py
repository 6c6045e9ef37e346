"""Writes days as hours where that saves DuckDB its calendar, which takes several times as long as all other steps of a
check. In UTC a day has 24 hours, so the result is the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# INTERVAL 7 DAY, INTERVAL '7' DAY, INTERVAL '7 days'. With six digits the hours fit into an interval.
DAYS = re.compile(rb"INTERVAL\s+'?(\d{1,6})'?\s+(DAY|WEEK)S?'?", re.IGNORECASE)
HOURS = {b"DAY": 24, b"WEEK": 168}
MOMENT = pa.timestamp("us", "UTC")


def write_in_hours(con: DuckDBPyConnection, check: str, schema: pa.Schema) -> str:
    """The check with hours instead of the days that it adds to a column, or subtracts from one, that is a moment.

    Args:
        check: a check that `checks.check_columns` accepts.
        schema: the columns that it can name.
    """
    moments = {field.name.lower() for field in schema if field.type == MOMENT}
    text = f"SELECT {check}"
    rows = con.sql("SELECT json_serialize_sql($1::VARCHAR)", params=[text]).fetchall()
    written = text.encode()  # places are in bytes
    for begin, end in sorted(_places_added_to(json.loads(rows[0][0]), moments), reverse=True):
        if found := DAYS.fullmatch(written, begin, end):
            hours = int(found[1]) * HOURS[found[2].upper()]
            written = written[:begin] + b"INTERVAL %d HOUR" % hours + written[end:]
    return written.decode().removeprefix("SELECT ")


def _places_added_to(tree: Any, columns: set[str]) -> Iterator[tuple[int, int]]:
    """The places in the text (begin, end) of what is added to one of the columns or subtracted from one."""
    left = [tree]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict) and part.get("class") != "LAMBDA":  # its parameters may have names of columns
            left += part.values()
            if part.get("is_operator") and part["function_name"] in ("+", "-") and len(part["arguments"]) == 2:
                first, second = (argument["expression"] for argument in part["arguments"])
                for one, other in ((first, second), (second, first)):
                    if len(names := one.get("column_names", ())) == 1 and names[0].lower() in columns:
                        begin = other["query_location"]
                        yield begin, begin + other["query_location_length"]
