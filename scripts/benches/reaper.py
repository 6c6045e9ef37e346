"""`python -m scripts.benches.reaper FILE COMMAND...`: runs a command and waits for it and its orphaned children.

It writes the CPU time, user and system, of all of them into the file, and exits with the command's code. Orphans become
children of this process (Linux), so that it can wait for them, too. No process waits for the children of a parent that
ignores SIGCHLD: for them the last sample counts, at most `LOOK_S` before they ended.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from scripts.benches.usage import LEFT_S, LOOK_S

SUBREAPER = 36  # prctl's PR_SET_CHILD_SUBREAPER
Process = tuple[int, float]  # pid, start time, because the kernel reuses pids


def main(output: Path, command: list[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code, unwaited, deadline = None, dict[Process, float](), 0.0
    while True:
        _look(unwaited)
        while (ended := _reap()) is not None:
            pid, status = ended
            unwaited = {one: used for one, used in unwaited.items() if one[0] != pid}
            if pid == process.pid:
                code, deadline = os.waitstatus_to_exitcode(status), time.monotonic() + LEFT_S
        if code is not None and not _children():
            break
        if code is not None and time.monotonic() > deadline:
            for child in _children():
                child.kill()
        time.sleep(LOOK_S)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    output.write_text(str(usage.ru_utime + usage.ru_stime + sum(unwaited.values())))
    return code if code >= 0 else 128 - code


def _reap() -> tuple[int, int] | None:
    """(pid, status) of a child that has ended."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _children() -> list[psutil.Process]:
    return psutil.Process().children()  # type: ignore[no-any-return]


def _look(unwaited: dict[Process, float]) -> None:
    """Sample the CPU time of processes for which their parent will not wait."""
    for one in psutil.Process().children(recursive=True):
        try:
            if _ignores_children(one.ppid()):
                unwaited[one.pid, one.create_time()] = sum(one.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue


def _ignores_children(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    mask = int(status.split("SigIgn:")[1].split()[0], 16)
    return bool(mask >> (signal.SIGCHLD - 1) & 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
