"""The schema versions that a game sends. Input: the settings and the position in the run. Output: the game's version
window.

A window is the game's newest version and the `num_versions - 1` before it. A bump moves the window of one game, or of
all with `*`, at so many seconds of the run or at so many records of the run (all games together).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ENTRY = re.compile(r"(?P<game>[^=@,\s]+)=v?(?P<version>\d+)@(?P<amount>\d+(?:\.\d+)?)(?P<unit>[smhr])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Bump:
    """From `at_seconds` of the run, or from record `at_record` (counted from 0), `game` sends up to `version`."""

    game: str
    version: int
    at_seconds: float | None = None
    at_record: int | None = None

    def is_due(self, record: int, elapsed: float) -> bool:
        """True if the bump applies `elapsed` seconds into the run and before this record is sent."""
        if self.at_record is not None:
            return record >= self.at_record
        return self.at_seconds is not None and elapsed >= self.at_seconds


def parse_timeline(text: str) -> tuple[Bump, ...]:
    """`rummy=2@30s,uno=3@5000r` as bumps, in the order given. Raises ValueError that shows the entry."""
    return tuple(_parse_bump(entry.strip()) for entry in text.split(",") if entry.strip())


def _parse_bump(entry: str) -> Bump:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError(f"cannot read {entry!r}, expected game=version@30s (or 2m, 1h) or game=version@5000r")
    game, version, amount, unit = match.group("game", "version", "amount", "unit")
    if unit != "r":
        return Bump(game, int(version), at_seconds=float(amount) * _SECONDS[unit])
    if "." in amount:
        raise ValueError(f"cannot read {entry!r}, the number of records must be whole")
    return Bump(game, int(version), at_record=int(amount))


class Timeline:
    """The current version windows of all games."""

    def __init__(self, games: Sequence[str], newest: int, width: int, bumps: Sequence[Bump] = ()) -> None:
        self._width = width
        self._waiting = list(bumps)
        self._windows = {game: self._window(newest) for game in games}

    def window(self, game: str) -> tuple[int, ...]:
        """The versions that the game sends now, ascending."""
        return self._windows[game]

    def advance(self, record: int, elapsed: float) -> None:
        """Apply the bumps that are due before `record` is sent; time does not go back."""
        if not self._waiting:
            return
        due = [bump for bump in self._waiting if bump.is_due(record, elapsed)]
        for bump in due:
            self._waiting.remove(bump)
            self._apply(bump)

    def _apply(self, bump: Bump) -> None:
        for game in self._windows if bump.game == "*" else (bump.game,):
            self._windows[game] = self._window(bump.version)

    def _window(self, newest: int) -> tuple[int, ...]:
        return tuple(range(max(1, newest - self._width + 1), newest + 1))
