"""A lake and a topic of its own for each test, on the shared broker and registry; the wheel of the app."""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT
from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from tests.chaos.lab import Lab
from tests.chaos.stage import Stage
from tests.support.postgres import server

__all__ = ["server"]
FIRST = "test_stack_golden_lake"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The test of FIRST takes minutes: begun last, it would go on alone."""
    items.sort(key=lambda item: FIRST not in item.nodeid)


@pytest.fixture
def new_stage(tmp_path: Path, kafka: Kafka, registry: Registry, request: pytest.FixtureRequest) -> Callable[..., Stage]:
    topic = re.sub(r"\W+", "_", request.node.name)[:80]
    return lambda **settings: Stage(tmp_path, kafka, registry, topic, **settings)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, registry: Registry) -> Lab:
    """What scenarios of the campaign work in. One for all tests: it numbers the topics."""
    return Lab(tmp_path_factory.mktemp("lab"), kafka, registry)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "spark_app", source / "spark_app", ignore=shutil.ignore_patterns("__pycache__"))
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(source)], check=True)
    [wheel] = folder.glob("protolake-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"
