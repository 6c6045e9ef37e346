"""What one program of the stack is: a file that says what to run, and the history of its exits.

Comes in and goes out: <state>/run/<name>.json (0600: the environment may hold credentials) and, one JSON line per exit,
<state>/run/<name>.exits.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path

from scripts.local.artifacts import ROOT

BUMP = 75
STAYS_DOWN = (0, 64, 65, 78)
SETTLED_SECONDS = 60  # a program that lived this long starts again at once
LONGEST_BACKOFF_SECONDS = 30


@dataclass(frozen=True)
class Exit:
    """One end of the program: when (Unix time), how (negative: by that signal), after how long, on request or not."""

    at: float
    code: int
    seconds: float
    asked: bool


@dataclass(frozen=True)
class Program:
    """`environment` is laid over the supervisor's own; `grace` is the seconds between SIGTERM and SIGKILL."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = str(ROOT)
    grace: float = 5.0
    relaunches: bool = True

    def write(self, run: Path) -> Path:
        """Puts it down as run/<name>.json, whole or not at all; returns that path."""
        run.mkdir(parents=True, exist_ok=True)
        path = run / f"{self.name}.json"
        partial = run / f".{self.name}.json"
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(self), file, indent=1)
        partial.replace(path)
        return path

    @classmethod
    def read(cls, path: Path) -> "Program":
        return cls(**json.loads(path.read_text()))


def attended(path: Path) -> list[str]:
    """The command that runs the program of the file `path` under its attendant."""
    return [sys.executable, "-m", "scripts.local.attend", str(path)]


def note_exit(path: Path, code: int, started: float, asked: bool) -> Exit:
    """Adds an exit to the history beside the program's file."""
    now = time.time()
    entry = Exit(at=now, code=code, seconds=now - started, asked=asked)
    with path.with_suffix(".exits").open("a") as file:
        file.write(json.dumps(asdict(entry)) + "\n")
    return entry


def read_exits(path: Path, since: float = 0.0) -> list[Exit]:
    """The history beside the program's file, oldest first; a torn last line is left out."""
    return [entry for entry in _entries(path.with_suffix(".exits")) if entry.at >= since]


def _entries(path: Path) -> Iterator[Exit]:
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                yield Exit(**json.loads(line))
            except (ValueError, TypeError):
                continue


def backoff_seconds(exits: list[Exit]) -> float:
    """How long to wait before the next start: nothing after a bump, else 1, 2, 4 ... while exits follow each other."""
    if exits and exits[-1].code in STAYS_DOWN:
        return 0.0
    quick = quick_exits(exits)
    return min(float(LONGEST_BACKOFF_SECONDS), 2.0 ** (quick - 1)) if quick else 0.0


def quick_exits(exits: list[Exit]) -> int:
    """How many failures in a row at the end of the history came soon after their start; a bump is no failure."""
    return len(list(takewhile(_is_quick_failure, reversed(exits))))


def _is_quick_failure(one: Exit) -> bool:
    return not one.asked and one.code != BUMP and one.seconds < SETTLED_SECONDS
