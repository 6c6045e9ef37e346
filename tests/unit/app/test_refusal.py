"""A start that refuses does so before Spark, with 65 and the remedy; held, it lets others mend the lake."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.support.checkpoints import write_checkpoint
from tests.unit.lake.test_inventory import open_lake, take

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = open_lake(tmp_path / "lake")
    take(lake, 2)
    (lake.path(lake.state) / "tables.json").write_text('{"names": {"a": "a", "b": "b"}, "messages": {}}')
    write_checkpoint(lake.path(lake.checkpoint), {"t": {"0": 0}}, [{"t": {"0": 1}}, {"t": {"0": 2}}])
    return lake


def app(lake: Lake, *arguments: str, hold: bool = False) -> subprocess.Popen[str]:
    environment = {
        "PROTOLAKE_LAKE__PATH": str(lake.root),
        "PROTOLAKE_KAFKA__BROKERS": "127.0.0.1:1",
        "PROTOLAKE_KAFKA__TOPIC": "t",
        "PROTOLAKE_RUN__HOLD": str(hold).lower(),
        "JAVA_HOME": "/there is no Java here",
    }
    command = [sys.executable, "-m", "spark_app", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


DAMAGES: dict[str, tuple[Callable[[Lake], object], str]] = {
    "checkpoint": (lambda lake: (lake.path(lake.checkpoint) / "metadata").write_text(""), "doctor --repair"),
    "bronze": (lambda lake: shutil.rmtree(lake.path("bronze_events")), "Restore it"),
    "manifests": (lambda lake: (lake.path(lake.manifests) / "000000000002.json").unlink(), "estore _protolake"),
    "id": (lambda lake: (lake.path(lake.state) / "id").write_text(""), "doctor --repair"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_start_refuses_before_spark(lake: Lake, name: str) -> None:
    damage, remedy = DAMAGES[name]
    damage(lake)
    _, said = app(lake, "run").communicate(timeout=120)
    assert said.splitlines()[-1].startswith("protolake: ")
    assert remedy in said.splitlines()[-1]
    assert "Java" not in said
    done = app(lake, "run")
    done.communicate(timeout=120)
    assert done.returncode == ExitCode.LOSS


def test_a_held_app_lets_its_lake_be_mended(lake: Lake) -> None:
    (lake.path(lake.checkpoint) / "metadata").write_text("")
    held = app(lake, "run", hold=True)
    try:
        assert held.stderr is not None
        assert any("held with exit code 65" in line for line in iter(held.stderr.readline, ""))
        mended = app(lake, "doctor", "--repair")
        _, said = mended.communicate(timeout=120)
        assert (mended.returncode, "repaired" in said) == (ExitCode.DONE, True), said
        assert held.poll() is None
    finally:
        held.terminate()
        assert held.wait(120) == ExitCode.DONE
