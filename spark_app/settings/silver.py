"""The settings of the columns of silver: which are replaced, added and dropped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from spark_app.settings.connections import Section

ColumnName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
# What a row says of its record. The names are repeated here because the command line does not load Arrow.
KEPT = frozenset({"_topic", "_topic_id", "_partition", "_offset", "_kafka_timestamp", "_schema_id", "_landed_at"})
KEPT |= {"_schema_guid", "_definition"}


class SilverTable(Section):
    """The columns of one silver table, over those of all tables."""

    columns: dict[ColumnName, str] = Field({}, description="column -> SQL expression over the row as it was sent")
    drop: tuple[ColumnName, ...] = Field((), description="columns that the table lacks")

    @model_validator(mode="after")
    def _names_each_column_once(self) -> SilverTable:
        seen: set[str] = set()
        for name in (*self.columns, *self.drop):
            if name.casefold() in KEPT:
                raise ValueError(f"{name} names a record, and stays as it is")
            if name.casefold() in seen:
                raise ValueError(f"{name} is there twice; case does not count in the names of columns")
            seen.add(name.casefold())
        return self


class Silver(SilverTable):
    """This section sets the columns of silver: expressions replace or add columns, then others are dropped."""

    columns: dict[ColumnName, str] = Field(
        {}, description="column -> SQL expression over the row as it was sent, see docs/projections.md"
    )
    drop: tuple[ColumnName, ...] = Field((), description="columns that no silver table has")
    tables: dict[str, SilverTable] = Field(
        {}, description="routing name -> {columns, drop} of one table, over those of all tables"
    )
    hmac_key_file: str = Field("", description="file with the key of hmac(), which only its owner may read")

    @property
    def hmac_key_path(self) -> str:
        """The key's file for processes that run in another folder; "" = there is none."""
        return self.hmac_key_file and os.path.abspath(self.hmac_key_file)

    @property
    def is_empty(self) -> bool:
        return not any(own.columns or own.drop for _, own in self.parts())

    def parts(self) -> Iterator[tuple[str, SilverTable]]:
        """(setting, columns) of all tables, then of each table that is named."""
        yield "silver", self
        for name, own in sorted(self.tables.items()):
            yield f"silver.tables.{name}", own

    def own(self, name: str) -> SilverTable:
        return self.tables.get(name, SilverTable())

    def general_columns(self, name: str) -> dict[str, str]:
        """The columns of all tables that this table has no rule of its own for."""
        own = self.own(name)
        taken = folded((*own.columns, *own.drop))
        return {column: text for column, text in self.columns.items() if column.casefold() not in taken}

    def drops(self, name: str) -> list[str]:
        """The columns that this table loses; a column of its own goes over the general list."""
        own = self.own(name)
        general = [column for column in self.drop if column.casefold() not in folded(own.columns)]
        by_name = {column.casefold(): column for column in (*general, *own.drop)}
        return sorted(by_name.values())

    def touched(self, name: str) -> frozenset[str]:
        """The columns, casefolded, that rows of this table may have otherwise than they were sent."""
        own = self.own(name)
        return folded((*self.columns, *self.drop, *own.columns, *own.drop))


def folded(names: Iterable[str] | Mapping[str, str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)
