"""Each process of a stack that ./scripts/run has started is killed: rows go on, and nobody has to do anything."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from scripts.local import status
from scripts.local.artifacts import ROOT
from scripts.local.claim import Claim
from scripts.local.ports import free_ports
from scripts.local.program import MARK, Process
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.support.processes import command_of

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.timeout(900)]
GOES_ON_S = 90.0
MORE = 100  # rows, of two seconds
# Those of the app are apart: an attendant waits longer after each quick failure of its program.
KINDS = ["attendant of spark", "kafka", "attendant of registry", "jvm", "page", "attendant of kafka", "spark"]
KINDS += ["registry", "attendant of producer", "workers", "producer", "attendant of page"]


class Stack:
    """One ./scripts/run with a lake and a state of its own."""

    def __init__(self, folder: Path) -> None:
        self.state, self._said = folder / "state", folder / "said"
        self._lake = Lake(folder / "lake")
        ports = (f"--{name}-port={port}" for name, port in zip(("kafka", "registry"), free_ports(2), strict=True))
        here = ["--state", str(self.state), "--lake", str(folder / "lake"), "--page-port", "0"]
        self._command = [sys.executable, "-m", "scripts.local", *here, *ports]

    def start(self) -> None:
        with self._said.open("ab") as file:
            self.run = subprocess.Popen(self._command, cwd=ROOT, stdout=file, stderr=file)

    def stop(self) -> int:
        self.run.send_signal(signal.SIGINT)
        return self.run.wait(120)

    def rows(self) -> int:
        return status.read(self._lake).bronze

    def pid(self, kind: str) -> int:
        """The process id, 0 if there is none now."""
        name = kind.removeprefix("attendant of ")
        attendant = Process.read(self.state / "run", "spark" if kind in ("jvm", "workers") else name).attendant
        if kind != name or not attendant:
            return attendant
        with contextlib.suppress(psutil.Error):
            for program in psutil.Process(attendant).children():
                if kind in ("jvm", "workers"):
                    return next(map(_pid, filter(_is_jvm if kind == "jvm" else _is_daemon, _below(program))), 0)
                return program.pid
        return 0

    def next_pid(self, kind: str, killed: list[int]) -> int:
        """The process id, once it is another one."""
        self.wait(lambda: self.pid(kind) not in killed, f"the process {kind}")
        return self.pid(kind) or self.next_pid(kind, killed)

    def wait_rows(self) -> None:
        """Until there are more of them."""
        before = self.rows()
        self.wait(lambda: self.rows() >= before + MORE, "rows")

    def marked(self) -> list[int]:
        """The processes that its programs have started, without those of attendants."""
        run, found = (self.state / "run").resolve(), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if Path(process.environ().get(MARK, "")).parent == run:
                    found.append(process.pid)
        return found

    def wait(self, happened: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + GOES_ON_S
        while not happened():
            assert self.run.poll() is None, self._said.read_text()
            assert time.monotonic() < deadline, f"{what}: {self._said.read_text()[-3000:]}"
            time.sleep(0.1)


def _pid(process: psutil.Process) -> int:
    return process.pid


def _below(program: psutil.Process) -> list[psutil.Process]:
    return [program, *program.children(recursive=True)]


def _is_jvm(process: psutil.Process) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in command_of(process)


def _is_daemon(process: psutil.Process) -> bool:
    return "spark_app.units.spark.daemon" in command_of(process)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(tmp_path_factory.mktemp("kills"))
    running.start()
    try:
        running.wait(lambda: running.rows() > 0, "the first rows")
        yield running
    finally:
        assert running.stop() == ExitCode.DONE
        assert running.marked() == []


@pytest.mark.parametrize("kind", KINDS)
def test_rows_go_on_after_a_process_was_killed_once_and_twice_in_one_start(stack: Stack, kind: str) -> None:
    for kills in (1, 2):
        killed = [0]
        for _ in range(kills):
            killed.append(stack.next_pid(kind, killed))
            os.kill(killed[-1], signal.SIGKILL)
        began = time.monotonic()
        stack.next_pid(kind, killed)
        stack.wait_rows()
        print(f"{kind}, killed {kills} times: rows after {time.monotonic() - began:.0f} s")
        assert time.monotonic() - began < GOES_ON_S


def test_nothing_is_left_of_a_stack_that_was_killed_with_all_its_attendants(stack: Stack) -> None:
    attendants = [one.pid for one in psutil.Process(stack.run.pid).children()]
    for pid in (stack.run.pid, *attendants):
        os.kill(pid, signal.SIGKILL)
    stack.run.wait()
    deadline = time.monotonic() + GOES_ON_S
    while stack.marked():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    claim = Claim(stack.state)
    assert claim.acquire()
    claim.release()
    stack.start()
    stack.wait_rows()
