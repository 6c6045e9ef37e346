"""The app on a real Spark cluster of a master and two workers: each record once whatever dies, and only it gets in."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from scripts.campaign.stage import Stage, kill, wait_until
from scripts.local.kafka import Kafka
from scripts.local.objectstore import ObjectStore
from scripts.local.registry import Registry
from scripts.local.spark_cluster import SparkMaster, SparkWorker, kill_executor
from spark_app.model.errors import ExitCode

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
NewStage = Callable[..., Stage]
GAMES = "euchre,hearts,rummy,uno"
Cluster = tuple[SparkMaster, SparkWorker, SparkWorker]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    master = SparkMaster(tmp_path_factory.mktemp("cluster"))
    with master, SparkWorker(master, 1) as one, SparkWorker(master, 2) as two:
        yield master, one, two


def settings_of(cluster: Cluster, **more: str) -> dict[str, str]:
    found = {name.removeprefix("PROTOLAKE_"): value for name, value in cluster[0].settings().items()}
    return found | {"BATCH__SINGLE_TASK_BELOW": "100", "BATCH__MAX_RECORDS": "2000"} | more


def python_with(folder: Path, path: str) -> str:
    """A Python that has this PYTHONPATH alone."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_executors_with_the_wheel_ingest_into_a_bucket(
    tmp_path: Path, kafka: Kafka, registry: Registry, seaweedfs: ObjectStore, cluster: Cluster, installed: Path
) -> None:
    python = python_with(tmp_path, str(installed))
    own = settings_of(cluster, SPARK__EXECUTOR_PYTHON=python)
    stage = Stage(tmp_path, kafka, registry, "on_a_cluster", seaweedfs, **own)
    stage.produce(6_000, games=GAMES)
    app = stage.start("--available-now")
    try:
        opened = _listening(cluster)
        assert app.wait(300) == 0, stage.log.read_text()
    finally:
        kill(app)
    assert stage.verify() == {}
    ran = [path.read_text() for path in cluster[0].state.glob("worker-*/app-*/*/stderr")]
    assert sum("Finished task" in text for text in ran) == 2  # both workers
    _check_secret(cluster, stage, ran)
    assert opened == {cluster[0].port}
    rebuilt = stage.command("rebuild", "uno")
    assert (rebuilt.returncode, stage.verify()) == (0, {}), rebuilt.stderr


def _listening(cluster: Cluster) -> set[int]:
    """The fixed ports of the master; each of its pages refuses a client without its key."""
    pages = re.findall(r"MasterWebUI.* started at (http://\S+)", cluster[0].log.read_text())
    for page in pages:
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(page, timeout=10)
    java = psutil.Process(cluster[0].pid)
    found = {one.laddr.port for one in java.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    hosts = {one.laddr.ip for one in java.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    assert all(host.removeprefix("::ffff:") == "127.0.0.1" for host in hosts)
    return found - {int(page.rsplit(":", 1)[1].strip("/")) for page in pages}


def _check_secret(cluster: Cluster, stage: Stage, executors: list[str]) -> None:
    """It is nowhere where others may read it."""
    secret = cluster[0].secret_file.read_text()
    servers = [server.log.read_text() for server in cluster]
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [text for text in [*servers, *executors, *commands, stage.log.read_text()] if secret in text]


def test_no_record_is_lost_or_doubled_when_parts_of_the_cluster_die(new_stage: NewStage, cluster: Cluster) -> None:
    master, one, two = cluster
    stage = new_stage(**settings_of(cluster, BATCH__MAX_RECORDS="300", BATCH__INTERVAL_S="0.2"))
    stage.produce(3_000, games=GAMES)
    app = stage.start()

    def more() -> None:
        """The app goes on."""
        unit = stage.unit()
        stage.produce(600, games=GAMES)
        wait_until(lambda: stage.unit() > unit, "another unit", 180)

    try:
        wait_until(lambda: stage.unit() > 1, "units", 180)
        assert kill_executor(one) == 1
        more()
        two.kill()
        more()
        two.start()
        master.kill()
        more()
        master.start()
        more()
        assert app.poll() in (None, ExitCode.UNREACHABLE)
    finally:
        kill(app)
    assert stage.drain()[-1] == 0
    assert stage.verify() == {}


@pytest.mark.parametrize("package", ["other", "none"])
def test_a_worker_that_cannot_read_records_alike_is_refused(
    new_stage: NewStage, cluster: Cluster, installed: Path, tmp_path: Path, package: str
) -> None:
    other = tmp_path / "other"
    if package == "other":
        subprocess.run(["cp", "-r", str(installed), str(other)], check=True)
        (other / "spark_app" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    stage = new_stage(**settings_of(cluster, SPARK__EXECUTOR_PYTHON=python_with(tmp_path, str(other))))
    stage.produce(100, games="uno")
    assert _code_of(stage.start("--available-now")) == ExitCode.CONFIGURATION
    host = re.escape(socket.gethostname())
    said = {
        "other": rf"worker {host} cannot be used: it has protolake 0.0.1 instead of",
        "none": "cannot load Protolake",
    }
    assert re.search(said[package], stage.log.read_text())
    assert stage.unit() == 0


def test_a_wrong_secret_and_a_master_that_is_down_are_told(
    new_stage: NewStage, cluster: Cluster, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("x" * 32)
    stage = new_stage(**settings_of(cluster, SPARK__AUTH_SECRET_FILE=str(secret)))
    stage.produce(100, games="uno")
    began = time.monotonic()
    assert _code_of(stage.start("--available-now")) == ExitCode.CONFIGURATION
    assert "does not take this app" in stage.log.read_text()
    assert time.monotonic() - began < 150
    stage = new_stage(**settings_of(cluster, SPARK__MASTER="spark://127.0.0.1:9", RUN__CONNECT_TIMEOUT_S="3"))
    assert _code_of(stage.start("--available-now")) == ExitCode.UNREACHABLE
    assert "master spark://127.0.0.1:9" in stage.log.read_text()


def test_a_cluster_without_executors_is_told_and_left(new_stage: NewStage, tmp_path: Path) -> None:
    with SparkMaster(tmp_path / "alone") as master:
        own = {name.removeprefix("PROTOLAKE_"): value for name, value in master.settings().items()}
        stage = new_stage(**own, RUN__CONNECT_TIMEOUT_S="25")
        stage.produce(100, games="uno")
        assert _code_of(stage.start()) == ExitCode.UNREACHABLE
        assert "gives the app no executor" in stage.log.read_text()
        app = stage.start(RUN__CONNECT_TIMEOUT_S="600")
        try:
            wait_until(lambda: "gives the app no executor" in str(stage.status().get("reason")), "a reason", 120)
            with SparkWorker(master):
                wait_until(lambda: stage.unit() > 0, "a unit", 180)
            app.terminate()
            assert app.wait(60) == 0
        finally:
            kill(app)


def _code_of(app: subprocess.Popen[bytes]) -> int:
    try:
        return app.wait(180)
    finally:
        kill(app)


def test_a_secret_that_others_may_read_is_refused(new_stage: NewStage, cluster: Cluster, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    os.chmod(secret, 0o644)
    stage = new_stage(**settings_of(cluster, SPARK__AUTH_SECRET_FILE=str(secret)))
    assert stage.command("run", "--available-now").returncode == ExitCode.CONFIGURATION
