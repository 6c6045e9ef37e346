"""The shim, run for real around small shell programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT
from scripts.local.program import Program, attended, read_exits


def attend(tmp_path: Path, script: str, grace: float = 5.0, relaunches: bool = False) -> tuple[Path, list[str]]:
    """A program's file and the command that runs it."""
    program = Program("it", ["/bin/sh", "-c", script], {"PYTHONPATH": str(ROOT)}, str(tmp_path), grace, relaunches)
    path = program.write(tmp_path / "run")
    return path, attended(path)


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not (path.is_file() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.02)
    return path.read_text().strip()


def is_running(pid: int) -> bool:
    """Zombies are gone for this question: whoever inherits them here may not reap them."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(done.stdout.strip()) and not done.stdout.strip().startswith("Z")


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("script", "code", "noted"), [("exit 75", 75, 75), ("kill -9 $$", 137, -9)], ids=["code", "signal"]
)
def test_passes_the_exit_on_and_notes_it(tmp_path: Path, script: str, code: int, noted: int) -> None:
    path, command = attend(tmp_path, script)
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == code
    assert [(one.code, one.asked) for one in read_exits(path)] == [(noted, False)]


def test_sigterm_stops_the_program_in_its_own_way(tmp_path: Path) -> None:
    path, command = attend(tmp_path, "trap 'exit 3' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    with subprocess.Popen(command, cwd=ROOT) as process:
        wait_for(tmp_path / "pid")
        process.terminate()
        assert process.wait(20) == 3
    assert read_exits(path)[0].asked


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    _, command = attend(tmp_path, "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done", grace=0.3)
    with subprocess.Popen(command, cwd=ROOT) as process:
        pid = int(wait_for(tmp_path / "pid"))
        process.terminate()
        assert process.wait(20) == 137
    wait_gone(pid)


def test_what_the_program_left_behind_ends_too(tmp_path: Path) -> None:
    _, command = attend(tmp_path, "sleep 1000 & echo $! > pid; exit 0", grace=0.2)
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    wait_gone(int(wait_for(tmp_path / "pid")))


def test_the_program_ends_when_its_supervisor_was_killed(tmp_path: Path) -> None:
    _, command = attend(tmp_path, "echo $$ > pid; exec sleep 1000")
    start = f"import subprocess, time; subprocess.Popen({command!r}, cwd={str(ROOT)!r}); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", start]) as supervisor:
        pid = int(wait_for(tmp_path / "pid"))
        supervisor.send_signal(signal.SIGKILL)
    wait_gone(pid)


def test_waits_before_it_reports_a_failure_but_not_when_asked_to_stop(tmp_path: Path) -> None:
    path, command = attend(tmp_path, "exit 70", relaunches=True)
    started = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, env=os.environ) as process:
        assert process.wait(20) == 70
    assert time.monotonic() - started > 1
    assert [one.code for one in read_exits(path)] == [70]
