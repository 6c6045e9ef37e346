"""The shim between the supervisor and one program: `python -m scripts.local.attend RUN/NAME.json`.

supervisord starts, stops and relaunches; what it has no setting for is here, and only that:
1. the program ends when whoever started the shim is gone, so nothing survives a kill -9 of the supervisor;
2. the whole session of the program ends with it (a JVM outlives the Python that started it);
3. the exit is written down, and a program that fails again and again waits before its exit is reported.
Goes out: the program's exit code, 128 + signal if it was killed.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from scripts.local.program import Program, backoff_seconds, note_exit, read_exits


class Attendant:
    """Runs one program to its end."""

    def __init__(self, path: Path) -> None:
        self._path, self._program = path, Program.read(path)
        self._parent, self._asked = os.getppid(), False
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self._wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake _rest

    def run(self) -> int:
        started = time.time()
        child = self._spawn()
        while child.poll() is None and not self._should_stop():
            self._rest(1.0)
        deadline = time.monotonic() + self._program.grace
        if child.poll() is None:
            child.terminate()
            self._wait(child, deadline)
        _end_session(child.pid, deadline)
        note_exit(self._path, child.returncode, started, self._asked)
        self._back_off()
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._program.command,
            env=os.environ | self._program.environment,
            cwd=self._program.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _should_stop(self) -> bool:
        return self._asked or os.getppid() != self._parent

    def _rest(self, seconds: float) -> None:
        """Sleeps until a signal comes (SIGCHLD is one)."""
        if select.select([self._wake_read], [], [], max(0.0, seconds))[0]:
            os.read(self._wake_read, 4096)

    def _wait(self, child: subprocess.Popen[bytes], deadline: float) -> None:
        while child.poll() is None and time.monotonic() < deadline:
            self._rest(min(1.0, deadline - time.monotonic()))
        if child.poll() is None:
            child.kill()
            child.wait()

    def _back_off(self) -> None:
        end = time.monotonic() + (backoff_seconds(read_exits(self._path)) if self._program.relaunches else 0)
        while time.monotonic() < end and not self._should_stop():
            self._rest(min(1.0, end - time.monotonic()))


def _end_session(leader: int, deadline: float) -> None:
    """Waits for what the program left behind, and kills what is still there at the deadline (monotonic seconds)."""
    left = [psutil.Process(pid) for pid in psutil.pids() if _session(pid) == leader]
    _, alive = psutil.wait_procs(left, timeout=max(0.0, deadline - time.monotonic()))
    for process in alive:
        process.kill()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # gone, or not ours to ask about
        return None


if __name__ == "__main__":
    sys.exit(Attendant(Path(sys.argv[1])).run())
