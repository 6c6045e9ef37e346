"""The command line of ./scripts/bench. Standard library only: `--help` must work before anything is installed."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.benches.shape import Shape
from scripts.local.arguments import Parser, positive
from scripts.local.errors import USAGE, LocalError

ABOUT = """\
Measurements of what the design promises. Each prints a small table and adds a JSON line to local/bench.jsonl.

PROTOLAKE_* variables reach both the app and what it is compared with, except for the addresses."""
CODES = "Exit codes: 0 measured (whether a target is met is printed), 64 usage, 65 wrong results, 69, 78."


@dataclass(frozen=True)
class Entry:
    """One measurement: the module that runs it, and what it measures."""

    module: str
    about: str


MESSAGES = ("flat", "rich", "wide")
SHAPE = ("games", "message", "versions", "bad", "skew")
RIVALS = ("floor", "rows", "arrow", "consumer")
ENTRIES = {
    "tables": Entry("scripts.benches.tables", "seconds per 100,000-record batch into few and into many silver tables"),
    "drain": Entry("scripts.benches.drain", "Kafka to bronze and silver, against what one would do instead"),
    "freshness": Entry("scripts.benches.freshness", "a steady rate: how old records are when silver has them"),
    "decode": Entry("scripts.benches.decode", "payloads to columns: this decoder, its fallback and the naive ways"),
}


@dataclass(frozen=True)
class Options:
    """What was asked for; `name` is None for the list. Each measurement reads only what is its own."""

    name: str | None
    tables: tuple[int, ...] = (7, 50)
    records: int = 0
    batches: int = 0
    partitions: int = 4
    rounds: int = 0
    batch_records: tuple[int, ...] = ()
    against: tuple[str, ...] = ()
    shape: Shape = field(default_factory=Shape)
    rate: int = 0
    seconds: int = 0


def parse(arguments: Sequence[str]) -> Options:
    """The options; a LocalError says what is wrong."""
    given = vars(_parser().parse_args(arguments))
    if given.pop("list"):
        given = {"name": None}
    elif given["name"] is None:
        raise LocalError(f"name a measurement: {', '.join(ENTRIES)}; see ./scripts/bench --help", USAGE)
    shape = Shape(**{key: given.pop(key) for key in SHAPE if key in given})
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    return Options(shape=shape, **values)


def listing() -> str:
    """The measurements, one a line."""
    return "\n".join(f"{name:10} {entry.about}" for name, entry in ENTRIES.items())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="./scripts/bench",
        description=ABOUT,
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="name the measurements")
    parser.set_defaults(name=None)
    names = parser.add_subparsers(dest="name", metavar="NAME", title="measurements (NAME --help lists their options)")
    tables = names.add_parser("tables", help=ENTRIES["tables"].about, description=ENTRIES["tables"].about)
    _add(tables, "--tables", "numbers of silver tables; the first is what the others are compared with", [7, 50], "+")
    _add(tables, "--records", "records of a batch", 100_000)
    _add(tables, "--batches", "measured batches per number of tables, after two for warmth", 7)
    _add(tables, "--partitions", "Kafka partitions a batch comes from: as many tasks write files", 4)
    drain = names.add_parser("drain", help=ENTRIES["drain"].about, description=ENTRIES["drain"].about)
    _add(drain, "--records", "records in the topic", 2_000_000)
    _add(drain, "--rounds", "how often each side drains the topic, in turns", 2)
    _add(drain, "--partitions", "partitions of the topic", 4)
    _add_shape(drain)
    drain.add_argument(
        "--against", nargs="+", choices=RIVALS, default=["floor"], help="what the app is compared with (default: floor)"
    )
    _add(drain, "--batch-records", "most records of a micro-batch, for both sides; several are compared", [], "+")
    freshness = names.add_parser("freshness", help=ENTRIES["freshness"].about, description=ENTRIES["freshness"].about)
    _add(freshness, "--rate", "records per second", 5000)
    _add(freshness, "--seconds", "how long, with a minute for warmth", 3600)
    _add_shape(freshness)
    decode = names.add_parser("decode", help=ENTRIES["decode"].about, description=ENTRIES["decode"].about)
    _add(decode, "--records", "payloads of each of the two messages", 200_000)
    _add(decode, "--rounds", "how often each decoder gets them, in turns, after once for warmth", 3)
    return parser


def _add_shape(parser: argparse.ArgumentParser) -> None:
    """What is in the topic."""
    _add(parser, "--games", "games, evenly mixed", 7)
    _add(parser, "--versions", "versions of the schema, evenly mixed", 1)
    parser.add_argument("--message", choices=MESSAGES, default="flat", help="kind of event (default: flat)")
    parser.add_argument("--bad", type=_share, default=0.0, metavar="SHARE", help="of records with a broken payload")
    parser.add_argument(
        "--skew", type=_share, default=0.0, metavar="SHARE", help="of the first game (default: all alike)"
    )


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: 0 to 1")
    return share


def _add(
    parser: argparse.ArgumentParser, flag: str, text: str, default: int | list[int], nargs: str | None = None
) -> None:
    shown = "the app's own setting" if default == [] else str(default).strip("[]")
    parser.add_argument(
        flag, type=positive, nargs=nargs, default=default, metavar="N", help=f"{text} (default: {shown})"
    )
