"""The campaign's proxy and gateway do what they say: a fault that was not made would prove nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException

import pytest

from tests.chaos import gateway as gateways
from tests.chaos import proxy as proxies
from tests.chaos.gateway import Gateway, open_gateway
from tests.chaos.proxy import Proxy
from tests.support.answers import serve

SCHEMA = 'syntax = "proto3"; message Real { string a = 1; }'


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = server.accept()
                threading.Thread(target=_echo, args=(one,), daemon=True).start()

    threading.Thread(target=echo, daemon=True).start()
    with Proxy(server.getsockname()[1]) as started:
        yield started
    server.close()


def _echo(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            one.sendall(data)


def say(proxy: Proxy, timeout: float = 5) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout)
    client.sendall(b"hello")
    return client


def test_it_passes_on_what_it_gets(proxy: Proxy) -> None:
    assert say(proxy).recv(10) == b"hello"


@pytest.mark.parametrize("mode", ["black_hole", "half_open"])
def test_what_was_kept_back_comes_when_it_is_over(proxy: Proxy, mode: proxies.Mode) -> None:
    proxy.mode = mode
    client = say(proxy, 0.3)
    with pytest.raises(TimeoutError):
        client.recv(10)
    proxy.mode = "pass"
    client.settimeout(5)
    assert client.recv(10) == b"hello"


def test_it_refuses_and_resets(proxy: Proxy) -> None:
    client = say(proxy)
    assert client.recv(10) == b"hello"
    proxy.reset()
    with pytest.raises(ConnectionError):
        client.recv(10) or client.sendall(b"x") or client.recv(10) or _raise()
    proxy.mode = "refuse"
    with pytest.raises(ConnectionError):
        say(proxy).recv(10) or _raise()


def _raise() -> None:
    raise ConnectionError("closed")


def test_noise_is_as_long_as_the_answer(proxy: Proxy) -> None:
    proxy.mode = "garbage"
    found = say(proxy).recv(10)
    assert (len(found), found == b"hello") == (5, False)


def test_it_is_as_slow_as_it_is_set(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "SLOW_BYTES_S", 10_000)
    proxy.mode = "slow"
    client = socket.create_connection(("127.0.0.1", proxy.port), 5)
    began = time.monotonic()
    client.sendall(b"x" * 4000)
    got = 0
    while got < 4000:
        got += len(client.recv(4000))
    assert time.monotonic() - began >= 0.75  # both ways share it


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serve() as registry:
        registry.schema(7, SCHEMA)
        with open_gateway(registry.url) as opened:
            yield opened


def ask(gateway: Gateway, path: str = "/schemas/ids/7", timeout: float = 5) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(gateway.url + path, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_registrys_own_answers_are_counted(gateway: Gateway) -> None:
    assert json.loads(ask(gateway)[1])["schema"] == SCHEMA
    assert ask(gateway, "/schemas/ids/8")[0] == 404
    assert gateway.responses == {"/schemas/ids/7": 1}


@pytest.mark.parametrize("mode", ["http_500", "http_429", "garbage", "other_schema"])
def test_wrong_answers(gateway: Gateway, mode: gateways.Mode) -> None:
    gateway.mode = mode
    status, body = ask(gateway)
    assert status == int(mode.removeprefix("http_")) if mode.startswith("http_") else status == 200
    assert SCHEMA.encode() not in body
    assert (b"Other" in body) == (mode == "other_schema")
    assert not gateway.responses


@pytest.mark.parametrize("mode", ["refused", "black_hole", "truncated", "late"])
def test_no_answers(gateway: Gateway, mode: gateways.Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "LATE_S", 1.0)
    gateway.mode = mode
    with pytest.raises((OSError, ValueError, HTTPException)):
        json.loads(ask(gateway, timeout=0.3)[1])
    gateway.mode = "pass"
    assert json.loads(ask(gateway)[1])["schema"] == SCHEMA
