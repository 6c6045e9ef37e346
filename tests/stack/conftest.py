"""A lake and a topic of its own for each test, on the shared broker and registry."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from tests.support.app import Stack


@pytest.fixture
def new_stack(tmp_path: Path, kafka: Kafka, registry: Registry, request: pytest.FixtureRequest) -> Callable[..., Stack]:
    topic = re.sub(r"\W+", "_", request.node.name)[:80]
    return lambda **settings: Stack(tmp_path, kafka, registry, topic, **settings)
