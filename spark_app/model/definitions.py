"""What the rows of a silver table have to meet, and what becomes of their columns: numbered definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal


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


Action = Literal["warn", "drop", "quarantine", "pause"]

# Most expectations of one table: those that a row fails are a bitmask of 64 bits with a sign.
MAX_EXPECTATIONS = 62

MAX_CHARACTERS = 4000  # of a check, and of an expression

# The key of the schema that wrote a row, and its message type.
Origin = tuple[int | str, str]


@dataclass(frozen=True)
class Expectation:
    """
    Attributes:
        check: an SQL expression over the columns of the row; a row fails unless it is true.
        action: what becomes of a row that fails.
    """

    name: str
    check: str
    action: Action


@dataclass(frozen=True)
class Definition:
    """
    Attributes:
        number: in the lake; silver has it in the column `_definition`. A number never changes its meaning.
        projection: the columns of the rows that land; expectations see the rows as they were sent.
    """

    number: int
    expectations: tuple[Expectation, ...]
    projection: Projection = AS_SENT


@dataclass(frozen=True)
class Definitions:
    """The definitions in force.

    Attributes:
        usual: of the tables that no expectation names; None = their rows meet none.
        own: routing name -> definition, for the tables that an expectation names.
        by_origin: routing name -> definitions of the rows whose schema has proto rules; they contain the table's
            expectations.
    """

    usual: Definition | None = None
    own: Mapping[str, Definition] = field(default_factory=dict)
    by_origin: Mapping[str, Mapping[Origin, Definition]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.usual is not None or bool(self.own) or any(self.by_origin.values())

    def of(self, name: str, origin: Origin | None = None) -> Definition | None:
        """The definition of a table's rows of an origin; None = they meet no expectation.

        Args:
            origin: None = rows whose schema has no proto rules.
        """
        found = self.by_origin.get(name, {}).get(origin) if origin else None
        return found or self.own.get(name, self.usual)

    def every(self, name: str) -> Iterator[Definition]:
        """All definitions that rows of a table may meet."""
        usual = self.of(name)
        yield from () if usual is None else (usual,)
        yield from self.by_origin.get(name, {}).values()

    def with_changes(self, name: str, change: Callable[[Definition], Definition]) -> Definitions:
        """The same with other definitions of one table."""
        usual, own, by_origin = self.of(name), dict(self.own), dict(self.by_origin)
        if usual is not None:
            own[name] = change(usual)
        if name in by_origin:
            by_origin[name] = {origin: change(one) for origin, one in by_origin[name].items()}
        return Definitions(self.usual, own, by_origin)

    def projections(self) -> dict[int, Projection]:
        """Number -> projection, of the definitions that have one."""
        of_origins = (one for found in self.by_origin.values() for one in found.values())
        every = [*([] if self.usual is None else [self.usual]), *self.own.values(), *of_origins]
        return {one.number: one.projection for one in every if one.projection}

    def without_pauses(self) -> Definitions:
        """The same definitions where rows that would pause their table are quarantined."""
        usual = None if self.usual is None else _without_pauses(self.usual)
        own = {name: _without_pauses(definition) for name, definition in self.own.items()}
        by_origin = {
            name: {origin: _without_pauses(one) for origin, one in found.items()}
            for name, found in self.by_origin.items()
        }
        return Definitions(usual, own, by_origin)


def _without_pauses(definition: Definition) -> Definition:
    changed = (replace(one, action="quarantine") if one.action == "pause" else one for one in definition.expectations)
    return replace(definition, expectations=tuple(changed))


NO_DEFINITIONS = Definitions()
