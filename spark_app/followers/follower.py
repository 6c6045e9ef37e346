"""What a follower of the units has to say and do."""

from __future__ import annotations

from typing import Protocol


class Follower(Protocol):
    """Reads the applied units, each once and in their order.

    Attributes:
        name: one word for people.
        interval_s: seconds between two calls of `follow`.
    """

    name: str
    interval_s: float

    def cursor(self) -> int:
        """The last unit that it includes, as far as it knows."""

    def durable(self) -> int:
        """The last unit that it includes whatever crashes: later manifests are kept for it, see `KeptManifests`."""

    def paused(self) -> str | None:
        """Why it takes no more units until a person decides, and the remedy; None if it goes on."""

    def follow(self) -> None:
        """Take the units up to the last applied one, or nothing if it is paused.

        Raises:
            Exception: the next call tries again.
        """

    def close(self) -> None:
        """Make everything durable that `follow` has done.

        Raises:
            OSError: the disk could not store it.
        """
