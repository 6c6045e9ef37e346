"""The reason why a range of offsets could not be read. It is returned to the driver instead of failing the task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
        said: (code, text) of librdkafka's errors during the read; the texts are from `broker_access.words`.
    """

    why: ReadFailure
    what: str
    said: list[tuple[int, str]]

    def __str__(self) -> str:
        return ": ".join([self.what, *dict.fromkeys(text for _, text in self.said)])
