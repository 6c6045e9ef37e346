"""The scenarios of ./scripts/chaos: where they are, and how often each tier repeats them. Standard library only.

A scenario is a function of a module beside this file: `run(lab, size, dice) -> Outcome`.
"""

from __future__ import annotations

from dataclasses import dataclass

TIERS = ("ci", "nightly", "release")


@dataclass(frozen=True)
class Size:
    """How much of a scenario: repetitions of its fault, and records where the scenario takes that into account."""

    times: int
    records: int


@dataclass(frozen=True)
class Entry:
    """One scenario.

    Attributes:
        function: "module.function" in `scripts.campaign.scenarios`.
        row: of the fault matrix.
        times: tier -> repetitions; 0 = not in this tier.
    """

    function: str
    row: str
    about: str
    times: dict[str, int]
    records: dict[str, int]


def _entry(
    function: str, row: str, about: str, times: tuple[int, int, int], records: tuple[int, int, int] = (0, 0, 0)
) -> Entry:
    return Entry(function, row, about, dict(zip(TIERS, times, strict=True)), dict(zip(TIERS, records, strict=True)))


SMALL, LARGE = 200_000, 5_000_000
ENTRIES = {
    "failpoints": _entry(
        "failpoints.run", "R2", "death before and after every durable step", (1, 3, 10), (SMALL, SMALL, 1_000_000)
    ),
    "growth": _entry("growth.run", "R24", "micro-batches of 20 records: what grows?", (0, 2_000, 10_000)),
    "rules": _entry(
        "failpoints.change_rules",
        "R4",
        "death between two commits, then other rules",
        (0, 20, 50),
        (0, 60_000, 150_000),
    ),
    "merges": _entry(
        "failpoints.merge_again", "R22", "death around the merges into gold", (0, 10, 25), (0, 60_000, 150_000)
    ),
    "power": _entry("power.run", "R12", "power cuts under the whole app", (3, 8, 25), (20_000, 100_000, SMALL)),
    "power_of_commits": _entry("power.commits", "R12", "power cuts at any operation of the commits", (40, 300, 1_000)),
    "kills": _entry(
        "kills.run",
        "R1",
        "kill -9 at random moments: all, the driver or the JVM",
        (12, 60, 200),
        (SMALL, 1_000_000, LARGE),
    ),
}
