"""The command line of ./scripts/bench. Standard library only: `--help` must work before anything is installed."""

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.benches import targets
from scripts.benches.shape import Shape
from scripts.benches.sides import BASE, RIVALS, Side, all_targets, earlier_app, side
from scripts.benches.targets import Target
from scripts.local.arguments import Parser, positive
from scripts.local.errors import USAGE, LocalError

ABOUT = """\
Measurements of what the design promises. Each prints a small table and adds a JSON line to local/bench.jsonl.

PROTOLAKE_* variables apply to the app and to the programs it is compared with, except for the addresses."""
CODES = "Exit codes: 0 measured (whether a target is met is printed), 64 usage, 65 wrong results, 69, 78."
PUBLISH = "--publish"
ROUNDS = 3  # fewer do not show the spread
SPREAD = ("drain", "expectations")  # the measurements whose ratios are published with their spread


@dataclass(frozen=True)
class Entry:
    """One measurement: its module, a description, and its targets."""

    module: str
    about: str
    targets: tuple[Target, ...]


MESSAGES = ("flat", "rich", "wide")
SHAPE = ("games", "message", "versions", "bad", "skew")
ENTRIES = {
    "tables": Entry(
        "scripts.benches.tables",
        "seconds per 100,000-record batch into few and into many silver tables",
        (*targets.BATCH.values(), *targets.REQUESTS.values()),
    ),
    "drain": Entry(
        "scripts.benches.drain",
        "Kafka to bronze and silver, compared with other ways to do the same",
        all_targets(),
    ),
    "cluster": Entry(
        "scripts.benches.cluster",
        "CPU of a record whose executors are processes of a Spark cluster, compared with the app alone",
        (targets.CLUSTER,),
    ),
    "freshness": Entry(
        "scripts.benches.freshness",
        "the age of records when they appear in silver, at a steady rate",
        (targets.AGE_P50, targets.AGE_P99, targets.CORES, targets.GROWTH, targets.MEMORY),
    ),
    "page": Entry(
        "scripts.benches.watched",
        "what the page costs: the age of records with it in browsers and without, and itself",
        (targets.PAGE_AGE, targets.PAGE_CPU, targets.PAGE_MEMORY),
    ),
    "demux": Entry(
        "scripts.benches.demux",
        "bronze to silver: decoding and demultiplexing alone, compared with the method of 2022",
        tuple(targets.DEMUX.values()),
    ),
    "decode": Entry(
        "scripts.benches.decode",
        "payloads to columns: this decoder, its fallback and naive decoders",
        (targets.BAD,),
    ),
    "stages": Entry(
        "scripts.benches.stages",
        "microseconds of CPU per record by stage, from a broker to files, in one worker",
        (),
    ),
    "expectations": Entry(
        "scripts.benches.expectations",
        "what rules cost: CPU of the whole pass in one worker, with three rules and without",
        (*targets.RULES.values(), targets.RULES_BY_TABLES),
    ),
    "gold": Entry(
        "scripts.benches.gold",
        "a gold interval: with a long history, with many changed tables, with many gamers",
        (targets.HISTORY, targets.TOUCHED),
    ),
    "sql": Entry(
        "scripts.benches.sql_tables",
        "tables by SQL: a folded one beside the same by settings, one over all games, and a board",
        (targets.FOLDED, targets.FOLDED_HISTORY, targets.UNIFIED, targets.BOARD),
    ),
    "rest": Entry(
        "scripts.benches.rest",
        "delivery to a REST service: rows/s and CPU of a call, beside the same client alone",
        (targets.REST_CLIENT, targets.REST_IDEAL, targets.REST_RATE, targets.REST_CALL),
    ),
    "deliver": Entry(
        "scripts.benches.deliver",
        "what a sink costs ingest: CPU of the app and the age of records, with it and without",
        (targets.DELIVER_CPU, targets.DELIVER_AGE),
    ),
    "serve": Entry(
        "scripts.benches.serve",
        "the PostgreSQL that serves a lake: when runs of gold are visible there, and a board for many clients",
        (*targets.SERVE_VISIBLE.values(), targets.SERVE_BOARD),
    ),
    "starts": Entry(
        "scripts.benches.starts",
        "the app's start to its first unit, and the gap at a schema bump",
        (targets.START, targets.BUMP),
    ),
    "trigger": Entry(
        "scripts.benches.trigger",
        "CPU time of a trigger with few records or none, compared with an earlier commit",
        (targets.TRIGGER,),
    ),
    "waiting": Entry(
        "scripts.benches.waiting",
        "records that wait for their schema: checking them, a unit of ready ones, the catch-up",
        (targets.WAITING_UNIT, targets.WAITING_MEMORY, targets.CATCH_UP),
    ),
}


