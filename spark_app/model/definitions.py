"""What the rows of a silver table have to meet, and their columns: numbered definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from spark_app.model.projections import AS_SENT, Projection

Action = Literal["warn", "drop", "quarantine", "pause"]

# Most rules of one table: the rules that a row fails are a bitmask of 64 bits with a sign.
MAX_RULES = 62


@dataclass(frozen=True)
class Rule:
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
        projection: the columns of the rows that land; the rules see the rows as they were sent.
    """

    number: int
    rules: tuple[Rule, ...]
    projection: Projection = AS_SENT


@dataclass(frozen=True)
class Definitions:
    """The definitions in force.

    Attributes:
        usual: of the tables that no rule names; None = their rows meet no rule.
        own: routing name -> definition, for the tables that a rule names.
    """

    usual: Definition | None = None
    own: Mapping[str, Definition] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.usual is not None or bool(self.own)

    def of(self, name: str) -> Definition | None:
        """The definition of a table; None = its rows meet no rule."""
        return self.own.get(name, self.usual)

    def projections(self) -> dict[int, Projection]:
        """Number -> projection, of the definitions that have one."""
        every = [*([] if self.usual is None else [self.usual]), *self.own.values()]
        return {one.number: one.projection for one in every if one.projection}

    def without_pauses(self) -> Definitions:
        """The same definitions where rows that would pause their table are quarantined."""
        usual = None if self.usual is None else _without_pauses(self.usual)
        return Definitions(usual, {name: _without_pauses(definition) for name, definition in self.own.items()})


def _without_pauses(definition: Definition) -> Definition:
    rules = (replace(rule, action="quarantine") if rule.action == "pause" else rule for rule in definition.rules)
    return replace(definition, rules=tuple(rules))


NO_RULES = Definitions()
