"""The settings of reference tables, whose columns are joined to the rows of silver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveFloat, StringConstraints, TypeAdapter, model_validator

from spark_app.settings.connections import Section
from spark_app.settings.silver import KEPT, ColumnName, folded

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
