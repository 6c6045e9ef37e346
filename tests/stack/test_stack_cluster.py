"""The app on a real Spark cluster of a master and two workers: each record once whatever dies, and only it gets in."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from scripts.local.kafka import Kafka
from scripts.local.objectstore import ObjectStore
from scripts.local.registry import Registry
from scripts.local.spark_cluster import SparkMaster, SparkWorker, kill_executor
from spark_app.model.errors import ExitCode
from tests.chaos.stage import Stage, kill, wait_until
from tests.support.processes import command_of, listened

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
    app = stage.start()
    try:
        wait_until(lambda: stage.unit() > 0, "a unit", 300)
        _check_others(cluster, app.pid)
    finally:
        kill(app)
    assert stage.drain()[-1] == 0
    assert stage.verify() == {}
    ran = {path: path.read_text() for path in cluster[0].state.glob("worker-*/app-*/*/stderr")}
    assert {path.parts[-4] for path, text in ran.items() if "Finished task" in text} == {"worker-1", "worker-2"}
    _check_secret(cluster, stage, list(ran.values()))
    rebuilt = stage.command("rebuild", "uno")
    assert (rebuilt.returncode, stage.verify()) == (0, {}), rebuilt.stderr


def _check_others(cluster: Cluster, app: int) -> None:
    """While all of it runs: other users see no secret on a command line, and reach nothing that serves them."""
    running = [one for root in (app, *(server.pid or 0 for server in cluster)) for one in _family(root)]
    commands = [command_of(one) for one in running]
    parts = ("SparkSubmit", "deploy.master.Master", "deploy.worker.Worker", "CoarseGrainedExecutorBackend")
    assert [part for part in parts if not any(part in command for command in commands)] == []
    secret = cluster[0].secret_file.read_text()
    assert not [command for command in commands if secret in command or "secretKey" in command]
    listening = [place for one in running for place in listened(one)]
    assert {place.ip.removeprefix("::ffff:") for place in listening} == {"127.0.0.1"}
    assert 6066 not in {place.port for place in listening}
    logs = "".join(server.log.read_text() for server in cluster)
    pages = re.findall(r"Bound \w+WebUI to \S+ and started at (http://\S+)", logs)
    assert len(pages) == 3
    for page in pages:
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(page, timeout=10)


def _family(root: int) -> list[psutil.Process]:
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def _check_secret(cluster: Cluster, stage: Stage, executors: list[str]) -> None:
    """It is in no log."""
    secret = cluster[0].secret_file.read_text()
    servers = [server.log.read_text() for server in cluster]
    assert not [text for text in [*servers, *executors, stage.log.read_text()] if secret in text]


@pytest.mark.nightly
def test_files_that_executors_make_have_the_modes_of_the_settings(new_stage: NewStage, cluster: Cluster) -> None:
    stage = new_stage(**settings_of(cluster, LAKE__UMASK="022"))
    stage.produce(2_000, games=GAMES)
    assert stage.drain() == [ExitCode.DONE]
    paths = [path for table in ("bronze_events", "silver_uno_events") for path in (stage.lake / table).rglob("*")]
    assert len([path for path in paths if path.suffix == ".parquet"]) > 1
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {"0o755"}


@pytest.mark.nightly
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


@pytest.mark.nightly
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
    said = {"other": "has other versions than the app: protolake 0.0.1 instead of", "none": "No module named"}
    text = stage.log.read_text()
    assert "a worker on 127.0.0.1 cannot be used" in text
    assert said[package] in text
    assert stage.unit() == 0


@pytest.mark.nightly
def test_a_wrong_secret_and_a_master_that_is_down_are_reported(
    new_stage: NewStage, cluster: Cluster, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("x" * 32)
    stage = new_stage(**settings_of(cluster, SPARK__AUTH_SECRET_FILE=str(secret)))
    stage.produce(100, games="uno")
    assert _code_of(stage.start("--available-now")) == ExitCode.UNREACHABLE
    assert "does not accept this app" in stage.log.read_text()
    stage = new_stage(**settings_of(cluster, SPARK__MASTER="spark://127.0.0.1:9", RUN__CONNECT_TIMEOUT_S="3"))
    assert _code_of(stage.start("--available-now")) == ExitCode.UNREACHABLE
    assert "master spark://127.0.0.1:9" in stage.log.read_text()


@pytest.mark.nightly
def test_a_cluster_without_executors_is_reported_and_left(new_stage: NewStage, tmp_path: Path) -> None:
    with SparkMaster(tmp_path / "alone") as master:
        own = {name.removeprefix("PROTOLAKE_"): value for name, value in master.settings().items()}
        stage = new_stage(**own, RUN__CONNECT_TIMEOUT_S="25")
        stage.produce(100, games="uno")
        assert _code_of(stage.start()) == ExitCode.UNREACHABLE
        assert "gives the app no executor" in stage.log.read_text()
        app = stage.start(RUN__CONNECT_TIMEOUT_S="60")
        try:
            with SparkWorker(master):
                wait_until(lambda: stage.unit() > 0, "a unit", 180)
            stage.produce(100, games="uno")  # now all executors are gone, and a batch waits for one
            wait_until(lambda: "gives the app no executor" in str(stage.status().get("reason")), "a reason", 120)
            assert app.wait(120) == ExitCode.UNREACHABLE
        finally:
            kill(app)


def _code_of(app: subprocess.Popen[bytes]) -> int:
    try:
        return app.wait(600)
    finally:
        kill(app)


@pytest.mark.nightly
def test_a_secret_that_others_may_read_is_refused(new_stage: NewStage, cluster: Cluster, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    os.chmod(secret, 0o644)
    stage = new_stage(**settings_of(cluster, SPARK__AUTH_SECRET_FILE=str(secret)))
    assert stage.command("run", "--available-now").returncode == ExitCode.CONFIGURATION
