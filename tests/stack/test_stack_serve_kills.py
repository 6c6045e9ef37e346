"""The PostgreSQL that serves the lake of the real app has what gold has, whatever was killed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.chaos.stage import Stage, kill, wait_until
from tests.support.postgres import Database, PostgresServer
from tests.tiers import ROOT

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.timeout(1500)]
KILLS = 30
BOARDS = ("leader_board", "player_hours", "unified_gold")


def is_equal(database: Database, stage: Stage) -> bool:
    """Whether the server has the rows of gold, and of the tables by SQL."""
    try:
        return all(database.rows(name) and rows == sorted(database.rows(name), key=repr) for name, rows in due(stage))
    except (psycopg.Error, OSError, DeltaError):  # it is not there yet, or a file was replaced meanwhile
        return False


def due(stage: Stage) -> Iterator[tuple[str, list[Any]]]:
    """(table, its rows in the lake)"""
    for path in sorted(stage.lake.glob("gold_*")) + [stage.lake / name for name in BOARDS]:
        rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
        yield path.name, sorted((tuple(row.values()) for row in rows), key=repr)


def end(server: PostgresServer) -> None:
    """As a crash, with the processes of its clients, which hold its memory for a moment."""
    left = psutil.Process(server.pid).children(recursive=True)
    server.kill()
    psutil.wait_procs(left, timeout=30)


def test_postgres_equals_gold_after_kills_of_everything(
    new_stage: Callable[..., Stage], server: PostgresServer, tmp_path: Path
) -> None:
    draw, database = random.Random(20261201), Database(server, "games", tmp_path)
    files = [str(ROOT / "docs/examples/sql" / f"{name}.sql") for name in BOARDS]
    stage = new_stage(
        GOLD__INTERVAL_S="0.5",
        SERVE__DSN_FILE=str(database.dsn),
        SERVE__SCHEMA_NAME=database.schema,
        SERVE__SILVER_DAYS="7",
        TABLES__SQL=json.dumps(files),
    )
    stage.produce(500)
    app, deliver, sent = stage.start(), stage.spawn("deliver"), 500
    try:
        wait_until(lambda: is_equal(database, stage), "the first tables")
        for number in range(KILLS):
            what = draw.choice(["app", "deliver", "deliver", "server"])
            stage.produce(100)
            sent += 100
            if what == "app":
                kill(app)
                app = stage.start()
            elif what == "deliver":
                kill(deliver)
                deliver = stage.spawn("deliver")
            else:
                end(server)
                if number % 2:  # for some time nothing answers
                    stage.produce(100)
                    sent += 100
                server.start()
        wait_until(lambda: stage.status().get("bronze") == sent and not stage.status()["lag"], "all records")
        wait_until(lambda: is_equal(database, stage), "what gold has")
        silver = "silver_uno_events"
        rows = DeltaTable(str(stage.lake / silver)).to_pyarrow_table(columns=["_partition", "_offset"])
        wanted = sorted(tuple(row.values()) for row in rows.to_pylist())
        wait_until(lambda: database.rows(silver, "_partition, _offset", "1, 2") == wanted, "what silver has")
        # All rows of a game are decoded anew, and then its gold is.
        assert stage.command("rebuild", "uno", "--renew", "--yes").returncode == 0
        stage.produce(100)
        wait_until(lambda: stage.status().get("bronze") == sent + 100, "all records")
        wait_until(lambda: is_equal(database, stage), "what gold has, again")
        wait_until(lambda: len(database.rows(silver, "1")) >= len(wanted), "what silver has, again")
        landed = DeltaTable(str(stage.lake / silver)).to_pyarrow_table(columns=["_offset", "_partition", "_landed_at"])
        wanted = sorted(tuple(row.values()) for row in landed.to_pylist())
        wait_until(
            lambda: database.rows(silver, "_offset, _partition, _landed_at", "1, 2") == wanted, "the renewed rows"
        )
    finally:
        kill(deliver)
        kill(app)
    assert stage.drain()[-1] == 0
    assert stage.verify() == {}
