"""CPU time, user and system, of a process and all its descendants, by the kernel's accounting.

Spark's daemon ignores SIGCHLD, so no process waits for its Python workers, and after their end only a cgroup still has
their CPU time. Where no cgroup can be created, `reaper` waits for all the processes that it can, and adds its last
sample of the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import psutil  # type: ignore[import-untyped]

MOUNTED = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
LOOK_S = 0.05
LEFT_S = 60.0  # descendants that outlive the command by more are killed
ENTER = 'echo $$ > "$0" && exec "$@"'  # sh -c


class Meter(Protocol):
    """Measures one command."""

    source: str

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line to start instead, so that the command is measured."""

    def cpu_seconds(self) -> float:
        """CPU seconds of a command that has ended and of its descendants, for which this waits."""

    def so_far(self, process: int) -> float:
        """CPU seconds of a running command; `process` is the started process."""

    def pid(self, process: int) -> int:
        """The process id of the command itself."""


class Cgroup:
    """A cgroup below this process's own."""

    source = "cgroup"

    def __init__(self, folder: Path):
        self.folder = folder

    def command(self, arguments: Sequence[str]) -> list[str]:
        return ["sh", "-c", ENTER, str(self.folder / "cgroup.procs"), *arguments]

    def cpu_seconds(self) -> float:
        self.empty()
        return self.so_far()

    def so_far(self, process: int = 0) -> float:
        old = self.folder / "cpuacct.usage"  # version 1
        if old.exists():
            return int(old.read_text()) / 1e9
        fields = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def pid(self, process: int) -> int:
        return process

    def remove(self) -> None:
        self.empty()
        with contextlib.suppress(OSError):  # it may not be empty, see `empty`
            self.folder.rmdir()

    def empty(self) -> None:
        """Wait for the command's remaining processes, then kill them. The kernel may list a process that has ended long
        ago, so the wait is limited."""
        deadline = time.monotonic() + LEFT_S
        while left := (self.folder / "cgroup.procs").read_text().split():
            if time.monotonic() > deadline + LEFT_S:
                return
            if time.monotonic() > deadline:
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
            time.sleep(LOOK_S)


class Reaped:
    """A parent process that waits for the command and its orphans."""

    source = "rusage"

    def __init__(self, folder: Path):
        self._cpu_file = folder / "cpu_seconds"

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "scripts.benches.reaper", str(self._cpu_file), *arguments]

    def cpu_seconds(self) -> float:
        return float(self._cpu_file.read_text())

    def so_far(self, process: int) -> float:
        return cpu_seconds(process)

    def pid(self, process: int) -> int:
        return int(psutil.Process(process).children()[0].pid)


@contextlib.contextmanager
def meter() -> Iterator[Meter]:
    """The best meter for this machine; at the end it is removed."""
    group = next(filter(None, map(_group_below, _parents())), None)
    if group is None:
        with tempfile.TemporaryDirectory(prefix="protolake-bench-") as name:
            yield Reaped(Path(name))
        return
    try:
        yield group
    finally:
        group.remove()


def _group_below(parent: Path) -> Cgroup | None:
    """None if no cgroup can be created, or it does not count."""
    group = Cgroup(parent / f"protolake-bench-{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        group.folder.mkdir()
        if _counts(group):
            return group
        group.remove()
    return None


def _parents() -> Iterator[Path]:
    """This process's cgroups with CPU accounting: of version 2, or of version 1's controller."""
    for line in OWN.read_text().splitlines() if OWN.exists() else ():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(","):
            yield MOUNTED / controllers / path.lstrip("/")
        elif not controllers:
            yield MOUNTED / path.lstrip("/")
            yield MOUNTED / "unified" / path.lstrip("/")


def _counts(group: Cgroup) -> bool:
    """True if a process may enter the cgroup and its CPU time is counted."""
    try:
        subprocess.run(group.command(["true"]), check=True, capture_output=True)
        return group.cpu_seconds() > 0
    except (OSError, subprocess.CalledProcessError, KeyError):
        return False


def cpu_seconds(process: int) -> float:
    """CPU seconds so far of a running process, including ended children for which their parent has waited."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(process)
        for one in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(one.cpu_times()[:4])
    return total


def own_cpu_seconds(meter: Meter, process: int) -> float | None:
    """CPU seconds so far of a measured command alone; None if it has ended."""
    with contextlib.suppress(psutil.Error, IndexError):
        return float(sum(psutil.Process(meter.pid(process)).cpu_times()[:2]))
    return None
