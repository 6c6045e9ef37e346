"""The contenders: the app or an alternative. Standard library only, because the command line needs it."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from scripts.benches import targets
from scripts.benches.shape import Shape
from scripts.benches.targets import Target, Targets, fitting

APP, BASE = "app", "base"
COMMIT = re.compile(r"[0-9a-f]{7,40}")
FLAGS = ("app", "own")  # JVM flags: those of the app, or none


@dataclass(frozen=True)
class Rival:
    """The targets of the app against a rival, by kind of topic.

    Attributes:
        wall, cpu: records/s and records per CPU second, app / rival; with `to_gold` the time of the first includes
            gold.
        flags: JVM flags, if it has a JVM: those with which it was fastest.
        decodes: True if it writes silver.
    """

    wall: Targets
    cpu: Targets
    flags: str | None = None
    decodes: bool = True
    to_gold: bool = False


RIVALS = {
    "lean": Rival(targets.LEAN, targets.LEAN_CPU, "own", decodes=False),
    "expert": Rival({}, targets.EXPERT_CPU),
    "expert_per_core": Rival({}, targets.EXPERT_CPU),
    "floor": Rival(targets.FLOOR, {}, "app", decodes=False),
    "arrow": Rival(targets.ARROW, {}, "app", to_gold=True),
    "arrow_partitioned": Rival({}, {}, "app", to_gold=True),
    "tuned_rows": Rival({}, {}, "app", to_gold=True),
    "rows": Rival(targets.ROWS, {}, "app", to_gold=True),
    "rows_partitioned": Rival({}, {}, "app", to_gold=True),
    "consumer": Rival(targets.CONSUMER, {}),
}
APPS = Rival({}, {})  # the app, of any commit


@dataclass(frozen=True)
class Side:
    """One contender.

    Attributes:
        variant: JVM flags, for a rival in Spark; the commit, for the app at another one.
    """

    name: str
    variant: str | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.variant}" if self.variant else self.name

    @property
    def is_app(self) -> bool:
        return self.name in (APP, BASE)

    @property
    def rival(self) -> Rival:
        return APPS if self.is_app else RIVALS[self.name]

    @property
    def flags(self) -> str | None:
        return None if self.is_app else self.variant or self.rival.flags


def side(text: str) -> Side:
    """Parse `lean`, `lean:app` (other JVM flags), `base:a00e4ee` (the app at that commit)."""
    name, _, variant = text.partition(":")
    if name == BASE and COMMIT.fullmatch(variant):
        return Side(name, variant)
    if name in RIVALS and (not variant or (RIVALS[name].flags and variant in FLAGS)):
        return Side(name, variant or None)
    known = f"{', '.join(RIVALS)}; those in Spark with :app or :own for flags of the JVM; base:COMMIT"
    raise argparse.ArgumentTypeError(f"{text} is none of {known}")


def earlier_app(text: str) -> Side:
    """Parse `base:a00e4ee`."""
    name, _, commit = text.partition(":")
    if name == BASE and COMMIT.fullmatch(commit):
        return Side(name, commit)
    raise argparse.ArgumentTypeError(f"{text} is not base:COMMIT")


def promised(rival: Side, shape: Shape) -> tuple[Target | None, Target | None, Target | None]:
    """Targets for (records/s, records per CPU second, CPU per record), app against rival; None without a target."""
    earlier = targets.EARLIER if rival == Side(BASE, targets.EARLIER_COMMIT) else {}
    wall, cpu, less = (fitting(found, shape) for found in (rival.rival.wall, rival.rival.cpu, earlier))
    return wall, cpu, less


def trigger_target(rival: Side) -> Target | None:
    """The target of a trigger without records, app against rival."""
    return targets.TRIGGER if rival == Side(BASE, targets.EARLIER_COMMIT) else None


def all_targets() -> tuple[Target, ...]:
    """All targets for the list, the hardest rivals first."""
    found = [target for rival in RIVALS.values() for some in (rival.wall, rival.cpu) for target in some.values()]
    return tuple(dict.fromkeys([*targets.EARLIER.values(), *found]))
