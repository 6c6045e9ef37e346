"""The profile `cluster` of the compose file: executors in containers of their own, the lake in a bucket."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.compose import ROOT, Stack, missing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
ENVIRONMENT = ROOT / "scripts" / "local" / "cluster.env"
RECORDS = 5_000
KILL = """
import os
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        if b"deploy.worker.Worker" in open(f"/proc/{name}/cmdline", "rb").read():
            os.kill(int(name), 9)
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if reason := missing():
        pytest.skip(f"needs Docker with Compose v2: {reason}")
    options = ["--env-file", str(ROOT / ".env"), "--env-file", str(ENVIRONMENT), "--profile", "cluster"]
    found = Stack(tmp_path_factory.mktemp("cluster"), *options)
    found.remove()
    found.run("build")
    yield found
    found.remove()


@pytest.mark.nightly
def test_a_cluster_takes_each_record_once_although_a_worker_dies(stack: Stack) -> None:
    stack.run("up", "-d", "--wait", "kafka", "registry", "spark", "page", "worker")
    _produce(stack, RECORDS)
    _wait(stack, lambda status: status["bronze"] == RECORDS)
    stack.run("exec", "-T", "--index", "1", "worker", "python", "-c", KILL)
    _produce(stack, 2 * RECORDS)
    _wait(stack, lambda status: status["bronze"] == 2 * RECORDS)
    assert sum(worker["RestartCount"] for worker in stack.containers("worker")) >= 1
    audit = json.loads(stack.run("exec", "-T", "spark", "protolake", "audit", "--json"))
    assert (audit["clean"], audit["records"]) == (True, 2 * RECORDS)
    assert not list(stack.lake.glob("silver_*"))  # they are in the bucket
    told = stack.run("exec", "-T", "page", "sh", "-c", "protolake status || true")
    assert f"page        {stack.page}/ (token: " in told


def _produce(stack: Stack, seed: int) -> None:
    stack.run("up", "-d", "producer", PRODUCER_RECORDS=str(RECORDS), PRODUCER_RATE="0", PRODUCER_SEED=str(seed))


def _wait(stack: Stack, ready: Callable[[dict], bool], seconds: float = 240) -> None:
    """Until the status in the bucket is as wanted."""
    deadline = time.monotonic() + seconds
    while True:
        status = json.loads(stack.run("exec", "-T", "spark", "sh", "-c", "protolake status --json || true") or "{}")
        if "bronze" in status and ready(status):
            return
        assert time.monotonic() < deadline, f"{status}\n{stack.run('logs')}"
        time.sleep(1)
