"""All tests here need a browser."""

from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from tests.support.browsers import browser, opened

__all__ = ["browser", "opened"]
FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    made.prepare()
    return made
