"""`protolake page`: the process, its token, who gets in, and what it says of an app that is up or down."""

import contextlib
import ctypes
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ExitCode, UnreachableError
from spark_app.page.files import PageFiles
from spark_app.page.guard import Guard
from spark_app.page.server import listen
from spark_app.settings.watching import Page
from tests.support.pages import page
from tests.support.statuses import write_status
from tests.support.terminals import printed

ROOT = Path(__file__).parents[3]
TOKEN = "t" * 43


def test_a_page_serves_metrics_and_health_and_prints_no_token(lake: Lake) -> None:
    write_status(lake, at=time.time())
    with page(lake) as first:
        scraped = first.get("/metrics", first.token)
        assert scraped.status_code == 200
        assert "protolake_up 1.0" in scraped.text
        assert f'protolake_info{{lake="{lake.identity()}"' in scraped.text
        assert scraped.headers["content-type"].startswith("text/plain")
        asked = first.get("/metrics", first.token, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert asked.headers["content-type"].startswith("application/openmetrics-text")
        assert asked.text.endswith("# EOF\n")
        for accept in ("application/openmetrics-text; version=x", ";;;", "text/plain; version=0.0.4; escaping=?"):
            odd = first.get("/metrics", first.token, headers={"Accept": accept})
            assert (odd.status_code, "protolake_up 1.0" in odd.text) == (200, True)
        assert first.get(f"/metrics?token={first.token}").status_code == 200
        health = first.get("/health", first.token)
        assert (health.status_code, health.json()["state"]) == (200, "running")
        write_status(lake, at=time.time(), state="held", reason="records were lost")
        health = first.get("/health", first.token)
        assert (health.status_code, health.json()["problem"]) == (503, "held: records were lost")
        assert first.get("/no/such", first.token).status_code == 404
        assert rss(first.process.pid) < 120 << 20
    assert first.process.returncode == 0
    assert first.token not in first.printed
    assert f"token_file={lake.root}/_protolake/page/token" in first.printed
    with page(lake) as second:
        assert second.get("/metrics", first.token).status_code == 200


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_terminal_gets_the_token(lake: Lake) -> None:
    command = [sys.executable, "-m", "spark_app", "page", "--lake", str(lake.root)]
    said = printed([*command, "--settings", str(free_port_of_a_page(lake))], ROOT, until="the page listens")
    assert f"/?token={PageFiles(lake).token()}\n" in said


def free_port_of_a_page(lake: Lake) -> Path:
    settings = lake.root.parent / "page.toml"
    settings.write_text("[page]\nport = 0\n")
    return settings


def test_a_printed_line_is_whole_while_others_log() -> None:
    code = """
import sys, threading
from spark_app.model.log import log, print_line
def say():
    for _ in range(300):
        log.warning("an alert fires")
other = threading.Thread(target=say)
other.start()
for _ in range(300):
    print_line("http://127.0.0.1:1/?token=secret", sys.stdout)
other.join()
"""
    lines = printed([sys.executable, "-u", "-c", code], ROOT).splitlines()
    assert lines.count("http://127.0.0.1:1/?token=secret") == 300
    assert sum(line.startswith("time=") for line in lines) == len(lines) - 300 == 300


def test_a_stop_ends_the_page_at_once(lake: Lake) -> None:
    with page(lake) as running:
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(120) == 0
        assert time.monotonic() - began < 30


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names a thread for a signal")
def test_a_stop_that_another_thread_gets_ends_the_page_too(lake: Lake) -> None:
    with page(lake) as running:
        assert running.get("/health", running.token).status_code == 503
        pid = running.process.pid
        other = max(map(int, os.listdir(f"/proc/{pid}/task")))
        assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0
        assert running.process.wait(120) == 0


def test_a_thread_that_fails_ends_the_page_as_a_bug() -> None:
    code = """
import threading, time
from spark_app.page.server import end_with
threading.excepthook = end_with
threading.Thread(target=lambda: 1 / 0).start()
time.sleep(30)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == ExitCode.BUG
    assert "event=bug type=ZeroDivisionError" in done.stderr
    assert "Traceback" in done.stderr


def test_a_page_whose_lake_was_moved_away_ends_and_makes_no_new_one(lake: Lake) -> None:
    with page(lake) as running:
        lake.root.rename(lake.root.parent / "aside")
        assert running.process.wait(120) == ExitCode.UNREACHABLE
    assert "was moved away or replaced: start the page again" in running.printed
    assert not lake.root.exists()


def test_one_page_serves_a_lake(lake: Lake) -> None:
    with page(lake), pytest.raises(UnreachableError, match="another `protolake page` serves the lake"):
        PageFiles(lake).acquire()


def test_a_port_in_use_and_a_lake_that_is_not_there_are_wrong_settings(lake: Lake, tmp_path: Path) -> None:
    with contextlib.closing(listen(Page(port=0))) as held:
        port = held.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"^page.port: cannot listen on 127.0.0.1:{port} .*port 0 is"):
            listen(Page(port=port))
    with pytest.raises(ConfigurationError, match=r"^page.host: no.such.host.invalid is no address"):
        listen(Page(host="no.such.host.invalid"))
    command = [sys.executable, "-m", "spark_app", "page", "--lake", str(tmp_path / "none")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (ExitCode.CONFIGURATION, "")
    assert "no lake at" in done.stderr
    assert not (tmp_path / "none").exists()


def test_the_token_is_closed_to_others_whatever_the_umask_is(lake: Lake) -> None:
    before = os.umask(0)
    try:
        files = PageFiles(lake)
        files.acquire()
        token = files.token()
    finally:
        os.umask(before)
    assert files.token() == token
    mode = Path(files.token_file).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    Path(files.token_file).chmod(0o640)
    with pytest.raises(ConfigurationError, match="is open to other users; run chmod 600"):
        files.token()
    Path(files.token_file).chmod(0o600)
    Path(files.token_file).write_text("short\n")
    with pytest.raises(ConfigurationError, match="has no token: remove it"):
        files.token()


def test_the_page_changes_nothing_of_the_lake_but_its_folder(lake: Lake) -> None:
    write_status(lake, at=time.time())
    before = snapshot(lake)
    with page(lake) as running:
        assert running.get("/metrics", running.token).status_code == 200
    assert snapshot(lake) == before


def snapshot(lake: Lake) -> dict[str, bytes]:
    files = (path for path in lake.root.rglob("*") if path.is_file() and "page" not in path.parts)
    return {str(path): path.read_bytes() for path in files}


def ask(headers: list[tuple[bytes, bytes]], query: bytes = b"", names: tuple[str, ...] = ()) -> int:
    """The status of an answer of a guarded application."""
    import anyio

    app: ASGIApp = Guard(Starlette(routes=[Route("/", lambda request: PlainTextResponse("in"))]), TOKEN, names)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query, "headers": headers}
    anyio.run(app, scope, receive, send)
    return int(sent[0]["status"])


BEARER = (b"authorization", f"Bearer {TOKEN}".encode())
HOST = (b"host", b"127.0.0.1:8085")


@pytest.mark.parametrize(
    ("header", "query", "status"),
    [
        (BEARER, b"", 200),
        ((b"authorization", f"bearer  {TOKEN}".encode()), b"", 200),
        (None, f"token={TOKEN}".encode(), 200),
        (None, f"a=1&token={TOKEN}".encode(), 200),
        (None, b"", 401),
        (None, b"token=", 401),
        (None, f"token={TOKEN[:-1]}".encode(), 401),
        (None, f"token={TOKEN}t".encode(), 401),
        (None, b"token=%ff%fe", 401),
        (None, b"token=\xff", 401),
        (None, b"&".join([b"x=1"] * 50), 401),
        ((b"authorization", b"Bearer " + TOKEN.encode()[:-1]), b"", 401),
        ((b"authorization", b"Bearer \xff\xe9"), b"", 401),
        ((b"authorization", f"Basic {TOKEN}".encode()), b"", 401),
        ((b"authorization", b"Bearer wrong"), f"token={TOKEN}".encode(), 401),
    ],
)
def test_nobody_gets_in_without_the_token(header: tuple[bytes, bytes] | None, query: bytes, status: int) -> None:
    assert ask([HOST, *([header] if header else [])], query) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", 200),
        (b"LOCALHOST.:99", 200),
        (b"127.0.0.1", 200),
        (b"10.2.3.4:8085", 200),
        (b"[::1]:8085", 200),
        (b"[::1]", 200),
        (b"metrics.lan:8085", 200),
        (b"evil.example", 403),
        (b"127.0.0.1.evil.example:8085", 403),
        (b"localhost.evil.example", 403),
        (b"localhost:8085:1", 403),
        (b"localhost:x", 403),
        (b"", 403),
        (None, 403),
    ],
)
def test_a_name_that_is_not_the_page_s_own_is_refused(host: bytes | None, status: int) -> None:
    headers = [BEARER, *([(b"host", host)] if host is not None else [])]
    assert ask(headers, names=("Metrics.lan",)) == status


def test_two_host_names_are_refused() -> None:
    assert ask([BEARER, HOST, (b"host", b"evil.example")]) == 403


def test_a_health_without_a_status_names_the_problem(lake: Lake) -> None:
    lake.storage.replace(lake.status, json.dumps({"state": 3}).encode())
    with page(lake) as running:
        health = running.get("/health", running.token)
        assert health.status_code == 503
        assert health.json()["state"] == "dead"
        assert health.json()["problem"]
