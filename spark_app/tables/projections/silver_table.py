"""A silver table as projections see it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_app.lake.delta.merged_columns import grows
from spark_app.model.aliases import Aliases, aliased_fields, column_of
from spark_app.model.projections import Join
from spark_app.settings.silver import Silver, SilverTable
from spark_app.tables.expectations.checks import LINEAGE, fields_named
from spark_app.tables.sql.expressions import type_of
from spark_app.tables.sql.names import columns_in, write_columns


@dataclass(frozen=True)
class Table:
    """One silver table.

    Attributes:
        sent: the columns of its messages.
        seen: `sent` with the joined columns: what expressions see.
        types: `seen`, and the columns that only other messages have.
        joins: by the settings and the versions of the reference tables.
        written: the columns that the table has in Delta; None if it does not exist.
        aliases: other names of `sent`.
        named: the columns, casefolded, that the settings make or drop, as they call them.
    """

    name: str
    sent: pa.Schema
    seen: pa.Schema
    types: pa.Schema
    joins: tuple[Join, ...]
    written: pa.Schema | None
    aliases: Aliases
    named: frozenset[str]

    @property
    def names(self) -> list[str]:
        """All names by which expressions may call its columns."""
        return [*self.seen.names, *(field.name for field in aliased_fields(self.sent, self.aliases))]

    def by_columns(self, silver: Silver) -> Silver:
        """The settings of all tables and of this one, with the table's columns by their own names."""
        if not self.aliases:
            return silver
        own = {self.name: self._by_columns(silver.own(self.name))}
        return silver.model_copy(update={**dict(self._by_columns(silver)), "tables": own})

    def _by_columns(self, part: SilverTable) -> SilverTable:
        columns = {
            self.column(name): write_columns(text, self.seen, self.aliases) for name, text in part.columns.items()
        }
        return SilverTable.model_construct(columns=columns, drop=tuple(map(self.column, part.drop)))

    def column(self, name: str) -> str:
        """The column that a projection makes or drops by this name. A column that the table has comes first, whoever
        made it. If the settings name an alias by both names, they mean two columns."""
        there = (*self.seen.names, *(() if self.written is None else self.written.names))
        column = column_of(name, there, self.aliases)
        return name if column.casefold() in self.named else column

    def problem_of(self, name: str, text: str) -> str | None:
        """Why an expression cannot give the column; None = it can."""
        text = write_columns(text, self.seen, self.aliases)
        # A table has at least one column.
        fields = fields_named(columns_in(text), self.seen, self.types) or pa.schema([LINEAGE.field("_offset")])
        found = type_of(text, fields)
        return found if isinstance(found, str) else self.written_problem(self.column(name), found[1])

    def written_problem(self, name: str, kind: pa.DataType) -> str | None:
        """Why the table cannot take a column of the type; None = it can."""
        written = self.written_field(name)
        if written is None:
            return None
        remedy = f"take another name, or {self.renewal}"
        if written.name != name:
            return f"the table {self.name} has the column as {written.name}, and case does not count: {remedy}"
        if differs(kind, written.type):
            return f"is of the type {kind}, but the table {self.name} has {written.type} in {name}: {remedy}"
        return None

    def written_field(self, name: str) -> pa.Field | None:
        fields = self.written or ()
        return next((field for field in fields if field.name.casefold() == name.casefold()), None)

    @property
    def renewal(self) -> str:
        """The command that makes the table anew."""
        return f"run `rebuild {self.name} --renew --yes`"


def differs(kind: pa.DataType, written: pa.DataType) -> bool:
    return not (grows(kind, written) or grows(written, kind))
