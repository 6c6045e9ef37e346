"""Measures tables by SQL: a folded one beside the same table by settings, one over all games, and a board.

Each unit of silver is followed in turn by gold, by a gold table of the settings, and by each statement alone. The same
with ten times the history shows that a folded table reads new rows only. At the end each table is compared with its
statement.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import truediv
from pathlib import Path
from statistics import median

from deltalake import DeltaTable

from scripts.benches import frames, result
from scripts.benches.filed import Filed
from scripts.benches.gold import LONGER, WARMING, WRONG
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.stand import Stand, Workshop, open_workshop
from scripts.benches.targets import BOARD, FOLDED, FOLDED_HISTORY, UNIFIED
from scripts.benches.usage import cpu_seconds
from scripts.local.errors import LocalError
from spark_app.followers.registry import FollowerContext, aggregators, sql_followers
from spark_app.followers.runner import FollowerRunner

STATEMENTS = {
    "folded": "SELECT _table AS game, gamer_id, count(*) AS n, min(event_timestamp) AS first,"
    " max(event_timestamp) AS last FROM silver_all GROUP BY ALL",
    "unified": "SELECT _table AS game, gamer_id, session_count, min_timestamp, max_timestamp FROM gold_all",
    "board": "SELECT gamer_id, sum(session_count) AS n FROM gold_all"
    " GROUP BY gamer_id ORDER BY n DESC, gamer_id LIMIT 100",
}
SETTINGS = {"same": {"aggregates": {"n": {"function": "count"}, "first": {"function": "min"}}}}


@dataclass
class Case:
    """One lake.

    Attributes:
        units: the records of as many units, used in turn.
        runners: what follows a unit, in this order: gold, the gold table of the settings, the statements.
        seconds, cpu: of each of them, by its name.
    """

    name: str
    stand: Stand
    units: list[Filed]
    count: int
    runners: dict[str, FollowerRunner]
    ingested: int = 0
    silver: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def ingest(self) -> None:
        report = self.stand.ingest(self.units[self.ingested % len(self.units)], self.count)
        self.ingested += 1
        self.silver += sum(report.silver.values())

    def interval(self, measured: bool) -> None:
        self.ingest()
        for name, runner in self.runners.items():
            used, began = cpu_seconds(os.getpid()), time.perf_counter()
            runner.call()
            if measured:
                self.seconds.setdefault(name, []).append(time.perf_counter() - began)
                self.cpu.setdefault(name, []).append(cpu_seconds(os.getpid()) - used)

    def verify(self) -> None:
        folder = Path(self.stand.opened.lake.root)
        counted = {
            table: sum(DeltaTable(str(folder / table)).to_pyarrow_table()[column].to_pylist())
            for table, column in {"folded": "n", "unified": "session_count"}.items()
        }
        if wrong := {table: rows for table, rows in counted.items() if rows != self.silver}:
            raise LocalError(f"{self.name}: {wrong} of {self.silver:,} records are counted", WRONG)


def run(options: Options) -> Result:
    """Measure and print."""
    with open_workshop() as workshop:
        cases = list(_prepare(workshop, options))
        for number in range(WARMING + options.rounds):
            for case in cases:
                case.interval(number >= WARMING)
            result.log_progress(f"interval {number + 1} of {WARMING + options.rounds}")
        for case in cases:
            case.verify()
    rows = [
        [case.name, name, median(case.seconds[name]), median(case.cpu[name])] for case in cases for name in case.runners
    ]
    result.show(["case", "table", "s/interval", "CPU s"], rows)
    print(f"medians of {options.rounds} intervals with {options.records:,} new records, {options.tables[0]:,} games")
    found = [{"name": case.name, "silver": case.silver, "seconds": case.seconds, "cpu": case.cpu} for case in cases]
    return Result(list(_figures(cases, options)), {"records": options.records, "cases": found})


def _prepare(workshop: Workshop, options: Options) -> Iterator[Case]:
    """History, and ten times as long a history."""
    tables, gamers = options.tables[0], options.gamers
    events = frames.play(tables, gamers)
    units = [workshop.records(events, options.records) for _ in range(max(1, -(-gamers // options.records)))]
    for history in (options.history, LONGER * options.history):
        result.log_progress(f"history {history:,}: filling silver ...")
        case = _case(workshop, f"history {history:,}", tables, units, options.records)
        while case.silver < history:
            case.ingest()
        for runner in case.runners.values():
            runner.call()
        yield case


def _case(workshop: Workshop, name: str, tables: int, units: list[Filed], count: int) -> Case:
    folder = workshop.folder / "sql"
    folder.mkdir(exist_ok=True)
    for table, query in STATEMENTS.items():
        (folder / f"{table}.sql").write_text(f"CREATE MATERIALIZED VIEW {table} AS {query}")
    settings = workshop.settings
    named = settings.tables.model_copy(update={"sql": (str(folder / "*.sql"),)})
    gold = type(settings.gold).model_validate(settings.gold.model_dump() | {"tables": SETTINGS})
    own = Workshop(
        workshop.spark,
        workshop.folder,
        settings.model_copy(update={"tables": named, "gold": gold}),
        workshop.encoder,
    )
    stand, lock = own.stand(tables), threading.Lock()
    made = aggregators(own.spark, stand.opened, lock)
    given = FollowerContext(
        own.spark, stand.opened, lock, lambda *_: None, lambda: False, lambda *_: None, _refuse, threading.Event()
    )
    followers = {"gold": made[0], "by settings": made[1]} | {one.statement.name: one for one in sql_followers(given)}
    manifests = stand.opened.units.manifests
    runners = {name: FollowerRunner(one, stand.opened.lake, manifests) for name, one in followers.items()}
    return Case(name, stand, units, count, runners)


def _refuse(where: str, why: str) -> None:
    raise LocalError(f"{where}: {why}", WRONG)


def _figures(cases: list[Case], options: Options) -> Iterator[Figure]:
    few, longer = cases
    yield Figure.of(f"seconds of a gold interval, {options.tables[0]:,} games", few.seconds["gold"])
    yield Figure.of(FOLDED.what, map(truediv, few.seconds["folded"], few.seconds["by settings"]), FOLDED)
    yield Figure.of(f"CPU {FOLDED.what}", map(truediv, few.cpu["folded"], few.cpu["by settings"]))
    history = map(truediv, longer.seconds["folded"], few.seconds["folded"])
    yield Figure.of(FOLDED_HISTORY.what, history, FOLDED_HISTORY)
    yield Figure.of(UNIFIED.what, map(truediv, few.seconds["unified"], few.seconds["gold"]), UNIFIED)
    yield Figure.of(BOARD.what, few.seconds["board"], BOARD)
