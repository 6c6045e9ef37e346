"""Mounts a `Disk`, to simulate a power cut under the app. Needs /dev/fuse, the right to mount, and libfuse 3."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.local.artifacts import ROOT

LIBRARY = "fuse3"
FIRST_S = 20.0
PYTHON = [sys.executable, "-m", "tests.chaos.filesystem"]


class Mount:
    """A mounted disk, served by a separate process."""

    def __init__(self, path: Path, process: subprocess.Popen[str]):
        self.path = path
        self._process = process

    def mark(self) -> int:
        """Operations since the last cut."""
        return self._ask("mark")

    def cut(self, seed: int, at: int | None = None) -> None:
        """Simulate a power cut. No process may have files open that it needs afterwards."""
        self._ask(f"cut {seed}" + ("" if at is None else f" {at}"))

    def again(self, seed: int, at: int) -> None:
        """Replace the last cut by another one."""
        self._ask(f"again {seed} {at}")

    def _ask(self, command: str) -> int:
        send, response = self._process.stdin, self._process.stdout
        assert send is not None
        assert response is not None
        print(command, file=send, flush=True)
        return int(response.readline())


def missing() -> str | None:
    """What a mount needs and this machine lacks; None if nothing is missing."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse that this user may use"
    return None if ctypes.util.find_library(LIBRARY) else "no libfuse3"


@contextlib.contextmanager
def mounted(path: Path) -> Iterator[Mount]:
    """An empty disk mounted at the folder, which is created."""
    path.mkdir(parents=True)
    pipe = subprocess.PIPE
    env = os.environ | {"FUSE_LIBRARY_NAME": LIBRARY}
    with subprocess.Popen([*PYTHON, str(path)], cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            _wait(path, process)
            yield Mount(path, process)
        finally:
            process.terminate()


def _wait(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + FIRST_S
    while not path.is_mount():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"cannot mount {path}: the lines above show why")
        time.sleep(0.02)
