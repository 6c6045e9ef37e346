"""The names of the lake's tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableNames:
    """Names of the tables; the patterns of silver and gold contain `{name}`, the routing name."""

    bronze: str = "bronze_events"
    silver: str = "silver_{name}_events"
    gold: str = "gold_{name}_player_agg"
    quarantine: str = "quarantine_events"
    deferred: str = "deferred_events"
    resolved: str = "resolved_events"
    lost: str = "lost_events"
    dropped: str = "dropped_events"
    events: str = "pipeline_events"

    def is_silver(self, table: str) -> bool:
        """Whether a table's name matches the pattern of silver."""
        return _made_by(self.silver, table)

    def is_gold(self, table: str) -> bool:
        """Whether a table's name matches the pattern of gold."""
        return _made_by(self.gold, table)

    def name_of(self, table: str) -> str:
        """The routing name of a silver table."""
        return _name_in(self.silver, table)

    def gold_name_of(self, table: str) -> str:
        """The routing name of a gold table."""
        return _name_in(self.gold, table)

    def silver_of(self, name: str) -> str:
        return self.silver.format(name=name)

    def gold_of(self, name: str) -> str:
        return self.gold.format(name=name)


def _made_by(pattern: str, table: str) -> bool:
    before, after = pattern.split("{name}")
    return table.startswith(before) and table.endswith(after) and len(table) > len(before) + len(after)


def _name_in(pattern: str, table: str) -> str:
    before, after = pattern.split("{name}")
    return table.removeprefix(before).removesuffix(after)
