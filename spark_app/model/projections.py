"""What a definition makes of the columns of a row, before the row is in silver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Projection:
    """The columns that rows get and lose. Each expression sees the row as it was sent.

    Attributes:
        columns: (name, SQL expression), sorted by name; a column of that name is replaced. Case does not count.
        drops: names of columns that the rows lose, sorted.
        key: the fingerprint of the key of `hmac()`; "" = no expression calls it.
    """

    columns: tuple[tuple[str, str], ...] = ()
    drops: tuple[str, ...] = ()
    key: str = ""

    def __bool__(self) -> bool:
        return bool(self.columns or self.drops)

    @property
    def names(self) -> frozenset[str]:
        """The columns that are not as they were sent, casefolded."""
        return frozenset(name.casefold() for name in (*(name for name, _ in self.columns), *self.drops))

    def to_json(self) -> dict[str, Any]:
        """The parts of a stored definition; an entry without a projection has none of them."""
        parts = {"columns": dict(self.columns), "drop": list(self.drops), "hmac_key": self.key}
        return {name: part for name, part in parts.items() if part}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Projection:
        columns = tuple(sorted(stored.get("columns", {}).items()))
        return Projection(columns, tuple(stored.get("drop", ())), stored.get("hmac_key", ""))


AS_SENT = Projection()
