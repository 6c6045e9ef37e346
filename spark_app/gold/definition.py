"""What a gold row is: the key, and a column per declared aggregate over the key's rows in silver.

`count`, `sum`, `min` and `max` are folded; tables with any other function have the touched keys recomputed. A silver
table without the key has no gold.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import pyarrow as pa

from spark_app.settings.models import Aggregate, Settings

FOLDED = {"count": "+", "sum": "+", "min": "least", "max": "greatest"}


@dataclass(frozen=True)
class Definition:
    """Of all gold tables, by the settings.

    Attributes:
        time: field that an aggregate is taken of when it names none.
        aggregates: gold column -> how it is made.
    """

    key: str
    time: str
    aggregates: dict[str, Aggregate]

    @staticmethod
    def of(settings: Settings) -> Definition:
        return Definition(settings.event.key, settings.event.time, settings.gold.columns)

    @property
    def is_incremental(self) -> bool:
        """Whether a key's row and an aggregate of its new rows make its new row."""
        return all(aggregate.function in FOLDED for aggregate in self.aggregates.values())

    def field_of(self, aggregate: Aggregate) -> str:
        """The field that it is taken of; "" for all rows."""
        return aggregate.field or ("" if aggregate.function == "count" else self.time)

    def fields(self, columns: pa.Schema) -> pa.Schema:
        """Key and aggregated fields of a silver table with these columns: the key only if it has it; another that no
        version knows yet is taken for text."""
        wanted = {self.field_of(aggregate) for aggregate in self.aggregates.values()} - {""}
        wanted |= {self.key} & set(columns.names)
        return pa.schema([columns.field(f) if f in columns.names else (f, pa.string()) for f in sorted(wanted)])

    def digest(self, fields: pa.Schema) -> str:
        """Of the settings and the types of the fields, for a field may have no version yet that knows its type."""
        declared = {name: aggregate.model_dump() for name, aggregate in self.aggregates.items()}
        return hashlib.sha256(json.dumps([self.key, self.time, declared, str(fields)]).encode()).hexdigest()
