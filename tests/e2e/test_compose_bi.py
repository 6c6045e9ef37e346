"""The profile `bi` of the compose file: a PostgreSQL that follows the lake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable

from tests.e2e.compose import ROOT, Stack, missing

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(900)]
ENVIRONMENT = ROOT / "scripts" / "local" / "bi.env"
GOLD = "gold_uno_player_agg"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if reason := missing():
        pytest.skip(f"needs Docker with Compose v2: {reason}")
    options = ["--env-file", str(ROOT / ".env"), "--env-file", str(ENVIRONMENT), "--profile", "bi"]
    found = Stack(tmp_path_factory.mktemp("bi"), *options)
    found.remove()
    found.run("build")
    yield found
    found.remove()


def test_gold_is_in_postgres_and_stays_there(stack: Stack) -> None:
    stack.run("up", "-d", "--wait", "kafka", "registry", "spark", "page", "deliver", "postgres")
    stack.run("up", "-d", "producer", PRODUCER_RECORDS="3000", PRODUCER_RATE="0")
    stack.wait("records", lambda status: status.get("bronze") == 3000)
    _until_equal(stack)
    stack.run("kill", "postgres")
    stack.run("up", "-d", "producer", PRODUCER_RECORDS="2000", PRODUCER_RATE="0", PRODUCER_SEED="5")
    stack.wait("records", lambda status: status.get("bronze") == 5000)
    stack.run("up", "-d", "--wait", "postgres")
    _until_equal(stack)


def _until_equal(stack: Stack) -> None:
    """Until the server has what the lake has."""
    deadline = time.monotonic() + 120
    while (found := _served(stack)) != (due := _gold(stack)) or not due:
        assert time.monotonic() < deadline, (len(found), len(due), stack.run("logs", "deliver"))
        time.sleep(1)


def _served(stack: Stack) -> list[tuple[Any, ...]]:
    password = stack.run("exec", "-T", "postgres", "cat", "/bi/password")
    where: dict[str, Any] = {"host": "127.0.0.1", "port": stack.postgres_port, "dbname": "postgres"}
    with psycopg.connect(**where, user="protolake", password=password, connect_timeout=10) as connection:
        if connection.execute("SELECT to_regclass(%s)", [GOLD]).fetchone() == (None,):
            return []
        found = connection.execute(f"SELECT gamer_id, session_count, max_timestamp FROM {GOLD}").fetchall()
        return sorted(found)


def _gold(stack: Stack) -> list[tuple[Any, ...]]:
    path = stack.lake / GOLD
    if not DeltaTable.is_deltatable(str(path)):
        return []
    rows = DeltaTable(str(path)).to_pyarrow_table(columns=["gamer_id", "session_count", "max_timestamp"])
    return sorted(tuple(row.values()) for row in rows.to_pylist())
