"""The spec of a gold row: the key, and one column per aggregate over the key's rows in silver.

If all functions can merge, new rows are merged incrementally; with any other function the changed keys are recomputed
from all their rows. A silver table without the key has no gold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from spark_app.followers.gold.aggregates import with_source
from spark_app.model.columns import Comments, Path
from spark_app.model.gold_functions import GOLD_FUNCTIONS, Merge
from spark_app.settings.models import Aggregate, Settings


@dataclass(frozen=True)
class GoldSpec:
    """The spec of all gold tables, from the settings.

    Attributes:
        key: the field that groups the rows.
        time: the field of an aggregate that names none.
        aggregates: gold column -> its function and field.
    """

    key: str
    time: str
    aggregates: dict[str, Aggregate]

    @staticmethod
    def of(settings: Settings) -> GoldSpec:
        return GoldSpec(settings.event.key, settings.event.time, settings.gold.columns)

    @property
    def is_incremental(self) -> bool:
        """Whether a key's new row can be computed from its old row and an aggregate of its new silver rows."""
        return all(GOLD_FUNCTIONS[aggregate.function].merge for aggregate in self.aggregates.values())

    def merge_of(self, column: str) -> Merge | None:
        """How the column's old and new value are merged; None = the new value replaces the old one."""
        return GOLD_FUNCTIONS[self.aggregates[column].function].merge if self.is_incremental else None

    def field_of(self, aggregate: Aggregate) -> str:
        """The field of the aggregate; "" = it counts all rows."""
        return aggregate.field or ("" if GOLD_FUNCTIONS[aggregate.function].counts_rows else self.time)

    @property
    def names(self) -> list[str]:
        """The fields that the settings name."""
        return sorted({self.key, *map(self.field_of, self.aggregates.values())} - {""})

    def setting_of(self, field: str) -> str:
        """The settings that name a field, and the name."""
        columns = [f"gold.aggregates.{name}" for name, one in self.aggregates.items() if one.field == field]
        names = ["event.key"] * (field == self.key) + ["event.time"] * (field == self.time) + columns
        return f"{', '.join(names)} = {field}"

    def fields(self, find: Callable[[str], tuple[Path, pa.Field | None]]) -> tuple[pa.Schema, list[str]]:
        """(the key and the aggregated fields of a silver table, by the names of the settings; the names that it has
        not). A missing key is left out; a missing aggregated field has the type text.

        Args:
            find: gives what a name of the settings means in the table.
        """
        found = {name: find(name) for name in self.names}
        missing = [name for name, (_, field) in found.items() if field is None]
        fields = [
            (name, pa.string()) if field is None else with_source(field, path, name)
            for name, (path, field) in found.items()
            if name != self.key or field is not None
        ]
        return pa.schema(fields), missing

    def comments(self) -> Comments:
        """The comments of a new gold table."""
        own: dict[Path, str] = {(): f"One row per {self.key}, aggregated from silver", (self.key,): "Groups the rows"}
        for name, aggregate in self.aggregates.items():
            field = self.field_of(aggregate)
            own[name,] = GOLD_FUNCTIONS[aggregate.function].comment.format(field) if field else "Number of rows"
        return Comments(own=own)

    def digest(self, fields: pa.Schema) -> str:
        """SHA-256 of the settings, the field types and the columns whose names differ from the fields': a field that is
        missing now may get another type later."""
        declared = {name: aggregate.model_dump() for name, aggregate in self.aggregates.items()}
        return hashlib.sha256(json.dumps([self.key, self.time, declared, str(fields)]).encode()).hexdigest()
