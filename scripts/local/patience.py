"""How long a start may take: as long as it makes progress, which on a busy machine may be many minutes.

Signs of progress: its processes use CPU time, its log grows, its port opens.
"""

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from scripts.local.errors import UNREACHABLE, LocalError
from scripts.local.ports import is_listening
from scripts.local.program import Exit
from spark_app.model.text import one_line

STILL_S = 60.0  # without progress
LONGEST_S = 1200.0
LOOK_S = 1.0
CPU_S = 1.0  # a JVM that only waits takes longer than STILL_S for this
KILLS = 2  # a start goes on after so many kills (-9)

ERROR = re.compile(r"\b(ERROR|FATAL|SEVERE)\b|^Error\b")
CAUSE = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error)\b")


@dataclass(frozen=True)
class Signs:
    """What has changed if there was progress."""

    cpu_s: float
    log_bytes: int
    listens: bool

    @classmethod
    def of(cls, pids: Iterable[int], log: Path, port: int | None = None) -> "Signs":
        """Of these processes and all that they have started."""
        size = log.stat().st_size if log.is_file() else 0
        return cls(sum(map(_cpu_seconds, pids)), size, port is not None and is_listening(port))

    def differs(self, other: "Signs") -> bool:
        others = self.log_bytes != other.log_bytes or self.listens != other.listens
        return others or abs(self.cpu_s - other.cpu_s) >= CPU_S


class Patience:
    """With one start of `what`. Call `check` again and again while it is waited for."""

    def __init__(self, what: str, log: Path, signs: Callable[[], Signs], still_s: float = STILL_S) -> None:
        self._what, self._log, self._signs, self._still_s = what, log, signs, still_s
        self._began = self._moved = self._looked = time.monotonic()
        self._last = signs()

    def check(self, exits: Sequence[Exit] = ()) -> None:
        """A LocalError if the start is given up; it names the limit and the last error of the log.

        `exits`: those since the start. The program may be killed some times, but not end by itself.
        """
        if exits and (exits[-1].code != -signal.SIGKILL or len(exits) > KILLS):
            raise self.error(f"it ended with exit code {exits[-1].code}")
        now = time.monotonic()
        if now < self._looked + LOOK_S:
            return
        self._looked, found = now, self._signs()
        if found.differs(self._last):
            self._moved, self._last = now, found
        if now > self._moved + self._still_s:
            raise self.error(f"it made no progress for {self._still_s:.0f} s")
        if now > self._began + LONGEST_S:
            raise self.error(f"it was not ready within {LONGEST_S:.0f} s")

    def error(self, why: str) -> LocalError:
        reason = f"{why}; {last_error(self._log)} (log: {self._log})"
        return LocalError(f"{self._what} does not start: {reason}", UNREACHABLE)


def last_error(log: Path) -> str:
    """The last error in a log, with the exception below it; otherwise its last line, if that is all that was said."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    error = cause = ""
    for line in lines:
        if ERROR.search(line):
            error, cause = line.strip(), ""
        elif CAUSE.match(line):
            cause = line.strip()
    found = ": ".join(filter(None, (error, cause)))
    return one_line(found[:400]) if found else "its log names no error"


def _cpu_seconds(pid: int) -> float:
    """CPU time of the process and its descendants, also of those that have ended."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += sum(one.cpu_times()[:4])
    return total
