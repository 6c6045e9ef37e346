"""Made-up payloads of a flat and of a rich message, by Google's classes, whole and with a byte cut off."""

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from spark_app.records import Decodable
from spark_app.schemas.caps import Caps
from spark_app.schemas.descriptors import compile_sources, digest
from spark_app.schemas.registry import ROOT, Sources
from spark_app.worker.decode.reference import ReferenceParser, load_files
from spark_app.worker.decode.typemap import message_at

SEED = 7
CAPS = Caps(text_bytes=1 << 20, files=100, leaves=2000, compile_s=15, compile_bytes=512 << 20)
FLAT = """
syntax = "proto3";
message Event {
  string game_name = 1; string gamer_id = 2; int64 at = 3; double amount = 4; bool won = 5; int32 round = 6;
  fixed64 device = 7; string note = 8;
}
"""
RICH = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Color { NONE = 0; RED = 1; BLUE = 2; }
message Event {
  string game_name = 1; string gamer_id = 2; google.protobuf.Timestamp at = 3; double amount = 4; bool won = 5;
  int32 round = 6; uint64 device = 7; Color color = 8; Place place = 9; repeated int32 scores = 10;
  map<string, int64> counts = 11; optional string comment = 12; oneof prize { int64 coins = 13; string badge = 14; }
  repeated Place path = 15; string note = 16;
}
message Place { double x = 1; double y = 2; string name = 3; }
"""
MESSAGES = {"flat": FLAT, "rich": RICH}
INDEX = (0,)


@dataclass(frozen=True)
class Payloads:
    """Records of one message type; every one of `bad` is refused by the reference parser."""

    decodable: Decodable
    good: list[bytes]
    bad: list[bytes]

    def mixed(self, share: float) -> list[bytes]:
        """As many as there are, with a share of bad ones spread evenly at random."""
        dice = random.Random(SEED)
        return [bad if dice.random() < share else good for good, bad in zip(self.good, self.bad, strict=True)]

    def array(self, share: float) -> pa.Array:
        return pa.array(self.mixed(share), pa.binary())


def make(text: str, count: int) -> Payloads:
    """Payloads of the schema's first message."""
    data = compile_sources(Sources(texts={ROOT: text}), CAPS)
    _, messages = load_files(data)
    message = message_at(messages, INDEX)
    assert message is not None
    dice, kind = random.Random(SEED), ReferenceParser(message).message_class
    good = [_fill(kind(), dice).SerializeToString() for _ in range(count)]
    bad = [payload[:-1] for payload in good]  # the last field is text: it is now shorter than its length
    for payload in bad:
        try:
            kind.FromString(payload)
        except DecodeError:
            continue
        raise AssertionError("a payload that is cut off was accepted")
    return Payloads(Decodable(1, data, digest(data)), good, bad)


def _fill(event: Any, dice: random.Random) -> Any:
    event.game_name, event.gamer_id = f"game_{dice.randrange(7)}", f"gamer-{dice.randrange(1000):06}"
    event.amount, event.won, event.round = dice.random() * 100, dice.random() < 0.5, dice.randrange(1, 50)
    event.device, event.note = dice.getrandbits(48), "n" * dice.randrange(1, 20)
    if event.DESCRIPTOR.fields_by_name["at"].message_type is None:
        event.at = 1_700_000_000_000_000 + dice.getrandbits(40)
        return event
    event.at.seconds = 1_700_000_000 + dice.getrandbits(20)
    event.color = dice.randrange(3)
    event.place.x, event.place.name = dice.random(), "somewhere"
    event.scores.extend(dice.randrange(100) for _ in range(3))
    event.counts["wins"], event.counts["losses"] = dice.randrange(9), dice.randrange(9)
    event.comment = "well played"
    event.coins = dice.randrange(1000)
    event.path.add(x=dice.random(), y=dice.random())
    return event
