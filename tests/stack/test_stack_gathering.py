"""Rows of small tables pass between executors: one file per table, and each record once, also if executors die."""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.local.spark_cluster import SparkMaster, SparkWorker, kill_executor
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.lake import Lake
from tests.chaos.stage import Stage, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1200), pytest.mark.nightly]
WORKERS = 4
RECORDS = 450_000  # enough for four tasks
GAMES = ",".join(f"g{number:03d}" for number in range(200))
KILLS = 3


def test_executors_exchange_rows_and_lose_none(new_stage: Callable[..., Stage], tmp_path: Path) -> None:
    with ExitStack() as servers:
        master = servers.enter_context(SparkMaster(tmp_path / "cluster"))
        workers = [servers.enter_context(SparkWorker(master, number)) for number in range(1, WORKERS + 1)]
        own = {name.removeprefix("PROTOLAKE_"): value for name, value in master.settings().items()}
        stage = new_stage(**own, BATCH__MAX_RECORDS=str(RECORDS), LAKE__COMPACT_FILES="3")

        def take(meanwhile: Callable[[], object]) -> None:
            """One large batch."""
            unit = stage.unit()
            stage.produce(RECORDS, games=GAMES)
            app = stage.start()
            try:
                meanwhile()
                wait_until(lambda: stage.unit() > unit, "the batch", 300)
            finally:
                kill(app)

        def kill_one() -> None:
            wait_until(lambda: all(one.executors() for one in workers), "executors", 120)
            time.sleep(random.uniform(0, 8))
            assert kill_executor(random.choice(workers)) == 1

        take(lambda: None)
        first = Manifests(Lake(stage.address)).read(1)
        files = Counter(len(change.adds) for name, change in first.tables.items() if name.startswith("silver_"))
        assert files == {1: 200}
        for _ in range(KILLS):
            take(kill_one)
        assert stage.drain()[-1] == 0
    assert stage.verify() == {}
    assert any(stage.lake.glob("*/merged-*.parquet"))
    assert "workers could not merge files" not in stage.log.read_text()
