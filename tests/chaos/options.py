"""The command line of ./scripts/chaos. Standard library only: `--help` must work before anything is installed."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.local.arguments import Parser, positive
from scripts.local.errors import USAGE, LocalError
from tests.chaos.scenarios import ENTRIES, TIERS

ABOUT = """\
Faults against the real app: each scenario runs it on its own topic and lake, breaks something as often as the
tier sets, and then compares Kafka with the tables, record by record. The seed is printed; the same seed makes the same
choices again."""
CODES = "Exit codes: 0 nothing was lost, 65 something was lost, 64 usage, 69, 78."


@dataclass(frozen=True)
class Options:
    """The command line options. `times` and `records` are None for the numbers of the tier."""

    names: tuple[str, ...]
    tier: str
    seed: int
    times: int | None = None
    records: int | None = None
    lanes: int = 1
    storage: str = "local"
    keep: bool = False
    publish: bool = False
    list: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """The options; a LocalError names what is wrong."""
    given = vars(_parser().parse_args(arguments))
    unknown = [name for name in given["names"] if name not in ENTRIES]
    if unknown:
        raise LocalError(f"no scenario {', '.join(unknown)}; see ./scripts/chaos --list", USAGE)
    here = [name for name, entry in ENTRIES.items() if entry.storage in ("", given["storage"])]
    if elsewhere := [name for name in given["names"] if name not in here]:
        raise LocalError(f"{', '.join(elsewhere)}: add --storage {ENTRIES[elsewhere[0]].storage}", USAGE)
    given["names"] = tuple(given["names"]) or tuple(here)
    if given["seed"] is None:
        given["seed"] = random.SystemRandom().randrange(1_000_000)
    return Options(**given)


def listing() -> str:
    """The scenarios, one per line, with their repetitions by tier."""
    width = max(map(len, ENTRIES)) + 2
    head = f"{'scenario':{width}}{'row':8}{''.join(f'{tier:>9}' for tier in TIERS)}  fault"
    lines = [
        f"{name:{width}}{entry.row:8}{''.join(f'{entry.times[tier]:>9,}' for tier in TIERS)}  {entry.about}"
        for name, entry in ENTRIES.items()
    ]
    return "\n".join([head, *lines])


def command(options: Options, name: str) -> str:
    """The command line that repeats one scenario."""
    words = ["./scripts/chaos", name, f"--tier {options.tier}", f"--seed {options.seed}"]
    words += [f"--times {options.times}"] if options.times else []
    words += [f"--records {options.records}"] if options.records else []
    words += [f"--storage {options.storage}"] if options.storage != "local" else []
    return " ".join(words)


def of_one(options: Options, name: str) -> list[str]:
    """The arguments of a process that runs one scenario."""
    kept = [f"--{flag}" for flag in ("keep", "publish") if getattr(options, flag)]
    return [*command(options, name).split()[1:], *kept]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="./scripts/chaos",
        description=ABOUT,
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; none = all of the tier")
    parser.add_argument("--list", action="store_true", help="list the scenarios and how often each tier repeats them")
    parser.add_argument("--tier", choices=TIERS, default=TIERS[0], help="how much (default: nightly, an hour or two)")
    parser.add_argument("--seed", type=int, help="seed of all choices (default: a new one each time)")
    parser.add_argument("--times", type=positive, help="repetitions, instead of the tier's number")
    parser.add_argument("--records", type=positive, help="records, instead of the tier's number")
    parser.add_argument("--lanes", type=positive, default=1, help="scenarios side by side, each on servers of its own")
    parser.add_argument(
        "--storage",
        choices=("local", "s3"),
        default="local",
        help="where the lakes are; s3 = in SeaweedFS",
    )
    parser.add_argument("--keep", action="store_true", help="leave lakes, logs and topics in place afterwards")
    parser.add_argument("--publish", action="store_true", help="enter the results into tests/chaos/RESULTS.md")
    return parser
