"""A lake and a topic of its own for each test, on the shared broker and registry."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.campaign.lab import Lab
from scripts.campaign.stage import Stage
from scripts.local.kafka import Kafka
from scripts.local.registry import Registry


@pytest.fixture
def new_stage(tmp_path: Path, kafka: Kafka, registry: Registry, request: pytest.FixtureRequest) -> Callable[..., Stage]:
    topic = re.sub(r"\W+", "_", request.node.name)[:80]
    return lambda **settings: Stage(tmp_path, kafka, registry, topic, **settings)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, registry: Registry) -> Lab:
    """What scenarios of the campaign work in. One for all tests: it numbers the topics."""
    return Lab(tmp_path_factory.mktemp("lab"), kafka, registry)
