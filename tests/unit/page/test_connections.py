"""Clients without the token neither keep others out nor use up what the alerts need."""

import http.client
import resource
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import psutil
import pytest

from spark_app.lake.lake import Lake
from spark_app.page.connections import HEAD_S, MOST
from tests.support.pages import Running, page
from tests.support.statuses import write_status
from tests.support.strangers import holding

ALERT = '[alerts.rules.busy]\nwhen = "lag >= 0"\n'


def port_of(running: Running) -> int:
    return int(urlsplit(running.url).port or 0)


def metric(running: Running, name: str) -> float:
    lines = running.get("/metrics", running.token).text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_silent_connections_neither_keep_others_out_nor_stop_the_alerts(lake: Lake) -> None:
    write_status(lake, at=time.time() + 600, lag=0)
    with page(lake, ALERT) as running:
        process = psutil.Process(running.process.pid)
        wait_until(lambda: metric(running, "protolake_alert_firing") == 1)
        with holding(port_of(running), 1_300) as held:
            assert held == 1_300
            assert running.get("/health", running.token).status_code == 200
            write_status(lake, at=time.time() + 600, lag=-1)
            wait_until(lambda: metric(running, "protolake_alert_firing") == 0)  # it is judged meanwhile
            assert process.num_fds() < min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] / 2)
            assert metric(running, "protolake_page_closed_connections_total") >= 1_300 - MOST
    assert running.printed.count("connections without a request are closed") == 1
    assert "could not be judged" not in running.printed


@pytest.mark.parametrize("again", [False, True])
def test_a_head_that_trickles_in_is_cut_off(lake: Lake, again: bool) -> None:
    """Also behind a whole request with the token."""
    write_status(lake, at=time.time() + 600)
    with page(lake) as running, socket.create_connection(("127.0.0.1", port_of(running)), timeout=60) as client:
        if again:
            head = f"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {running.token}\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        client.settimeout(0.5)
        ended = False
        while not ended:
            assert time.monotonic() < began + 60
            try:
                client.sendall(b"G")
                ended = client.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
        assert time.monotonic() - began >= HEAD_S - 1


def test_who_has_no_token_gets_one_answer_per_connection(lake: Lake) -> None:
    with page(lake) as running:
        client = http.client.HTTPConnection("127.0.0.1", port_of(running), timeout=60)
        client.request("GET", "/health")
        answer = client.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (401, "close")
        client.close()
