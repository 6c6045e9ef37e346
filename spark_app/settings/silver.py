"""The settings of the columns of silver: which are replaced, added, dropped and joined from reference tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import Field, PositiveFloat, StringConstraints, TypeAdapter, model_validator

from spark_app.settings.connections import Section

ColumnName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
# The columns of a row that name its record. The names are repeated here because the command line does not load Arrow.
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
        """The columns of all tables that this table has no entry of its own for."""
        own = self.own(name)
        named = folded((*own.columns, *own.drop))
        return {column: text for column, text in self.columns.items() if column.casefold() not in named}

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


ReferenceName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]{0,63}$")]
NAME = TypeAdapter(ColumnName)


class Reference(Section):
    """A table whose columns are joined to each row of silver by a key."""

    path: str = Field(
        description="a Delta table, a Parquet file, or a folder of Parquet files, on a local disk or at s3://bucket/prefix"
    )
    key: str = Field(description="column of that table with the key: text or a whole number, each value once")
    columns: tuple[str, ...] = Field(min_length=1, description="columns of that table that the rows get")
    on: str = Field("", description="column of the rows that is looked up, as it was sent; empty = that named as key")
    prefix: str = Field("", description="text before the names of the columns in silver")
    refresh_s: PositiveFloat = Field(300.0, description="seconds between looks for a new version of that table")
    keep_versions: int = Field(
        3, ge=2, description="versions of which the lake keeps a copy; `audit` compares only their rows"
    )

    @model_validator(mode="after")
    def _gives_plain_columns(self) -> Reference:
        names = self.names
        for name in names:
            NAME.validate_python(name)
            if name.casefold() in KEPT:
                raise ValueError(f"{name} names a record, and stays as it is; set a prefix")
        if len(folded(names)) < len(names):
            raise ValueError("a column is there twice; case does not count in the names of columns")
        return self

    @property
    def looked_up(self) -> str:
        """The column of the rows that has the key."""
        return self.on or self.key

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `columns` in silver."""
        return tuple(f"{self.prefix}{column}" for column in self.columns)

    @property
    def renamed(self) -> dict[str, str]:
        """The name of each column -> its name in silver."""
        return dict(zip(self.columns, self.names, strict=True))


def joined_names(references: Mapping[str, Reference]) -> frozenset[str]:
    """The columns, casefolded, that the reference tables give.

    Raises:
        ValueError: two of them give the same.
    """
    seen: dict[str, str] = {}
    for reference, own in references.items():
        for name in own.names:
            other = seen.setdefault(name.casefold(), reference)
            if other != reference:
                raise ValueError(f"reference.{reference} and reference.{other} both give {name}: set a prefix")
    return frozenset(seen)
