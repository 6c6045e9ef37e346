"""The content of a measured topic. Standard library only, because the command line needs it before anything is
installed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """The content of a topic.

    Attributes:
        versions: number of schema versions, mixed evenly.
        bad: the share of records whose payload every parser rejects.
        skew: the share of the first game; 0 = all games are equal.
    """

    records: int = 0
    games: int = 7
    message: str = "flat"
    versions: int = 1
    bad: float = 0.0
    skew: float = 0.0
    partitions: int = 4

    def words(self) -> str:
        """A description for the terminal."""
        parts = [f"{self.records:,} {self.message} events", f"{self.games} games", f"{self.partitions} partitions"]
        parts += [f"{self.versions} versions"] if self.versions > 1 else []
        parts += [f"{self.bad:.0%} bad"] if self.bad else []
        parts += [f"one game has {self.skew:.0%}"] if self.skew else []
        return ", ".join(parts)

    def found(self) -> dict[str, Any]:
        return asdict(self)


def game_names(count: int) -> list[str]:
    """Names of equal length, so that the record size does not depend on the number of games."""
    return [f"game_{number:04}" for number in range(count)]
