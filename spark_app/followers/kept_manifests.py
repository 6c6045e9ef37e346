"""Which manifests are kept because a follower still needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spark_app.followers.follower import Follower
from spark_app.lake.delta.manifest import Manifests
from spark_app.model.events import Event
from spark_app.model.log import log


class KeptManifests:
    """Keeps the manifests that a follower lacks, up to so many bytes for each of them. Beyond that the oldest are
    removed: gold then recomputes its tables, and a follower that must not miss a unit is paused.
    """

    def __init__(
        self,
        manifests: Manifests,
        followers: Sequence[Follower],
        most_bytes: int,
        tell: Callable[[Event], None] = lambda event: None,
    ):
        """`tell`: gets an event when a follower is too far behind."""
        self._manifests = manifests
        self._followers = followers
        self._most_bytes = most_bytes
        self._tell = tell
        self._said: set[str] = set()

    def forget(self, keep: int, durable: int) -> None:
        """Remove the manifests that nobody needs, except the last `keep`.

        Args:
            durable: all commits of the units up to this one are durable.
        """
        needed_from = [self._needed_from(follower, self._manifests.last - keep) for follower in self._followers]
        self._manifests.forget(keep, min([durable, *needed_from]))

    def _needed_from(self, follower: Follower, unkept: int) -> int:
        """The last unit whose manifest is not kept for the follower. Units up to `unkept` are kept for nobody else."""
        durable = follower.durable()
        unit = max(durable, min(self._manifests.before_newest(self._most_bytes, durable), unkept))
        if unit > durable and follower.name not in self._said:
            self._said.add(follower.name)
            self._say(follower.name, durable, unit)
        return unit

    def _say(self, name: str, durable: int, unit: int) -> None:
        said = f"{name} is too far behind: the manifests of units {durable + 1} to {unit} are removed"
        remedy = "`status` says whether it is paused; find out why it is slow, or raise followers.max_bytes"
        log.error(said, remedy=remedy)
        self._tell(Event("follower", said, "ERROR", details={"name": name, "units": [durable + 1, unit]}))

    def describe(self, failed: Mapping[str, str | None]) -> dict[str, Any]:
        """Follower -> its last unit, the units that it lacks, and why it is paused or fails, for the status.

        Args:
            failed: follower -> why its last call failed.
        """
        last, found = self._manifests.last, {}
        for follower in self._followers:
            name, unit = follower.name, follower.cursor()
            paused = follower.paused()
            found[name] = {"unit": unit, "lag": max(0, last - unit), "paused": paused, "failed": failed.get(name)}
        return found
