"""Lakes whose units are followed into the table of events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_app.followers.runner import FollowerRunner
from tests.support.following import follow_events
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN, event

RULES = {
    "small": {"check": "latency_ms < 50", "action": "quarantine"},
    "calm": {"check": "latency_ms <> 13", "action": "pause", "tables": ["poker"]},
}


def lake_of(root: Path, **sections: dict[str, Any]) -> SmallLake:
    return SmallLake(root, EVENTS, GROWN, expectations=RULES, **sections)


def follow(lake: SmallLake, **options: Any) -> FollowerRunner:
    """The table of events of the lake."""
    return follow_events(lake.opened, **options)


def take(lake: SmallLake, count: int = 1, decodable: Any = EVENTS, game: str = "uno", latency: int = 1) -> None:
    for _ in range(count):
        first = lake.ends.get(0, 0)
        sent = [event(game, f"g{first}", decodable, latency_ms=latency), b"no frame"]
        lake.take(batch_of(sent, first=first))
