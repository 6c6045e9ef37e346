"""The attendant of one program: `python -m scripts.local.attend RUN/NAME.json`.

1. It starts the program and, if the program's file says so, restarts it after an exit; each consecutive failure doubles
   the wait. Each exit is stored.
2. SIGTERM ends the program and the attendant. SIGUSR1 restarts the program with the current content of its file.
3. The program ends when the attendant's parent ends, so nothing survives a kill -9 of ./scripts/run.
4. The whole session of the program ends with it, because a JVM outlives the Python process that started it.
5. The kernel kills the program when the attendant is killed. Its processes bear a mark (`MARK`), by which
   ./scripts/run finds what is left where no kernel does that.

Output: the program's last exit code, 128 + signal if it was killed.
"""

import contextlib
import logging
import logging.handlers
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import psutil  # type: ignore[import-untyped]

from scripts.local.program import MARK, Process, Program, backoff_seconds, note_exit, read_exits, stays_down
from spark_app.model.processes import BOUND

LOG_BYTES, LOGS_KEPT = 10 << 20, 3
LINE_BYTES = 1 << 16
COPY_S = 5.0  # for the last output; only a process that left the session could keep it open
OUTLIVED_S = 60.0  # a limit, so that the wait always ends


class Attendant:
    """Runs one program until a stop is requested, or once if the program is never restarted."""

    def __init__(self, path: Path) -> None:
        self._path, self._program = path, Program.read(path)
        self._parent, self._asked, self._anew = os.getppid(), False, False
        self._copying: threading.Thread | None = None
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self._wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGUSR1, self._ask_anew)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it only wakes `_rest`

    def run(self) -> int:
        while True:
            code = self._attend_once()
            if self._program.relaunch != "never" and not self._should_stop():
                self._pause(code)
            if self._program.relaunch == "never" or self._should_stop():
                return code if code >= 0 else 128 - code
            self._program = Program.read(self._path)

    def _attend_once(self) -> int:
        """Run the program once; returns its exit code."""
        self._anew = False
        started, child = time.time(), self._spawn()
        self._report("running")
        while child.poll() is None and not (self._should_stop() or self._anew):
            self._rest(1.0)
        if not self._asked and self._should_stop():
            self._outlive()
        deadline = time.monotonic() + self._program.grace
        if child.poll() is None:
            child.terminate()
            self._wait(child, deadline)
        _end_session(child.pid, deadline)
        if self._copying is not None:
            self._copying.join(COPY_S)
        note_exit(self._path, child.returncode, started, self._asked or self._anew)
        return child.returncode

    def _spawn(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            ["sh", "-c", BOUND, "sh", *self._program.command],
            env=os.environ | self._program.environment | {MARK: str(self._path.resolve())},
            cwd=self._program.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._program.log else None,
            stderr=subprocess.STDOUT if self._program.log else None,
            start_new_session=True,
        )
        if child.stdout is not None:
            self._copying = threading.Thread(target=_copy, args=(child.stdout, Path(self._program.log)), daemon=True)
            self._copying.start()
        return child

    def _pause(self, code: int) -> None:
        """Wait before the next start; if a restart cannot help, wait until one is requested."""
        down = self._program.relaunch == "by exit code" and stays_down(code)
        self._report("exited" if down else "waiting", code)
        end = float("inf") if down else time.monotonic() + backoff_seconds(read_exits(self._path))
        while time.monotonic() < end and not (self._should_stop() or self._anew):
            self._rest(min(1.0, end - time.monotonic()))

    def _outlive(self) -> None:
        """./scripts/run is gone and no longer ends the programs in order: wait for those that end before this one."""
        deadline = time.monotonic() + OUTLIVED_S
        for name in self._program.outlives:
            while Process.read(self._path.parent, name).attendant and time.monotonic() < deadline:
                time.sleep(0.1)

    def _report(self, state: str, code: int | None = None) -> None:
        with contextlib.suppress(OSError):  # a full disk, which must not end the program
            Process(self._program.name, state, os.getpid(), code).write(self._path.parent)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _ask_anew(self, *_: object) -> None:
        self._anew = True

    def _should_stop(self) -> bool:
        return self._asked or os.getppid() != self._parent

    def _rest(self, seconds: float) -> None:
        """Sleep until a signal arrives (SIGCHLD is one)."""
        if select.select([self._wake_read], [], [], max(0.0, seconds))[0]:
            os.read(self._wake_read, 4096)

    def _wait(self, child: subprocess.Popen[bytes], deadline: float) -> None:
        while child.poll() is None and time.monotonic() < deadline:
            self._rest(min(1.0, deadline - time.monotonic()))
        if child.poll() is None:
            child.kill()
            child.wait()


def _copy(output: IO[bytes], path: Path) -> None:
    """Copy the output to the log until the program and all its children have closed their end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOGS_KEPT, encoding="utf-8")
    log.terminator = ""
    with output:
        while line := output.readline(LINE_BYTES):
            log.emit(logging.makeLogRecord({"msg": line.decode(errors="replace")}))


def _end_session(leader: int, deadline: float) -> None:
    """Wait for the program's remaining processes, and kill those that still run at the deadline (monotonic seconds)."""
    left = [psutil.Process(pid) for pid in psutil.pids() if _session(pid) == leader]
    _, alive = psutil.wait_procs(left, timeout=max(0.0, deadline - time.monotonic()))
    for process in alive:
        process.kill()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # the process has ended, or belongs to another user
        return None


if __name__ == "__main__":
    sys.exit(Attendant(Path(sys.argv[1])).run())
