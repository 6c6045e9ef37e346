"""Positions and ranges of records in Kafka, and why a range could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


class ReadFailure(StrEnum):
    """The kind of a failed read."""

    SILENT = "silent"  # the broker does not respond, or its response is not valid
    BEHIND = "behind"  # the partition ends before the planned offsets
    LOST = "lost"  # Kafka no longer has the planned offsets


@dataclass
class ReadFailed(Exception):
    """A range of offsets could not be read.

    Attributes:
        what: the range, the offset that was reached, and the problem.
        errors: (code, text) of librdkafka's errors during the read; the texts are from `broker_access.words`.
    """

    why: ReadFailure
    what: str
    errors: list[tuple[int, str]]

    def __str__(self) -> str:
        return ": ".join([self.what, *dict.fromkeys(text for _, text in self.errors)])
