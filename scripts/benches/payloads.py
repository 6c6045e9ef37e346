"""Makes payloads of a flat and of a rich event with Google's classes, complete and with one byte cut off."""

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from scripts.benches import messages
from spark_app.model.catalog import Decodable
from spark_app.protobuf.schemas.descriptors import digest

SEED = 7


@dataclass(frozen=True)
class Payloads:
    """Records of one message type; Google's parser rejects every one of `bad`."""

    decodable: Decodable
    good: list[bytes]
    bad: list[bytes]

    def mixed(self, share: float) -> list[bytes]:
        """All payloads, of which a share, evenly at random, is bad."""
        dice = random.Random(SEED)
        return [bad if dice.random() < share else good for good, bad in zip(self.good, self.bad, strict=True)]

    def array(self, share: float) -> pa.Array:
        return pa.array(self.mixed(share), pa.binary())


def make(kind: str, count: int) -> Payloads:
    """Payloads of one kind of event."""
    data, event = messages.compile_version(kind, 1)
    dice = random.Random(SEED)
    good = [_play(messages.fill(event(), dice), dice).SerializeToString() for _ in range(count)]
    bad = [payload[:-1] for payload in good]  # the last field is a text, which is now shorter than its length
    for payload in bad:
        try:
            event.FromString(payload)
        except DecodeError:
            continue
        raise AssertionError("a payload that is cut off was accepted")
    return Payloads(Decodable(1, data, digest(data)), good, bad)


def _play(event: Any, dice: random.Random) -> Any:
    """Set one of a few games and gamers, which tables and gold need."""
    event.game_name, event.gamer_id = f"game_{dice.randrange(7)}", f"gamer-{dice.randrange(1000):06}"
    return event
