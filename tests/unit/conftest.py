"""What several files of this folder need."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.model.log import log
from spark_app.protobuf.schemas.limits import SchemaLimits
from tests.support.answers import Answers, serve
from tests.tiers import ROOT, TOOLS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent in [ROOT / folder for folder in TOOLS]:
            item.add_marker(pytest.mark.tools)


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Commands set the level of the log, and a test may run one in this process."""
    level = log.level
    yield
    log.level = level


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with an id and without tables. Some files have one of their own."""
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    lake.identity()
    return lake


@pytest.fixture
def only_cpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has much else to do gives protoc its seconds of CPU late, but gives them."""
    monkeypatch.setattr(SchemaLimits, "compile_clock_s", 600.0)


@pytest.fixture
def answers() -> Iterator[Answers]:
    """A registry that knows nothing until it is told."""
    with serve() as answers:
        yield answers
