"""Measures the PostgreSQL that serves a lake: seconds from a run of gold until it is visible there, with 7 and with 200
games of two tables each, and the answers of a board to many clients, while a table of many rows is kept current.

The server is a real one, which pgbench asks. Gold is written as its runs leave it, without Spark.
"""

from __future__ import annotations

import glob
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psycopg
import pyarrow as pa
from deltalake import write_deltalake

from scripts.benches import result
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.targets import SERVE_BOARD, SERVE_VISIBLE
from scripts.local.errors import LocalError
from scripts.local.postgres import Postgres, program
from spark_app.followers.sinks.process import SinkProcess
from spark_app.lake.lake import Lake
from spark_app.settings.models import Settings
from spark_app.settings.serving import SERVE

PLAYERS, CHANGED = 1000, 50  # rows of a table of gold, and how many of them a run changes
BOARD = "board"
QUERY = f"SELECT gamer_id, events, games, last_seen FROM {BOARD} ORDER BY events DESC, gamer_id LIMIT 100;"
WAIT_S, SECONDS, WRONG = 600.0, 20, 65


class Served:
    """A lake that a server follows."""

    def __init__(self, folder: Path, server: Postgres):
        gold = {"tables": {"hours": {"key": ["gamer_id"], "aggregates": {"n": {"function": "count"}}}}}
        given = {"lake": {"path": str(folder)}, "serve": {"dsn_file": str(server.dsn_file)}, "gold": gold}
        self.settings = Settings(**given)  # type: ignore[arg-type]
        self.lake = Lake(self.settings.lake_address)
        self.lake.prepare()
        self.lake.identity()
        self._dsn = server.dsn_file.read_text()

    def tables(self, games: int) -> list[str]:
        layout = self.settings.layout
        return [layout.gold_of(f"game{game}", kind) for game in range(games) for kind in ("player_agg", "hours")]

    def write(self, table: str, run: int, rows: int = PLAYERS, changed: int = CHANGED) -> None:
        """As `run` of gold leaves a table: some rows have another value."""
        numbers = range(rows)
        columns = {
            "gamer_id": [f"gamer-{n:07}" for n in numbers],
            "session_count": [run if n < changed else 0 for n in numbers],
            "max_timestamp": pa.array(numbers, pa.timestamp("us", "UTC")),
        }
        write_deltalake(str(self.lake.path(table)), pa.table(columns), mode="overwrite")

    @contextmanager
    def following(self) -> Iterator[None]:
        process = SinkProcess(SERVE, self.settings)
        process.start()
        try:
            yield
        finally:
            process.stop()
            process.join(WAIT_S)

    def await_run(self, tables: list[str], run: int, changed: int = CHANGED) -> None:
        """Until all tables have the rows of this run."""
        parts = " UNION ALL ".join(f"SELECT count(*) AS n FROM {one} WHERE session_count = {run}" for one in tables)
        self._until(lambda ask: ask(f"SELECT min(n) FROM ({parts}) AS found") == changed)

    def _until(self, condition: Callable[[Callable[[str], object]], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        with psycopg.connect(self._dsn, autocommit=True) as connection:

            def ask(statement: str) -> object:
                row = connection.execute(statement.encode()).fetchone()
                return row and row[0]

            while True:
                try:
                    if condition(ask):
                        return
                except psycopg.errors.UndefinedTable:
                    pass
                if time.monotonic() > deadline:
                    raise LocalError(f"the server has not got the rows after {WAIT_S:g} s", WRONG)
                time.sleep(0.02)


def run(options: Options) -> Result:
    """Measure and print."""
    ages: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="protolake-serve-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server's own user goes through it
        for games in options.tables:
            with Postgres(folder / f"server{games}") as server:
                ages[games] = list(_visible(Served(folder / f"lake{games}", server), games, options.rounds))
        with Postgres(folder / "server") as server:
            filled, answers = _board(Served(folder / "lake", server), server, options, folder)
    shown = {f"{games} games, seconds": values for games, values in ages.items()}
    shown[f"board, {options.clients} clients, milliseconds"] = answers
    rows = [[what, *(f"{of(values):.2f}" for of in (min, median, _p95, max))] for what, values in shown.items()]
    result.show(["", "least", "median", "p95", "greatest"], rows)
    print(f"{options.gamers:,} rows of gold were there after {filled:.1f} s: {options.gamers / filled:,.0f} rows/s")
    print(f"{len(answers) / SECONDS:,.0f} answers/s of the board beside a run of that table each two seconds")
    return Result(list(_figures(ages, answers)), {"ages": ages, "filled": filled, "answers": len(answers)})


def _visible(served: Served, games: int, rounds: int) -> Iterator[float]:
    """Seconds from the last commit of a run until all tables have its rows."""
    tables = served.tables(games)
    for table in tables:
        served.write(table, 1)
    with served.following():
        served.await_run(tables, 1)
        for number in range(2, rounds + 2):
            for table in tables:
                served.write(table, number)
            began = time.monotonic()
            served.await_run(tables, number)
            yield time.monotonic() - began
            result.log_progress(f"{games} games, run {number - 1} of {rounds}")


def _board(served: Served, server: Postgres, options: Options, folder: Path) -> tuple[float, list[float]]:
    """(seconds until a table of many rows is there, milliseconds of each answer)"""
    [table, *_] = served.tables(1)
    served.write(table, 1, options.gamers)
    with served.following():
        began = time.monotonic()
        served.await_run([table], 1)
        filled = time.monotonic() - began
        with psycopg.connect(server.dsn_file.read_text(), autocommit=True) as connection:
            what = "gamer_id, session_count AS events, 1 AS games, max_timestamp AS last_seen"
            chosen = f"SELECT {what} FROM {table} ORDER BY max_timestamp DESC LIMIT 100"
            connection.execute(f"CREATE TABLE {BOARD} AS {chosen}".encode())
        (folder / "board.sql").write_text(QUERY + "\n")
        options_of = ["-n", "-c", str(options.clients), "-j", "2", "-T", str(SECONDS), "-l", "-f", "board.sql"]
        with psycopg.connect(server.dsn_file.read_text()) as connection:
            at = connection.info
            where = ["-h", at.host, "-p", str(at.port), "-U", at.user, at.dbname]
            asking = subprocess.Popen(
                [program("pgbench"), *options_of, *where],
                cwd=folder,
                env={"PGPASSWORD": at.password, "PATH": "/usr/bin:/bin"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        number = 1
        while asking.poll() is None:
            number += 1
            served.write(table, number, options.gamers)
            time.sleep(2)
    if asking.returncode:
        raise LocalError("pgbench has failed", WRONG)
    logs = glob.glob(str(folder / "pgbench_log.*"))
    return filled, [float(line.split()[2]) / 1000 for log in logs for line in Path(log).read_text().splitlines()]


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def _figures(ages: dict[int, list[float]], answers: list[float]) -> Iterator[Figure]:
    for games, values in ages.items():
        target = SERVE_VISIBLE.get(games)
        yield Figure.of(target.what if target else f"seconds until gold of {games} games is visible", values, target)
    yield Figure(SERVE_BOARD.what, _p95(answers), SERVE_BOARD)
