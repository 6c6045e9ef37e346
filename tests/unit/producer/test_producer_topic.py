"""The topic of the producer at a broker that does not answer."""

import socket
import time

import pytest

from producer import topic as topics
from producer.errors import UnreachableError
from producer.patience import StopSignal
from producer.settings import Settings
from producer.topic import Topic


def test_a_topic_that_takes_long_to_create_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        topic = Topic(Settings(brokers=f"127.0.0.1:{silent.getsockname()[1]}", wait=1.5), StopSignal())
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=r"was not reachable for 1\.5 s: .*[Tt]imed out"):
            topic._persist(topic._create)
    assert time.monotonic() - began > 1.5
