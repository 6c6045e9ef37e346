"""Programs of a stack, their attendants for real."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scripts.local.artifacts import ROOT
from scripts.local.program import MARK, Process, Program, read_exits
from scripts.local.supervision import Supervisor

# Ends half a second after it was asked to, and says when.
SLOW = """
import pathlib, signal, sys, time
def end(*_):
    time.sleep(0.5)
    text = pathlib.Path(sys.argv[1] + ".part")
    text.write_text(str(time.time()))
    text.rename(sys.argv[1])  # whole, or not there
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(600)
"""
NAMES = ["kafka", "spark", "producer"]


def programs(folder: Path) -> list[Program]:
    return [Program(name, [sys.executable, "-c", SLOW, str(folder / name)], {"SECRET": "s3cret"}) for name in NAMES]


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def states(supervisor: Supervisor) -> list[str]:
    return [one.state for one in supervisor.processes()]


def test_programs_start_in_order_and_end_in_the_reverse(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "state")
    with (tmp_path / "lock").open("w") as lock:
        supervisor.start(programs(tmp_path), {"PYTHONPATH": str(ROOT)}, lock.fileno(), later=["producer"])
        wait_until(lambda: states(supervisor) == ["running", "running", "stopped"])
        supervisor.launch("producer")
        wait_until(lambda: states(supervisor) == ["running"] * 3)
        assert [one.name for one in supervisor.processes()] == NAMES
        wait_until(
            lambda: all((p := supervisor.logs / f"{n}.log").exists() and p.read_text() == "ready\n" for n in NAMES)
        )
        assert supervisor.dead() == []
        supervisor.stop()
    ends = [float((tmp_path / name).read_text()) for name in reversed(NAMES)]
    assert ends == sorted(ends)
    assert supervisor.processes() == []


def test_they_end_in_order_also_when_nobody_is_left_to_stop_them(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tests.unit.local.test_supervision import *;"
        "folder = Path(sys.argv[1]); lock = open(folder / 'lock', 'w');"
        "Supervisor(folder / 'state').start(programs(folder), {}, lock.fileno()); time.sleep(600)"
    )
    front = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(front, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        logs = tmp_path / "state" / "logs"
        wait_until(lambda: all((p := logs / f"{name}.log").exists() and p.read_text() for name in NAMES))
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: all((tmp_path / name).exists() for name in NAMES))
    ends = [float((tmp_path / name).read_text()) for name in reversed(NAMES)]
    assert ends == sorted(ends)
    wait_until(lambda: Supervisor(tmp_path / "state").processes() == [])


def without_setpriv(folder: Path) -> str:
    """A PATH on which the kernel is not asked to end a program with its attendant."""
    folder.mkdir()
    for name in ("sh", "sleep"):
        (folder / name).symlink_to(shutil.which(name) or "")
    return str(folder)


def sleeping(folder: Path) -> list[int]:
    """Processes of the program of `folder` that are there."""
    own = Path(folder / "state" / "run" / "kafka.json").resolve()
    return [process.pid for process in psutil.process_iter() if marks(process) == str(own)]


def marks(process: psutil.Process) -> str | None:
    with contextlib.suppress(psutil.Error):  # it may end between two questions
        return process.environ().get(MARK) if process.status() != psutil.STATUS_ZOMBIE else None
    return None


@pytest.mark.parametrize("by_kernel", [True, False])
def test_a_program_whose_attendant_was_killed_ends_and_starts_again(tmp_path: Path, by_kernel: bool) -> None:
    if by_kernel and shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    variables = {"PYTHONPATH": str(ROOT)} | ({} if by_kernel else {"PATH": without_setpriv(tmp_path / "bin")})
    supervisor = Supervisor(tmp_path / "state")
    command = ["sh", "-c", "sleep 600 & sleep 600"]  # the second one is no child of the attendant
    with (tmp_path / "lock").open("w") as lock:
        supervisor.start([Program("kafka", command, variables)], {"PYTHONPATH": str(ROOT)}, lock.fileno())
        for _ in range(2):
            wait_until(lambda: states(supervisor) == ["running"] and len(sleeping(tmp_path)) == 3)
            before = sleeping(tmp_path)
            os.kill(supervisor.attendant("kafka"), signal.SIGKILL)
            wait_until(lambda: supervisor.dead() == ["kafka"])
            if by_kernel:
                wait_until(lambda: len(sleeping(tmp_path)) < 3)
            wait_until(lambda: supervisor.revive() is None and supervisor.dead() == [])
            assert not {*before} & {*sleeping(tmp_path)}
        wait_until(lambda: states(supervisor) == ["running"])
        supervisor.stop()
    assert sleeping(tmp_path) == []
    assert [one.code for one in read_exits(supervisor.run / "kafka.json")] == [-9, -9, -15]


def test_the_next_start_ends_what_a_killed_stack_has_left_and_nothing_else(tmp_path: Path) -> None:
    variables = {"PYTHONPATH": str(ROOT), "PATH": without_setpriv(tmp_path / "bin")}
    supervisor, other = Supervisor(tmp_path / "state"), Supervisor(tmp_path / "other" / "state")
    with (tmp_path / "lock").open("w") as lock:
        for one in (supervisor, other):
            one.start([Program("kafka", ["sleep", "600"], variables)], {"PYTHONPATH": str(ROOT)}, lock.fileno())
        wait_until(lambda: states(supervisor) == states(other) == ["running"])
        Supervisor(tmp_path / "state").end_orphans()
        assert states(supervisor) == ["running"]  # it has an attendant
        os.kill(supervisor.attendant("kafka"), signal.SIGKILL)
        wait_until(lambda: supervisor.dead() == ["kafka"])
        # Its id now belongs to a process that has nothing to do with it.
        Process("kafka", "running", os.getpid()).write(supervisor.run)
        assert Process.read(supervisor.run, "kafka") == Process("kafka", "stopped")
        Supervisor(tmp_path / "state").end_orphans()
        assert sleeping(tmp_path) == []
        assert len(sleeping(tmp_path / "other")) == 1
        other.stop()


def test_the_environment_of_a_program_only_its_owner_can_read(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "state")
    with (tmp_path / "lock").open("w") as lock:
        supervisor.start(programs(tmp_path), {}, lock.fileno(), later=NAMES)
        supervisor.stop()
    told = [path for path in tmp_path.rglob("*") if path.is_file() and "s3cret" in path.read_text()]
    assert sorted(path.name for path in told) == sorted(f"{name}.json" for name in NAMES)
    assert {path.stat().st_mode & 0o777 for path in told} == {0o600}


@pytest.mark.parametrize("state", ["{}", "no JSON", '{"name": "spark", "state": "running", "attendant": 999999999}'])
def test_nothing_runs_where_no_attendant_does(tmp_path: Path, state: str) -> None:
    (tmp_path / "spark.state").write_text(state)
    assert Process.read(tmp_path, "spark") == Process("spark", "stopped")