@dataclass(frozen=True)
class Options:
    """The command line options; `name` is None for the list. Each measurement reads only its own options.

    Attributes:
        command: the command line that repeats the measurement.
    """

    name: str | None
    command: str = ""
    publish: bool = False
    tables: tuple[int, ...] = (7, 50)
    storage: str = "local"
    records: int = 0
    batches: int = 0
    partitions: int = 4
    rounds: int = 0
    batch_records: tuple[int, ...] = ()
    against: tuple[Side, ...] = ()
    shape: Shape = field(default_factory=Shape)
    rate: int = 0
    seconds: int = 0
    history: int = 0
    gamers: int = 0
    clients: int = 0
    times: int = 0
    browsers: int = 0
    first_run: bool = False
    waiting: tuple[int, ...] = ()
    ready: int = 0
    workers: tuple[int, ...] = ()


def parse(arguments: Sequence[str]) -> Options:
    """The options; a LocalError says what is wrong."""
    given = vars(_parser().parse_args(arguments))
    if given.pop("list"):
        given = {"name": None}
    elif given["name"] is None:
        raise LocalError(f"name a measurement: {', '.join(ENTRIES)}; see ./scripts/bench --help", USAGE)
    if given["name"] in SPREAD and given["publish"] and given["rounds"] < ROUNDS:
        raise LocalError(
            f"--rounds {given['rounds']}: too few rounds to publish a spread; give {ROUNDS} or more", USAGE
        )
    shape = Shape(**{key: given.pop(key) for key in SHAPE if key in given})
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    return Options(shape=shape, command=command(arguments, os.environ), **values)


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The command line that repeats a measurement, including settings from the environment."""
    settings = [name for name in sorted(environment) if name.startswith("PROTOLAKE_") and "__" in name]
    variables = [f"{name}={shlex.quote(environment[name])}" for name in settings]
    return " ".join([*variables, shlex.join(["./scripts/bench", *(word for word in arguments if word != PUBLISH)])])


def listing() -> str:
    """The measurements, each with its targets below it."""
    lines = []
    for name, entry in ENTRIES.items():
        lines += [f"{name:12} {entry.about}", *(f"{'':15}{t.what} {t.bound}" for t in entry.targets)]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="./scripts/bench",
        description=ABOUT,
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="list the measurements and their targets")
    parser.set_defaults(name=None)
    names = parser.add_subparsers(dest="name", metavar="NAME", title="measurements (NAME --help lists their options)")
    options = {
        "tables": _add_tables,
        "drain": _add_drain,
        "cluster": _add_cluster,
        "freshness": _add_freshness,
        "page": _add_page,
        "demux": _add_demux,
        "decode": _add_decode,
        "stages": _add_stages,
        "expectations": _add_expectations,
        "gold": _add_gold,
        "sql": _add_sql,
        "rest": _add_rest,
        "deliver": _add_deliver,
        "serve": _add_serve,
        "starts": _add_starts,
        "trigger": _add_trigger,
        "waiting": _add_waiting,
    }
    for name, entry in ENTRIES.items():
        # No abbreviations, because `command` compares full names.
        one = names.add_parser(name, help=entry.about, description=entry.about, allow_abbrev=False)
        options[name](one)
        one.add_argument(PUBLISH, action="store_true", help="enter the result into scripts/benches/RESULTS.md")
    return parser


def _add_tables(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--tables", "numbers of silver tables; the others are compared with the first", [7, 50], "+")
    _add(parser, "--records", "records per batch", 100_000)
    _add(parser, "--batches", "measured batches per number of tables, after two warm-up batches", 7)
    _add(parser, "--partitions", "Kafka partitions of a batch; one task per partition writes files", 4)
    storage = "local: lakes on this disk; s3: for each number of tables one on this disk and one in a bucket of a real "
    storage += "object store take turns, and the requests of a batch are counted (default: local)"
    parser.add_argument("--storage", choices=("local", "s3"), default="local", help=storage)


def _add_drain(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--records", "records in the topic", 2_000_000)
    _add(parser, "--rounds", "how often each side drains the topic, in turns; 3 or more to publish", 3)
    _add(parser, "--partitions", "partitions of the topic", 4)
    _add_shape(parser)
    against = f"what the app is compared with: {', '.join(RIVALS)}, base:COMMIT (default: lean expert)"
    default = [Side("lean"), Side("expert")]
    parser.add_argument("--against", nargs="+", type=side, default=default, metavar="RIVAL", help=against)
    _add(
        parser,
        "--batch-records",
        "maximum records of a micro-batch, for both sides; several values are compared",
        [],
        "+",
    )


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--workers", "numbers of workers of one core, each compared with as many local cores", [1, 2], "+")
    _add(parser, "--records", "records of the larger of two topics; the smaller has a quarter", 2_000_000)
    _add(parser, "--rounds", "how often each side drains each topic, in turns", 3)
    _add(parser, "--partitions", "partitions of a topic", 4)
    _add_shape(parser)


def _add_freshness(parser: argparse.ArgumentParser, seconds: int = 3600) -> None:
    _add(parser, "--rate", "records per second", 5000)
    _add(parser, "--seconds", "duration in seconds, including a warm-up minute", seconds)
    _add_shape(parser)


def _add_page(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--browsers", "browsers that have the page open", 3)
    _add(parser, "--rounds", "runs of each side, in turns", 3)
    _add_freshness(parser, 300)


def _add_demux(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--tables", "numbers of games, and so of silver tables", [7, 200], "+")
    _add(parser, "--records", "records in bronze", 100_000)
    _add(parser, "--rounds", "rounds of each side, after a warm-up round", 3)


def _add_decode(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--records", "payloads of each of the two messages", 200_000)
    _add(parser, "--rounds", "how often each decoder decodes them, in turns, after a warm-up round", 3)


def _add_stages(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--records", "flat events, and a fifth as many rich ones", 1_000_000)
    _add(parser, "--rounds", "measured rounds, after a warm-up round", 3)


def _add_expectations(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--tables", "silver tables in the case with many tables; the other cases have 7", [200], 1)
    _add(parser, "--records", "flat events of a case, and a fifth as many rich ones", 200_000)
    _add(parser, "--rounds", "measured rounds, after a warm-up round; 3 or more to publish", 15)


def _add_gold(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--tables", "silver tables in the case with many changed tables", [1000], 1)
    _add(parser, "--records", "records of an interval", 25_000)
    _add(parser, "--history", "records in silver before the first interval, once and 10 times as many", 500_000)
    _add(parser, "--gamers", "gamers in the case with many gamers, which has as many records", 1_000_000)
    _add(parser, "--rounds", "measured intervals of each case, in turns, after two warm-up intervals", 7)


def _add_sql(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--tables", "games", [200], 1)
    _add(parser, "--records", "records of an interval", 25_000)
    _add(parser, "--history", "records in silver before the first interval, once and 10 times as many", 200_000)
    _add(parser, "--gamers", "gamers", 100_000)
    _add(parser, "--rounds", "measured intervals, after two warm-up intervals", 5)


def _add_rest(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--rounds", "runs of each size, client and sink in turn", 3)


def _add_deliver(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--rounds", "runs of each side, in turns", 5)
    _add_freshness(parser, 240)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--tables", "numbers of games, with two tables of gold each", [7, 200], "+")
    _add(parser, "--gamers", "rows of the table that is kept current beside the board", 1_000_000)
    _add(parser, "--clients", "clients that ask for the board at the same time", 50)
    _add(parser, "--rounds", "measured runs of gold", 7)


def _add_starts(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--times", "starts on an empty lake, a bump after each; a warm-up start comes first", 10)
    _add(parser, "--records", "records in the topic, and as many again with the bump", 1000)
    first = "measure each start like the first on a machine: train the class archive before it, without a warm-up"
    parser.add_argument("--first-run", action="store_true", help=first)
    _add_earlier(parser, [])


def _add_trigger(parser: argparse.ArgumentParser) -> None:
    rate = "records per second; 0 = none (default: 5000)"
    parser.add_argument("--rate", type=_rate, default=5000, metavar="N", help=rate)
    _add(parser, "--seconds", "measured seconds of each run", 60)
    _add(parser, "--rounds", "runs of each side, in turns", 3)
    _add_earlier(parser, [Side(BASE, targets.EARLIER_COMMIT)])


def _add_earlier(parser: argparse.ArgumentParser, default: list[Side]) -> None:
    known = f"base:COMMIT (default: {default[0] if default else 'none'})"
    parser.add_argument("--against", nargs="+", type=earlier_app, default=default, metavar="SIDE", help=known)


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--waiting", "records that wait for a schema", [1_000_000, 2_000_000, 5_000_000, 10_000_000], "+")
    _add(parser, "--ready", "records of a unit that are ready", 20_000)
    _add(parser, "--rounds", "measured checks and units for each number of waiting records", 15)
    _add(parser, "--records", "records that are written to bronze only and decoded later", 4_000_000)


def _add_shape(parser: argparse.ArgumentParser) -> None:
    """Add the options for the content of the topic."""
    _add(parser, "--games", "games, evenly mixed", 7)
    _add(parser, "--versions", "versions of the schema, evenly mixed", 1)
    parser.add_argument("--message", choices=MESSAGES, default="flat", help="kind of event (default: flat)")
    parser.add_argument(
        "--bad", type=_share, default=0.0, metavar="SHARE", help="share of records with a broken payload"
    )
    parser.add_argument(
        "--skew", type=_share, default=0.0, metavar="SHARE", help="share of the first game (default: equal shares)"
    )


def _rate(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share from 0 to 1")
    return share


def _add(
    parser: argparse.ArgumentParser, flag: str, text: str, default: int | list[int], nargs: str | int | None = None
) -> None:
    shown = "the app's own setting" if default == [] else str(default).strip("[]")
    parser.add_argument(
        flag, type=positive, nargs=nargs, default=default, metavar="N", help=f"{text} (default: {shown})"
    )
