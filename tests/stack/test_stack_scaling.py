"""The app gives executors back when it has little to do and gets them again for a backlog, and loses no record."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scripts.local.spark_cluster import SparkMaster, SparkWorker
from spark_app.model.errors import ExitCode
from tests.chaos import read_back
from tests.chaos.stage import Stage, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
WORKERS = 4
# A check that takes a core for about 0.2 ms per record, so that few records are a backlog.
DEAR = {"dear": {"check": "md5(repeat(gamer_id, 2000)) <> ''", "action": "warn"}}


def is_behind(status: dict[str, Any]) -> bool:
    """By its lag or, where the producer is slow, by its own judgement."""
    return (status["lag"] or 0) > 20_000 or status["executors"]["wanted"] > 1


@pytest.mark.nightly
def test_executors_follow_the_load(new_stage: Callable[..., Stage], tmp_path: Path) -> None:
    with ExitStack() as servers:
        master = servers.enter_context(SparkMaster(tmp_path / "cluster"))
        workers = [servers.enter_context(SparkWorker(master, number)) for number in range(1, WORKERS + 1)]
        own = {name.removeprefix("PROTOLAKE_"): value for name, value in master.settings().items()}
        scaling = {"SPARK__MAX_EXECUTORS": str(WORKERS), "SPARK__EXECUTOR_CALM_S": "10"}
        small = {"BATCH__SINGLE_TASK_BELOW": "100", "BATCH__MAX_RECORDS": "20000", "GOLD__INTERVAL_S": "600"}
        stage = new_stage(**own, **scaling, **small, EXPECTATIONS=json.dumps(DEAR))
        stage.produce(500, games="uno")
        app = stage.start()

        def wait_for(executors: int, patience_s: float) -> None:
            """The status and the machine agree on the number of executors."""
            wanted = {"now": executors, "wanted": executors}
            wait_until(lambda: stage.status().get("executors") == wanted, f"{wanted}", patience_s)
            wait_until(lambda: sum(len(one.executors()) for one in workers) == executors, "processes", 20)

        try:
            wait_until(lambda: stage.unit() > 0, "a unit", 300)
            wait_for(1, 120)
            producing = threading.Thread(target=stage.produce, args=(150_000,), kwargs={"games": "hearts,rummy,uno"})
            producing.start()
            wait_until(lambda: is_behind(stage.status()), "a backlog", 60)
            backlog = time.monotonic()
            wait_until(lambda: stage.status()["executors"]["now"] > 1, "another executor", 30)
            print(f"another executor came {time.monotonic() - backlog:.1f} s after a backlog")
            producing.join()
            wait_until(lambda: stage.status()["lag"] == 0, "the end of the backlog", 300)
            wait_for(1, 120)
        finally:
            kill(app)
        assert stage.drain() == [ExitCode.DONE]
        assert stage.verify() == {}
        rows = read_back.read(stage.lake, "pipeline_events", ["kind", "details"]).to_pylist()
        told = [json.loads(row["details"])["wanted"] for row in rows if row["kind"] == "executors"]
        assert max(told) > 1
        assert min(told) == 1
