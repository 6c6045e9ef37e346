"""What the rows of a silver table say about their origin."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_app.lake.delta.table_handles import Tables
from spark_app.model.catalog import SchemaKey, read_schema_key
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.recovery.backtest.scan import scan

KEYS = ("_topic", "_schema_id", "_schema_guid", "_definition")
LANDED = "_landed_at"
COLUMNS = pa.schema([*LINEAGE_SCHEMA, ("_schema_guid", pa.string()), ("_definition", pa.int64())])


@dataclass(frozen=True)
class RowOrigins:
    """
    Attributes:
        topics: sorted.
        schemas: key of a schema -> rows that it wrote.
        definitions: number of a definition -> schemas that wrote its rows; 0 = rows without one. That of the row which
            landed last comes first.
    """

    rows: int = 0
    topics: tuple[str, ...] = ()
    schemas: Mapping[SchemaKey, int] = field(default_factory=dict)
    definitions: Mapping[int, frozenset[SchemaKey]] = field(default_factory=dict)

    @staticmethod
    def of(tables: Tables, table: str) -> RowOrigins:
        """
        Raises:
            UnreachableError, ContractError: as `scan`.
        """
        parts = []
        for batch in scan(tables.storage, tables.files(table), COLUMNS, (*KEYS, LANDED)):
            grouped = pa.table(batch).group_by(list(KEYS), use_threads=False)
            parts.append(grouped.aggregate([(LANDED, "max"), ([], "count_all")]))
        return _summed(pa.concat_tables(parts).to_pylist()) if parts else RowOrigins()


def _summed(groups: list[dict[str, Any]]) -> RowOrigins:
    """
    Args:
        groups: the rows with the same values, each batch by itself.
    """
    rows: Counter[SchemaKey] = Counter()
    wrote: defaultdict[int, set[SchemaKey]] = defaultdict(set)
    landed: dict[int, Any] = {}
    for one in groups:
        key = read_schema_key(str(one["_schema_guid"] or one["_schema_id"]))
        rows[key] += one["count_all"]
        number, moment = one["_definition"] or 0, one[f"{LANDED}_max"]
        wrote[number].add(key)
        landed[number] = max(landed.get(number, moment), moment)
    newest_first = sorted(landed, key=lambda number: (landed[number], number), reverse=True)
    topics = sorted({one["_topic"] for one in groups})
    definitions = {number: frozenset(wrote[number]) for number in newest_first}
    return RowOrigins(rows.total(), tuple(topics), dict(rows), definitions)
