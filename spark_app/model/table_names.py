"""The names of the lake's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GOLD = "player_agg"  # the gold tables that the settings always make
FOLLOWER = "gold"


def gold_follower(kind: str) -> str:
    """The follower that computes a kind of gold tables."""
    return FOLLOWER if kind == GOLD else f"{FOLLOWER}.{kind}"


def gold_kind_of(follower: str) -> str | None:
    """The kind of gold tables that a follower computes; None if it computes others."""
    first, _, kind = follower.partition(".")
    return (kind or GOLD) if first == FOLLOWER else None


@dataclass(frozen=True)
class TableNames:
    """Names of the tables; the patterns of silver and gold contain `{name}`, the routing name.

    Attributes:
        more_gold: (name, pattern) of the gold tables besides those of `gold`.
    """

    bronze: str = "bronze_events"
    silver: str = "silver_{name}_events"
    gold: str = "gold_{name}_player_agg"
    quarantine: str = "quarantine_events"
    deferred: str = "deferred_events"
    resolved: str = "resolved_events"
    lost: str = "lost_events"
    dropped: str = "dropped_events"
    events: str = "pipeline_events"
    more_gold: tuple[tuple[str, str], ...] = ()
    sink_calls: str = "sink_calls"
    sink_rejects: str = "sink_rejects"

    @property
    def spooled(self) -> tuple[str, ...]:
        """The tables that no unit writes and that are made of no other table."""
        return self.events, self.sink_calls, self.sink_rejects

    def is_silver(self, table: str) -> bool:
        """Whether a table's name matches the pattern of silver."""
        return is_made_by(self.silver, table)

    def is_gold(self, table: str) -> bool:
        """Whether a table's name matches a pattern of gold."""
        return self.gold_kind(table) is not None

    def gold_kind(self, table: str) -> str | None:
        """Which of the gold tables of a routing name it is; None if it is none."""
        return next((kind for kind, pattern in self._gold.items() if is_made_by(pattern, table)), None)

    def name_of(self, table: str) -> str:
        """The routing name of a silver table."""
        return name_in(self.silver, table)

    def gold_name_of(self, table: str) -> str:
        """The routing name of a gold table."""
        return name_in(self._gold[self.gold_kind(table) or GOLD], table)

    def silver_of(self, name: str) -> str:
        return self.silver.format(name=name)

    def gold_of(self, name: str, kind: str = GOLD) -> str:
        return self._gold[kind].format(name=name)

    def pattern_of(self, kind: str) -> str:
        """The pattern of the names of a kind of gold tables."""
        return self._gold[kind]

    def all_gold_of(self, name: str) -> list[str]:
        """The gold tables of a routing name."""
        return [pattern.format(name=name) for pattern in self._gold.values()]

    @property
    def _gold(self) -> Mapping[str, str]:
        return {GOLD: self.gold, **dict(self.more_gold)}


def is_made_by(pattern: str, table: str) -> bool:
    """Whether a table has a name of the pattern."""
    before, after = pattern.split("{name}")
    return table.startswith(before) and table.endswith(after) and len(table) > len(before) + len(after)


def name_in(pattern: str, table: str) -> str:
    """The routing name in a table's name of this pattern."""
    before, after = pattern.split("{name}")
    return table.removeprefix(before).removesuffix(after)
