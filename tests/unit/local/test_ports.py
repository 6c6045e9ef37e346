"""A taken port is told apart from a free one."""

import socket

import pytest

from scripts.local import ports
from scripts.local.errors import CONFIGURATION, LocalError
from scripts.local.ports import HOST, free_port, free_ports, require_free


def test_a_free_port_is_free() -> None:
    require_free(free_port(), "kafka", "--kafka-port")


def test_a_bound_port_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((HOST, free_port()))
        taken, free = other.getsockname()[1], free_port()
        monkeypatch.setattr(ports, "PORTS", [taken, taken, taken, free])
        assert {free_port() for _ in range(20)} == {free}


def test_several_free_ports_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([5, 5, 7, 5, 6])
    monkeypatch.setattr(ports, "free_port", lambda: next(drawn))
    assert free_ports(2, 7) == [5, 6]


@pytest.mark.parametrize("address", [HOST, "0.0.0.0"], ids=["loopback", "all addresses"])
def test_a_port_in_use_is_named_with_its_option(address: str) -> None:
    with socket.socket() as other:
        other.bind((address, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LocalError, match=rf"port {port} for kafka is in use.*--kafka-port") as caught:
            require_free(port, "kafka", "--kafka-port")
    assert caught.value.code == CONFIGURATION


def test_a_bound_port_nobody_listens_on_yet_is_in_use() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        with pytest.raises(LocalError, match="is in use"):
            require_free(other.getsockname()[1], "registry", "--registry-port")
