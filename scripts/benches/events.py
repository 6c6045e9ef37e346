"""Events with realistic entropy; no event repeats.

There are 100,000 gamers with two devices each, and time advances, so that no event equals another however many there
are. Fields that have few values in reality (countries, builds) have few here; all other fields are random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from google.protobuf.message import Message

from scripts.benches import messages
from scripts.benches.shape import Shape, game_names

SEED = 7
GAMERS = 100_000
BEGAN_S = 1_700_000_000
STEP_US = 1000  # from event to event, plus a smaller random part
NANOS = 1_000_000_000
FEW = {"country": 120, "city": 5000, "platform": 5, "build": 60, "language": 40}  # field -> values


class Events:
    """Events that depend on shape, number and seed only, in any process."""

    def __init__(self, shape: Shape, kinds: list[type[Message]]):
        dice = random.Random(SEED)
        self._kinds = kinds
        self._games = game_names(shape.games)
        others = (1 - shape.skew) / max(1, shape.games - 1)
        shares = [shape.skew, *[others] * (shape.games - 1)] if shape.skew else [1.0] * shape.games
        self._shares = list(accumulate(shares))
        self._devices = [f"{dice.getrandbits(64):016x}" for _ in range(2 * GAMERS)]
        fields = kinds[0].DESCRIPTOR.fields_by_name
        self._few = {
            name: [f"{name}_{dice.getrandbits(24):06x}" for _ in range(count)]
            for name, count in FEW.items()
            if name in fields
        }

    def play(self, numbers: range, dice: random.Random) -> Iterator[tuple[int, Any]]:
        """(version of the schema from 0, event) for each of the numbers."""
        for number in numbers:
            version = dice.randrange(len(self._kinds))
            event: Any = messages.fill(self._kinds[version](), dice)
            gamer = dice.randrange(GAMERS)
            event.game_name = dice.choices(self._games, cum_weights=self._shares)[0]
            event.gamer_id, event.device_id = f"gamer-{gamer:06}", self._devices[2 * gamer + dice.randrange(2)]
            seconds, nanos = divmod((number * STEP_US + dice.randrange(STEP_US)) * 1000, NANOS)
            event.event_timestamp.seconds, event.event_timestamp.nanos = BEGAN_S + seconds, nanos
            for name, values in self._few.items():
                setattr(event, name, dice.choice(values))
            yield version, event
