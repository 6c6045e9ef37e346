"""The performance targets, used by the measurements and by `--list`.

Standard library only: the list must work before anything is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scripts.benches.shape import Shape


@dataclass(frozen=True)
class Target:
    """The upper limit of a figure, or with `at_most` False the lower limit; `what` contains the unit."""

    what: str
    limit: float
    at_most: bool = True

    @property
    def bound(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}"

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit


def _at_least(what: str, limit: float) -> Target:
    return Target(what, limit, at_most=False)


# Most tables -> the batch against one into 7 tables.
BATCH = {n: Target(f"seconds of a batch, {n:,} tables / 7", limit) for n, limit in ((50, 1.5), (200, 2), (1000, 4))}
REQUESTS = {
    verb: Target(f"{what} of a batch into a bucket", 0)
    for verb, what in (("PUT", "PUTs beyond files + tables + 2"), ("HEAD", "HEADs"), ("LIST", "LISTs"))
}


CLUSTER = Target("CPU per record without the app's own process, cluster / local", 1.15)


@dataclass(frozen=True)
class Kind:
    """Topics for which there are targets: with fewer records the start has too large a share, and there is no
    target."""

    message: str
    records: int = 0
    games: range = range(1, 200)

    def fits(self, shape: Shape) -> bool:
        return shape.message == self.message and shape.records >= self.records and shape.games in self.games


Targets = Mapping[Kind, Target]


def fitting(targets: Targets, shape: Shape) -> Target | None:
    """The target for a topic; None if there is none."""
    return next((target for kind, target in targets.items() if kind.fits(shape)), None)


MANY = range(200, 100_000)
FLAT, RICH, GAMES = Kind("flat", 4_000_000), Kind("rich", 1_000_000), Kind("flat", 500_000, MANY)
WORDS = {FLAT: "4,000,000 flat events", RICH: "1,000,000 rich events", GAMES: "500,000 events of 200 games"}


def _each(make: Callable[[str, float], Target], what: str, limits: Mapping[Kind, float]) -> Targets:
    return {kind: make(f"{what}, {WORDS[kind]}", limit) for kind, limit in limits.items()}


LEAN = _each(_at_least, "records/s, app / lean raw copy by Spark", {FLAT: 1.2, RICH: 1.0})
LEAN_CPU = _each(_at_least, "records per CPU second, app / lean raw copy by Spark", {FLAT: 1.4, RICH: 1.1})
EXPERT_CPU = _each(_at_least, "records per CPU second, app / expert's consumer", {FLAT: 0.9, RICH: 0.85, GAMES: 0.9})
EARLIER_COMMIT = "a00e4ee"
EARLIER = _each(Target, f"CPU per record, app / app at {EARLIER_COMMIT}", {FLAT: 0.6, RICH: 0.7, GAMES: 0.55})
TRIGGER = Target(f"CPU of a trigger without records, app / app at {EARLIER_COMMIT}", 0.5)
FLOOR = {
    Kind("flat"): _at_least("records/s, app / raw copy by Spark's sink in the app's session, flat events", 1.3),
    Kind("rich"): _at_least("records/s, app / raw copy by Spark's sink in the app's session, rich events", 0.8),
}
ROWS = {
    Kind("flat", games=range(7, 200)): _at_least(
        "records/s to gold, app / row UDF and a write for each game, 7 games", 12
    ),
    Kind("flat", games=MANY): _at_least("records/s to gold, app / row UDF and a write for each game, 200 games", 60),
}
ARROW = {
    Kind("flat", games=range(50, 200)): _at_least(
        "records/s to gold, app / mapInArrow and writes side by side, 50 games", 4
    )
}
CONSUMER = {Kind("flat"): _at_least("records/s, app / one Python consumer with delta-rs", 3)}
DEMUX = {
    7: _at_least("records/s from bronze, app / row UDF and a write for each game, 7 games", 20),
    200: _at_least("records/s from bronze, app / row UDF and a write for each game, 200 games", 100),
}

STEADY_GAMES = 7
AGE_P50 = Target("seconds from produced to visible, p50", 0.8)
AGE_P99 = Target("seconds from produced to visible, p99", 1.6)
CORES = Target("cores used by the app", 0.35)
GROWTH = Target("memory, last tenth / fifth", 1.1)
PAGE_AGE = Target("p50 of the age with the page open, median / worst without", 1.0)
PAGE_CPU = Target("CPU of the app with the page open / without", 1.1)
PAGE_MEMORY = Target("MiB of the page", 250)
MEMORY_TABLES = 1000
MEMORY = Target(f"MiB of driver, JVM and workers, {MEMORY_TABLES:,} tables", 3072)

BAD = _at_least("records/s of the whole pass, all bad / clean", 0.25)

HISTORY = Target("seconds of a gold interval, 10 x the history / 1 x", 1.2)
TOUCHED_TABLES = 1000
TOUCHED = Target(f"seconds of a gold interval, {TOUCHED_TABLES:,} tables touched", 10)

FOLDED = Target("seconds of a folded table by SQL / by settings", 1.2)
FOLDED_HISTORY = Target("seconds of a folded table by SQL, 10 x the history / 1 x", 1.2)
UNIFIED = Target("seconds of a table over the gold of all games / a gold interval", 1.5)
BOARD = Target("seconds of a board of 100 gamers", 1)

START = Target("seconds from start to first unit, p95", 10)
BUMP = Target("seconds from the exit for a bump to the first unit, p95", 10)

FEW_WAITING, MANY_WAITING = 1_000_000, 10_000_000
WAITING_UNIT = Target("CPU seconds of a unit of what is ready, 10,000,000 records waiting / 1,000,000", 1.2)
WAITING_MEMORY = Target(f"MiB of the driver, {MANY_WAITING:,} records waiting", 600)
CATCH_UP = Target("CPU seconds for each record of the catch-up after --land-only, second half / first half", 1.2)

RULES = {
    kind: Target(f"CPU of the whole pass, three rules / no rules, {kind}, 7 tables", limit)
    for kind, limit in (("flat", 1.1), ("rich", 1.03))
}
RULES_BY_TABLES = Target("CPU of the whole pass, three rules / no rules, flat: 200 tables minus 7", 0.1)

REST_CLIENT = _at_least("rows/s, sink / the same client alone, the worst of all sizes", 0.95)
REST_IDEAL = _at_least("rows/s up to 16 in flight / in flight x rows / latency, the worst", 0.75)
REST_RATE = _at_least("rows/s of 10 rows a call, 64 in flight", 10_000)
DELIVER_CPU = Target("cores of the app, with a sink / without", 1.03)
DELIVER_AGE = Target("p99 of the age with a sink minus without / least to most of the runs without", 1.0)
SERVE_VISIBLE = {
    games: Target(f"seconds until a run of gold is visible, {games} games with two tables each", limit)
    for games, limit in ((7, 2), (200, 10))
}
SERVE_BOARD = Target("milliseconds of a board's answer to 50 clients, p95", 100)
REST_CALL = Target("milliseconds of CPU of a call of 10 rows", 0.6)
