"""Why a range of offsets could not be read: a value that goes back to the driver, not an error of the task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReadFailure(StrEnum):
    """What is the matter with a broker, or with what it has."""

    SILENT = "silent"  # it gives no answer, or one that makes no sense
    BEHIND = "behind"  # it answers, and has less than was planned
    LOST = "lost"  # it no longer has what was planned


@dataclass
class ReadFailed(Exception):
    """
    Attributes:
        what: which range, how far it was read, and what was wrong.
        said: codes and words of librdkafka's errors since the range was begun, as `access.words` has them.
    """

    why: ReadFailure
    what: str
    said: list[tuple[int, str]]

    def __str__(self) -> str:
        return ": ".join([self.what, *dict.fromkeys(text for _, text in self.said)])
