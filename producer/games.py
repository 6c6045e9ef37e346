"""Makes game events. Input: a seed. Output: an endless sequence that depends on nothing else.

Faker fills pools at the start and each event only draws from them, so that making events never limits the rate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import NamedTuple
from uuid import UUID

from faker import Faker

_BLOCK = 1024
_NAMES = 2000
_DETAILS = 997
_UNSET = 0.1
_MAX_AGE_US = 500_000


class Event(NamedTuple):
    """One event without its time: `age_us` is how many microseconds before sending it happened."""

    game: str
    gamer_id: str
    device_id: str
    age_us: int
    details: tuple[str | None, ...]  # col_custom_1, col_custom_2, ...; None: unset


@dataclass(frozen=True)
class Gamer:
    """A player with one or two fixed devices."""

    gamer_id: str
    devices: tuple[str, ...]


def make_events(seed: int, games: Sequence[str], gamers: int, columns: int) -> Iterator[Event]:
    """Endless events with `columns` custom values each. The same arguments give the same events in the same order."""
    fake = Faker("en_US")
    fake.seed_instance(seed)
    random = Random(seed)
    pool = _make_gamers(fake, random, gamers)
    details = _make_details(fake, random, columns)
    # Few gamers play a lot and many play little: the weight is a flattened 1/rank.
    weights = list(accumulate(1.0 / (rank + 10) for rank in range(len(pool))))
    while True:
        players = random.choices(pool, cum_weights=weights, k=_BLOCK)
        played = random.choices(games, k=_BLOCK)
        told = random.choices(details, k=_BLOCK)
        for gamer, game, values in zip(players, played, told, strict=True):
            device = random.choice(gamer.devices)
            yield Event(game, gamer.gamer_id, device, int(random.random() * _MAX_AGE_US), values)


def _make_gamers(fake: Faker, random: Random, count: int) -> list[Gamer]:
    names = [fake.user_name() for _ in range(min(count, _NAMES))]
    # Names may repeat; the number after the dash makes each id unique.
    return [Gamer(f"{names[n % len(names)]}-{n:05d}", _make_devices(random)) for n in range(count)]


def _make_devices(random: Random) -> tuple[str, ...]:
    platforms = random.sample(("ios", "android", "web"), random.choice((1, 1, 2)))
    return tuple(f"{platform}-{UUID(int=random.getrandbits(128), version=4)}" for platform in platforms)


def _make_details(fake: Faker, random: Random, columns: int) -> list[tuple[str | None, ...]]:
    makers: tuple[Callable[[], str], ...] = (fake.country_code, fake.color_name, fake.currency_code, fake.city)
    return [
        tuple(None if random.random() < _UNSET else makers[column % len(makers)]() for column in range(columns))
        for _ in range(_DETAILS)
    ]
