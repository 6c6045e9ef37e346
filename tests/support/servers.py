"""Session fixtures: a real broker and a real registry on free ports, with their own temporary state.

Both take seconds to start, so they are shared: a test uses its own topic and subject. A test that kills or stops a
server makes its own: `with Kafka(tmp_path) as kafka`.
"""

from collections.abc import Iterator

import pytest

from scripts.local.kafka import Kafka
from scripts.local.registry import Registry


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with Registry(tmp_path_factory.mktemp("registry")) as server:
        yield server
