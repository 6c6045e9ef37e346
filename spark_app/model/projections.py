"""What a definition makes of the columns of a row, before the row is in silver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Join:
    """Columns of a reference table that rows get by a key.

    Attributes:
        reference: the name of the reference table.
        on: the column of the rows whose value is the key.
        columns: the columns that the rows get, by their names in silver.
        content: names the version of the reference table; `reference_files.name_of`.
    """

    reference: str
    on: str
    columns: tuple[str, ...]
    content: str


@dataclass(frozen=True)
class Projection:
    """The columns that rows get and lose. Each expression sees the row as it was sent, with the joined columns.

    Attributes:
        columns: (name, SQL expression), sorted by name; a column of that name is replaced. Case does not count.
        drops: names of columns that the rows lose, sorted.
        key: the fingerprint of the key of `hmac()`; "" = no expression calls it.
        joins: come before the expressions; sorted by their names.
    """

    columns: tuple[tuple[str, str], ...] = ()
    drops: tuple[str, ...] = ()
    key: str = ""
    joins: tuple[Join, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.columns or self.drops or self.joins)

    @property
    def names(self) -> frozenset[str]:
        """The columns that are not as they were sent, casefolded."""
        made = (name for name, _ in self.columns)
        joined = (name for one in self.joins for name in one.columns)
        return frozenset(name.casefold() for name in (*made, *self.drops, *joined))

    def to_json(self) -> dict[str, Any]:
        """The parts of a stored definition; an entry without a projection has none of them."""
        references = {
            one.reference: {"on": one.on, "columns": list(one.columns), "content": one.content} for one in self.joins
        }
        parts = {
            "columns": dict(self.columns),
            "drop": list(self.drops),
            "hmac_key": self.key,
            "references": references,
        }
        return {name: part for name, part in parts.items() if part}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Projection:
        columns = tuple(sorted(stored.get("columns", {}).items()))
        joins = tuple(
            Join(name, one["on"], tuple(one["columns"]), one["content"])
            for name, one in sorted(stored.get("references", {}).items())
        )
        return Projection(columns, tuple(stored.get("drop", ())), stored.get("hmac_key", ""), joins)


AS_SENT = Projection()
