"""Positions and ranges of records in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

Offsets = dict[str, dict[str, int]]  # topic -> partition -> offset


@dataclass(frozen=True)
class Span:
    """The records of one topic partition from `start` (included) to `end` (excluded)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """The number of offsets; some of them may have no record."""
        return self.end - self.start

    @property
    def partition_name(self) -> str:
        return f"{self.topic}/{self.partition}"
