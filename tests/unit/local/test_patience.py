"""How long a start is waited for."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.local import patience as patiences
from scripts.local.errors import UNREACHABLE, LocalError
from scripts.local.patience import CPU_S, KILLS, Patience, Signs, last_error
from scripts.local.ports import HOST, free_port
from scripts.local.program import Exit
from scripts.local.server import Server

QUARKUS = """\
2026-11-29 10:00:00 WARN  [io.quarkus.config] (main) The config property quarkus.log is deprecated
2026-11-29 10:00:01 ERROR [io.quarkus] (main) Failed to start application
java.lang.RuntimeException: Failed to start quarkus
\tat io.quarkus.runner.ApplicationImpl.doStart(Unknown Source)
Caused by: java.net.BindException: Address already in use
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
2026-11-29 10:00:02 INFO  [io.quarkus] (main) stopped
"""
ERROR = "2026-11-29 10:00:01 ERROR [io.quarkus] (main) Failed to start application: "
ERROR += "Caused by: java.net.BindException: Address already in use"


class Odd(Server):
    """A server that never answers, with a process of its own kind."""

    name, option, code = "odd", "--odd-port", ""

    def prepare(self) -> None:
        """It needs nothing."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]

    def is_ready(self) -> bool:
        return False


def refusal(start: Callable[[], object]) -> str:
    with pytest.raises(LocalError) as refused:
        start()
    assert refused.value.code == UNREACHABLE
    return str(refused.value)


@pytest.mark.parametrize(
    ("later", "goes_on"),
    [
        (Signs(CPU_S, 0, False), True),
        (Signs(CPU_S / 2, 0, False), False),
        (Signs(0.0, 1, False), True),
        (Signs(0.0, 0, True), True),
        (Signs(0.0, 0, False), False),
    ],
)
def test_a_start_is_waited_for_while_it_gets_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: Signs, goes_on: bool
) -> None:
    monkeypatch.setattr(patiences, "LOOK_S", 0.0)
    log, found = tmp_path / "it.log", iter([Signs(0.0, 0, False), later, later])
    log.write_text(QUARKUS)
    patience = Patience("it", log, lambda: next(found), still_s=0.0)
    if not goes_on:
        said = refusal(patience.check)
        assert said == f"it does not start: it made no progress for 0 s; {ERROR} (log: {log})"
        return
    patience.check()
    assert "no progress" in refusal(patience.check)  # the same signs again are none


def test_a_start_that_gets_on_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patiences, "LOOK_S", 0.0)
    monkeypatch.setattr(patiences, "LONGEST_S", 0.0)
    numbers: Iterator[int] = iter(range(9))
    patience = Patience("it", tmp_path / "it.log", lambda: Signs(0.0, next(numbers), False))
    said = refusal(patience.check)
    assert "it was not ready within 0 s; its log names no error" in said


def test_a_start_survives_kills_but_no_end_of_its_own(tmp_path: Path) -> None:
    patience = Patience("it", tmp_path / "it.log", lambda: Signs(0.0, 0, False))
    killed, failed = Exit(0.0, -signal.SIGKILL, 1.0, False), Exit(0.0, 1, 1.0, False)
    patience.check([killed] * KILLS)
    assert "it ended with exit code -9" in refusal(lambda: patience.check([killed] * (KILLS + 1)))
    assert "it ended with exit code 1" in refusal(lambda: patience.check([failed]))


def test_signs_are_those_of_all_that_a_program_has_started(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process, socket.socket() as server:
        server.bind((HOST, 0))
        port = server.getsockname()[1]
        try:
            assert not Signs.of([process.pid], log, port).listens
            deadline = time.monotonic() + 60
            while Signs.of([process.pid], log).cpu_s < 3 * CPU_S:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            server.listen()
            log.write_text("a line")
            found = Signs.of([process.pid], log, port)
        finally:
            subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=True)
    assert (found.listens, found.log_bytes) == (True, 6)
    assert Signs.of([process.pid], log).cpu_s == 0.0  # it has ended


def test_a_server_that_hangs_is_given_up_with_the_last_error(tmp_path: Path) -> None:
    server = Odd(tmp_path)
    server.code = f"import time; print({QUARKUS!r}, flush=True); time.sleep(600)"
    said = refusal(lambda: server.start(still_s=3.0))
    assert said == f"odd does not start: it made no progress for 3 s; {ERROR} (log: {server.log})"
    assert server.pid is None


def test_a_server_that_ends_at_once_is_not_waited_for(tmp_path: Path) -> None:
    server = Odd(tmp_path)
    server.code = "import sys; print('ERROR no such option'); sys.exit(3)"
    said = refusal(server.start)
    assert said == f"odd does not start: it ended with exit code 3; ERROR no such option (log: {server.log})"


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    server = Odd(tmp_path, free_port())
    with socket.create_server((HOST, server.port)), pytest.raises(LocalError) as refused:
        server.start()
    assert f"port {server.port} for odd is in use" in str(refused.value)
    assert "--odd-port" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (QUARKUS, ERROR),
        ("WARN deprecated\n", "its log names no error"),
        ("", "its log names no error"),
        ("Error: Could not find or load main class\n", "Error: Could not find or load main class"),
        ("ERROR a\nERROR \x1b[2Jb\n", "ERROR \\x1b[2Jb"),
    ],
)
def test_the_last_error_of_a_log(tmp_path: Path, text: str, found: str) -> None:
    log = tmp_path / "it.log"
    assert last_error(log) == "its log names no error"
    log.write_text(text)
    assert last_error(log) == found
