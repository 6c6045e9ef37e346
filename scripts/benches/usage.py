"""CPU time, user and system, of a process and of everything that it ever started, by the kernel's own accounting.

Spark's daemon ignores SIGCHLD, so nobody waits for its Python workers, and what they used is in nobody's account once
they have ended: only a cgroup of their own still has it. Where none can be made, `reaper` waits for all whom it can,
and adds what it last saw of the others.
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
LEFT_S = 60.0  # what outlives the command longer is ended
ENTER = 'echo $$ > "$0" && exec "$@"'  # sh -c


class Meter(Protocol):
    """Counts for one command."""

    source: str

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command that is counted when it is started instead."""

    def cpu_seconds(self) -> float:
        """Of a command that has ended, and of all below it, which is waited for."""

    def so_far(self, process: int) -> float:
        """Of a command that runs; `process` is what was started."""

    def pid(self, process: int) -> int:
        """Of the command itself."""


class Cgroup:
    """A cgroup below our own one."""

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
        with contextlib.suppress(OSError):  # it is not empty: see there
            self.folder.rmdir()

    def empty(self) -> None:
        """Wait for those that the command has left behind; whoever stays is ended. The kernel may name one that is
        long gone: that one is not waited for without end."""
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
    """A parent that waits for the command and for all that it leaves behind."""

    source = "rusage"

    def __init__(self, folder: Path):
        self._said = folder / "cpu_seconds"

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "scripts.benches.reaper", str(self._said), *arguments]

    def cpu_seconds(self) -> float:
        return float(self._said.read_text())

    def so_far(self, process: int) -> float:
        return cpu_seconds(process)

    def pid(self, process: int) -> int:
        return int(psutil.Process(process).children()[0].pid)


@contextlib.contextmanager
def meter() -> Iterator[Meter]:
    """The best that this machine has; on leaving nothing of it stays."""
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
    """None where none can be made, or it does not count."""
    group = Cgroup(parent / f"protolake-bench-{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        group.folder.mkdir()
        if _counts(group):
            return group
        group.remove()
    return None


def _parents() -> Iterator[Path]:
    """Our own cgroups that have the account: of version 2, or of version 1's controller."""
    for line in OWN.read_text().splitlines() if OWN.exists() else ():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(","):
            yield MOUNTED / controllers / path.lstrip("/")
        elif not controllers:
            yield MOUNTED / path.lstrip("/")
            yield MOUNTED / "unified" / path.lstrip("/")


def _counts(group: Cgroup) -> bool:
    """Whether a process may enter, and is counted."""
    try:
        subprocess.run(group.command(["true"]), check=True, capture_output=True)
        return group.cpu_seconds() > 0
    except (OSError, subprocess.CalledProcessError, KeyError):
        return False


def cpu_seconds(process: int) -> float:
    """So far, of a process that lives: what those used that have ended is in it where somebody has waited for them."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(process)
        for one in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(one.cpu_times()[:4])
    return total
