"""Results of campaigns and measurements: one JSON line each, with time and machine. Standard library only."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def stamp() -> dict[str, Any]:
    """Time, machine and load of a result."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {memory} GiB, {platform.system()} {platform.machine()}",
        "load": load(),
    }


def load() -> list[float]:
    """Load averages of the last 1, 5 and 15 minutes, because other work on the machine affects every number."""
    return [round(value, 1) for value in os.getloadavg()]


def append(path: Path, result: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(result, default=str) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All results, oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock the results file for writing."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
