"""One program of the stack: a file with its command, and the history of its exits.

Input and output: <state>/run/<name>.json (0600: the environment may contain credentials), the state of its attendant in
<state>/run/<name>.state, and, one JSON line per exit, <state>/run/<name>.exits.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Literal

import psutil  # type: ignore[import-untyped]

from scripts.local.artifacts import ROOT
from spark_app.model.errors import ExitCode

HEALTHY_AFTER_S = 60  # a program that ran this long restarts at once
LONGEST_BACKOFF_SECONDS = 30

MARK = "STACK_PROGRAM"  # a variable of the program's processes: the path of its file

Relaunch = Literal["never", "always", "by exit code"]


@dataclass(frozen=True)
class Exit:
    """One exit of the program: time (Unix), code (negative: by that signal), seconds that it ran, True if it was
    requested."""

    at: float
    code: int
    seconds: float
    asked: bool


@dataclass(frozen=True)
class Program:
    """A command and how its attendant runs it.

    Attributes:
        environment: added to the environment of the attendant's parent.
        grace: seconds between SIGTERM and SIGKILL.
        relaunch: when the attendant restarts it after an exit. "never" ends the attendant with that exit.
        log: file of its output, rotated; "" = the output of the attendant's parent.
        outlives: programs that end before this one, also after a kill of ./scripts/run, which otherwise stops them in
            order.
    """

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = str(ROOT)
    grace: float = 5.0
    relaunch: Relaunch = "by exit code"
    log: str = ""
    outlives: list[str] = field(default_factory=list)

    def write(self, run: Path) -> Path:
        """Write run/<name>.json atomically; returns that path."""
        run.mkdir(parents=True, exist_ok=True)
        path = run / f"{self.name}.json"
        _write(path, asdict(self))
        return path

    @classmethod
    def read(cls, path: Path) -> "Program":
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Process:
    """The attendant's report about its program.

    Attributes:
        state: "stopped" before the first start, "running", "waiting" for its next start, or "exited" without a restart.
        attendant: its process id, 0 if there is none.
        code: the last exit code; None before the first exit and while the program runs.
    """

    name: str
    state: str
    attendant: int = 0
    code: int | None = None

    @property
    def is_down(self) -> bool:
        """True if the program has ended and is not restarted automatically."""
        return self.state == "exited"

    def write(self, run: Path) -> None:
        _write(run / f"{self.name}.state", asdict(self))

    @classmethod
    def read(cls, run: Path, name: str) -> "Process":
        """The last report; without an attendant no program runs. Another process that has got its id is none."""
        try:
            found = cls(**json.loads((run / f"{name}.state").read_text()))
            attends = Path(*psutil.Process(found.attendant).cmdline()[-1:]).resolve()
        except (OSError, ValueError, TypeError, psutil.Error):
            return cls(name, "stopped")
        return found if attends == (run / f"{name}.json").resolve() else cls(name, "stopped")


def attended(path: Path) -> list[str]:
    """The command that runs the program of the file `path` under its attendant."""
    return [sys.executable, "-m", "scripts.local.attend", str(path)]


def note_exit(path: Path, code: int, started: float, asked: bool) -> Exit:
    """Add an exit to the history beside the program's file; a full disk costs no more than the entry."""
    now = time.time()
    entry = Exit(at=now, code=code, seconds=now - started, asked=asked)
    with contextlib.suppress(OSError), path.with_suffix(".exits").open("a") as file:
        file.write(json.dumps(asdict(entry)) + "\n")
    return entry


def read_exits(path: Path, since: float = 0.0) -> list[Exit]:
    """The history beside the program's file, oldest first; an incomplete last line is left out."""
    return [entry for entry in _entries(path.with_suffix(".exits")) if entry.at >= since]


def _entries(path: Path) -> Iterator[Exit]:
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                yield Exit(**json.loads(line))
            except (ValueError, TypeError):
                continue


def stays_down(code: int) -> bool:
    """True if a restart after this exit code cannot help: the program is done, or a person has to act."""
    return code in {int(one) for one in ExitCode if one.held or one is ExitCode.DONE}


def backoff_seconds(exits: list[Exit]) -> float:
    """Seconds to wait before the next start: 1, 2, 4 ... after consecutive quick failures, otherwise 0."""
    if exits and stays_down(exits[-1].code):
        return 0.0
    quick = quick_exits(exits)
    return min(float(LONGEST_BACKOFF_SECONDS), 2.0 ** (quick - 1)) if quick else 0.0


def quick_exits(exits: list[Exit]) -> int:
    """The number of consecutive failures soon after a start at the end of the history; a bump is not a failure."""
    return len(list(takewhile(_is_quick_failure, reversed(exits))))


def _is_quick_failure(one: Exit) -> bool:
    return not one.asked and one.code != ExitCode.BUMP and one.seconds < HEALTHY_AFTER_S


def _write(path: Path, value: dict[str, object]) -> None:
    partial = path.with_name(f".{path.name}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(value, file, indent=1)
    partial.replace(path)
