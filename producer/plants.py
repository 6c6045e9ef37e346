"""Plants rule failures on purpose. Input: the shares of the kinds. Output: edits of messages that stay valid.

A planted record is decoded like any other; what is wrong is one value that a rule can name. `PLANTS` is the table of
all kinds; `python -m producer faults` prints it, too. Only fields that every schema version has are changed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from producer.faults import Edit

_ENTRY = re.compile(r"(?P<kind>[^=,\s]+)=(?P<share>\d+(?:\.\d+)?)")
_DAY_S = 86_400
_ROUNDING = 1e-9  # shares such as 0.7, 0.2 and 0.1 do not add up to 1 exactly


@dataclass(frozen=True)
class Plant:
    """One kind of rule failure: what is wrong, and how it is made."""

    meaning: str
    edit: Edit


def _empty(field: str) -> Edit:
    return lambda message: message.ClearField(field)


def _name_test_device(message: Any) -> None:
    message.device_id = f"test-{message.device_id}"


def _move(seconds: int) -> Edit:
    def edit(message: Any) -> None:
        message.event_timestamp.seconds += seconds

    return edit


PLANTS: dict[str, Plant] = {
    "no_player": Plant("gamer_id is empty", _empty("gamer_id")),
    "no_device": Plant("device_id is empty", _empty("device_id")),
    "test_device": Plant("device_id begins with test-", _name_test_device),
    "late_time": Plant("event_timestamp is a day behind", _move(-_DAY_S)),
    "future_time": Plant("event_timestamp is ten years ahead", _move(10 * 365 * _DAY_S)),
}


def parse_plants(text: str) -> dict[str, float]:
    """`no_player=0.01,test_device=0.005` as kind -> share of the records, in the order given.

    Raises ValueError: it shows the entry that cannot be read, or says that the shares are more than 1.
    """
    shares: dict[str, float] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(f"cannot read {entry!r}, expected kind=share such as no_player=0.01")
        kind = match["kind"]
        if kind not in PLANTS:
            raise ValueError(f"has unknown kind {kind!r}, known are {', '.join(PLANTS)}")
        if kind in shares:
            raise ValueError(f"names {kind} twice")
        shares[kind] = float(match["share"])
    if sum(shares.values()) > 1 + _ROUNDING:
        raise ValueError(f"has shares of {sum(shares.values()):g} in total, at most 1 is possible")
    return shares


def draw_plant(random: Random, shares: Mapping[str, float]) -> str | None:
    """The kind that the next record has, at most one; None for a record without a failure. It draws once."""
    if not shares:
        return None
    left = random.random()
    for kind, share in shares.items():
        if left < share:
            return kind
        left -= share
    return None
