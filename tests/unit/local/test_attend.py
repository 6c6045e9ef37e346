"""The attendant, run for real around small shell programs."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT
from scripts.local.program import Process, Program, Relaunch, attended, read_exits


def attend(tmp_path: Path, script: str, grace: float = 5.0, relaunch: Relaunch = "never") -> tuple[Path, list[str]]:
    """A program's file and the command that runs it."""
    program = Program("it", ["/bin/sh", "-c", script], {"PYTHONPATH": str(ROOT)}, str(tmp_path), grace, relaunch)
    path = program.write(tmp_path / "run")
    return path, attended(path)


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not (path.is_file() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.02)
    return path.read_text().strip()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
        assert process.wait(120) == 3
    assert read_exits(path)[0].asked


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    _, command = attend(tmp_path, "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done", grace=0.3)
    with subprocess.Popen(command, cwd=ROOT) as process:
        pid = int(wait_for(tmp_path / "pid"))
        process.terminate()
        assert process.wait(120) == 137
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


def test_a_failure_is_relaunched_after_a_while_and_what_is_done_is_not(tmp_path: Path) -> None:
    script = "if [ -e second ]; then exit 0; else touch second; exit 70; fi"
    path, command = attend(tmp_path, script, relaunch="by exit code")
    with subprocess.Popen(command, cwd=ROOT) as process:
        wait_until(lambda: Process.read(path.parent, "it").is_down)
        first, second = read_exits(path)
        assert (first.code, second.code, Process.read(path.parent, "it").code) == (70, 0, 0)
        assert second.at - second.seconds - first.at > 1
        process.terminate()
        assert process.wait(120) == 0
    assert Process.read(path.parent, "it") == Process("it", "stopped")
    assert len(read_exits(path)) == 2


def test_it_is_started_anew_by_its_file_as_it_is_then(tmp_path: Path) -> None:
    path, command = attend(tmp_path, "echo first > said; exec sleep 1000", relaunch="by exit code")
    with subprocess.Popen(command, cwd=ROOT) as process:
        wait_for(tmp_path / "said")
        new = replace(Program.read(path), command=["/bin/sh", "-c", "echo second > again; exit 78"])
        new.write(path.parent)
        process.send_signal(signal.SIGUSR1)
        wait_for(tmp_path / "again")
        wait_until(lambda: Process.read(path.parent, "it").code == 78)
        replace(new, command=["/bin/sh", "-c", "echo third > last; exec sleep 1000"]).write(path.parent)
        process.send_signal(signal.SIGUSR1)
        wait_for(tmp_path / "last")
        wait_until(lambda: Process.read(path.parent, "it").state == "running")
        process.terminate()
    assert [(one.code, one.asked) for one in read_exits(path)] == [(-15, True), (78, False), (-15, True)]


def test_its_output_goes_to_a_log_that_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "100% mine; all" / "it.log"
    log.parent.mkdir()
    text = "a line of one hundred and one thousand bytes"
    script = f"{sys.executable} -c \"print('{text} \\N{{SNOWMAN}}'); print(('x' * 999 + chr(10)) * 11000)\" >&2"
    path, command = attend(tmp_path, script)
    replace(Program.read(path), log=str(log)).write(path.parent)
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    old = log.with_name("it.log.1").read_text()
    assert old.startswith(f"{text} \N{SNOWMAN}\n")
    assert len(old) + len(log.read_text()) == len(text) + 3 + 11_000_000 + 1
