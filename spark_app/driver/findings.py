"""What a look at a lake found wrong: the shape that the start, `doctor` and whoever examines share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something that does not fit together.

    Attributes:
        what: what is wrong and where, one line.
        remedy: what a person does about it, one line.
        fatal: a start refuses with 65; otherwise it warns and goes on.
        repair: what `doctor --repair` does; returns one line that says what it did. None = left to a person.
    """

    what: str
    remedy: str
    fatal: bool = True
    repair: Callable[[], str] | None = None
