"""Finds and kills child processes: the JVM, its Python workers, protoc."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All descendants of a process, parents first; empty on a system without /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]  # a name may have any character
            children.setdefault(int(parent), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def kill_all(pids: list[int]) -> None:
    """Send SIGKILL, which also ends stopped processes."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
